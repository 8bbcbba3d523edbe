"""The page about local clients, and the example in their docstring, run as printed; on a tiny model."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_folder import write_tiny_folder

from agentcache.local import clients

PAGE = Path(__file__).parents[2] / "docs" / "sdk" / "local.md"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model that is named in place of ``smollm2``."""
    folder = tmp_path_factory.mktemp("local-page") / "tiny"
    write_tiny_folder(folder, corpus=PAGE.read_text("utf-8").splitlines(keepends=True), vocab_size=1000)
    return str(folder)


def test_every_snippet_runs_in_order(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(snippets) == 5
    space: dict[str, Any] = {"__name__": "local_page"}
    for number, snippet in enumerate(snippets):
        exec(compile(snippet.replace('"smollm2"', repr(tiny)), f"{PAGE.name}#{number}", "exec"), space)
    printed = capsys.readouterr().out
    for expected in ("tokens per turn", "--page-size: got 0: ", "EngineInfo(", "tokens came from the disk", " metrics"):
        assert expected in printed


def test_the_docstring_s_example_runs(tiny: str) -> None:
    example = (clients.LocalClient.__doc__ or "").replace('"smollm2"', repr(tiny))
    test = doctest.DocTestParser().get_doctest(example, {}, "LocalClient", None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
