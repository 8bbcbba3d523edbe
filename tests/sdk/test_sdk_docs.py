"""The pages about the SDK run as printed, on a real server whose model says the same little thing each time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from saying import Saying, saying_server

PAGES = Path(__file__).parents[2] / "docs" / "sdk"
PRINTED = {
    "quickstart.md": ("tokens per turn", "temperature is the matter", "positions were really run", "of them cached"),
    "sessions.md": ("tokens per turn", "now: 22:40\nfiles open: 3", "last event: ", " pages until ", "AC403 compacted"),
    "forks.md": ("2 turns: ['system', 'user'", "tokens computed for all of them"),
}
"""What each page's blocks print, among other things."""


@pytest.fixture(scope="module")
def saying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saying]:
    folder = tmp_path_factory.mktemp("pages")
    with saying_server(folder, home=folder / "home") as saying:
        saying.says("It depends on what you want to do with it.")
        yield saying


@pytest.mark.parametrize("page", PRINTED)
@pytest.mark.filterwarnings("error")
def test_a_page_runs_as_printed(saying: Saying, capsys: pytest.CaptureFixture[str], page: str) -> None:
    text = (PAGES / page).read_text("utf-8").replace("http://127.0.0.1:8100", saying.server.url)
    snippets = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(snippets) == text.count("```python") >= 3
    # Where the file is looked up is where its warnings and tracebacks point.
    space: dict[str, object] = {"__name__": "sdk_page"}
    for number, snippet in enumerate(snippets):
        exec(compile(snippet, f"{page}#{number}", "exec"), space)
    printed = capsys.readouterr().out
    for expected in PRINTED[page]:
        assert expected in printed
