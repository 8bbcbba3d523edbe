"""The page about warnings runs as printed, and its table is the catalogue."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from sdk_wire import WireServer

from agentcache_sdk import CacheWarning
from agentcache_sdk._codes import CODES
from agentcache_sdk.cache_warnings import category

PAGE = Path(__file__).parents[2] / "docs" / "sdk" / "warnings.md"
TEXT = PAGE.read_text("utf-8")


def test_every_snippet_runs_in_order_and_prints_what_is_shown(
    wire: WireServer, capsys: pytest.CaptureFixture[str]
) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(snippets) == TEXT.count("```python") >= 7
    shown = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    # Where the file is looked up is where its warnings and tracebacks point.
    space: dict[str, object] = {"__name__": "warnings_page"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, snippet in enumerate(snippets):
            code = compile(snippet.replace("http://127.0.0.1:8100", wire.url), f"{PAGE.name}#{number}", "exec")
            exec(code, space)
    printed = capsys.readouterr().out
    assert printed.startswith(shown[0])
    assert "AC101 messages[0].content 6 " in printed
    assert printed.endswith("refused: AC101\n")


def test_the_table_is_the_catalogue() -> None:
    rows = re.findall(r"^\| (AC\d{3}) \| (\S+) \| (.+) \|$", TEXT, re.MULTILINE)
    assert rows == [(code.code, code.name, code.fix) for code in CODES.values()]


def test_the_tree_names_the_class_of_every_group() -> None:
    tree = re.findall(r"^[├└]── (\w+)\s+((?:AC\d\.\. )+)", TEXT, re.MULTILINE)
    told = {group: name for name, groups in tree for group in groups.split()}
    groups = {code[:3] for code in CODES if category(code) is not CacheWarning}
    assert told == {f"{group}..": category(f"{group}01").__name__ for group in groups}
