"""Every rule on the project's own corpus: the input that breaks it says so once, and its twin says nothing."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from lint_twins import Twin, write_input

from agentcache.lint.cli import main
from agentcache.lint.rules import RULES

TWINS: list[Twin] = [
    twin
    for file in sorted(Path(__file__).parent.glob("twins_*.py"))
    for twin in importlib.import_module(file.stem).TWINS
]
SHARING = frozenset({"AC501", "AC502"})
"""True wherever sessions share something, so they count only in twins of their own."""
OPTIONAL = frozenset(rule.code for rule in RULES if rule.optional)
OVER_HTTP = frozenset({"AC801", "AC802", "AC803", "AC804"})
"""Found by a running server alone; their twins are tried against one."""


def findings(twin: Twin, folder: Path, failing: bool, tokenizer: Path, capsys: pytest.CaptureFixture[str]):
    files = write_input(folder, twin.failing if failing else twin.clean)
    extended = ("--extend-select", twin.code) if twin.code in OPTIONAL else ()
    capsys.readouterr()
    flags = ("--output-format", "json", *extended, *twin.flags)
    if "--tokenizer" not in twin.flags:
        flags = ("--tokenizer", str(tokenizer), *flags)
    code = main([*map(str, files), *flags])
    found = json.loads(capsys.readouterr().out)
    hidden = (SHARING | OPTIONAL) - {twin.code}
    return code, [finding for finding in found if finding["code"] not in hidden]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.code.lower()}-{twin.name.replace(' ', '-')}")
def test_the_defect_is_found_once_and_its_twin_is_clean(twin, tmp_path, tokenizer_folder, capsys):
    _, clean = findings(twin, tmp_path / "clean", False, tokenizer_folder, capsys)
    assert clean == []
    code, found = findings(twin, tmp_path / "failing", True, tokenizer_folder, capsys)
    assert [finding["code"] for finding in found] == [twin.code]
    assert code == (2 if twin.code == "AC903" else 0 if found[0]["verdict"] == "legitimate" else 1)
    if twin.path is not None:
        assert found[0]["location"]["path"] == twin.path
    if twin.lost is not None:
        assert found[0]["tokens_lost"] == twin.lost


def test_every_rule_has_twins():
    assert {rule.code for rule in RULES} - {twin.code for twin in TWINS} - OVER_HTTP == set()
