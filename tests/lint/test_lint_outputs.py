"""How findings are written: for people, for programs, for the systems that run checks."""

from __future__ import annotations

import io
import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from lint_workloads import INSTRUCTIONS
from rich.cells import cell_len
from rich.console import Console

from agentcache.lint.cli import main
from agentcache.lint.command.sieve import exit_code
from agentcache.lint.command.writing import console_of
from agentcache.lint.finding import Edit, Finding, Fix, Location
from agentcache.lint.outputs import console as pages
from agentcache.lint.outputs.data import write_json, write_jsonl
from agentcache.lint.outputs.github import write_github
from agentcache.lint.outputs.junit import write_junit
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.rule_pages import markdown_page
from agentcache.lint.outputs.sarif import write_sarif
from agentcache.lint.outputs.sources import Sources
from agentcache.lint.outputs.words import one_line, reference_of, visible
from agentcache.lint.report import PageShare, Report, RequestFigures
from agentcache.lint.rules import RULES

ROOT = Path(__file__).parents[2]
EVIL = "\x1b[2J\x07 <b>&amp; ]]> \ud83d \u202e 日本語 ü\n"


def finding(code: str = "AC101", **fields: Any) -> Finding:
    where = {"file": "a.jsonl", "record": 2, "path": "messages[0].content", "char": 6, "token": 5, "page": 0}
    made = {
        "code": code,
        "name": next((rule.name for rule in RULES if rule.code == code), "later-rule"),
        "severity": "error",
        "location": Location(**{**where, **fields.pop("where", {})}),
        "compared_to": "a.jsonl:1",
        "before": "It is 10:30.",
        "after": "It is 10:31.",
        "tokens_lost": 1406,
        "tokens_lost_kind": "exact",
        "shared_by": 3,
        "message": "a time changes",
        "help": "say it last",
    }
    return Finding(**{**made, **fields})


def outcome(*findings: Finding, files: tuple[str, ...] = ("a.jsonl",), **fields: Any) -> Outcome:
    shares = (PageShare(16, 600, 592), PageShare(64, 600, 512))
    requests = [RequestFigures("a.jsonl", line, "#1", 1000, 300) for line in (1, 2)]
    report = Report(list(findings), requests, 2, 1, 0, 2000, shares, {"AC403": 70})
    return Outcome(list(findings), report, files, **fields)


def written(write: Any, *arguments: Any, **flags: Any) -> str:
    out = io.StringIO()
    write(*arguments, out, **flags)
    return out.getvalue()


def screen(write: Any, shown: Outcome, *, width: int | None = None, color: bool | None = None, **flags: Any) -> str:
    out = io.StringIO()
    console = console_of(out, color) if width is None else Console(
        file=out, force_terminal=True, width=width, color_system=None, highlight=False, markup=False, emoji=False
    )  # fmt: skip
    write(shown, console, **flags)
    return out.getvalue()


# -- for people -------------------------------------------------------------------------------------------------------


def test_a_finding_in_full():
    assert screen(pages.write_full, outcome(finding()), quiet=False).splitlines() == [
        "error AC101 volatile-time: a time changes",
        "  --> a.jsonl:2  messages[0].content, character 6 (token 5, page 0)",
        "   | a.jsonl:1  It is 10:30.",
        "   | a.jsonl:2  It is 10:31.",
        "   |                      ^",
        "   = lost: 1,406 tokens, in 3 sessions",
        "   = help: say it last",
        "",
        "1 finding in 2 requests of 1 session: 1,406 of 2,000 prompt tokens are computed again for no reason.",
    ]


def test_places_in_sources_have_columns_for_editors():
    where = {"file": "agent.py", "record": 12, "path": "Chat.ask", "char": 8, "token": None, "page": None}
    told = finding(where=where, before=None, tokens_lost=None, tokens_lost_kind=None)
    assert reference_of(told) == "agent.py:12:9"
    assert one_line(told) == "in Chat.ask: a time changes"
    text = screen(pages.write_concise, outcome(told, files=("agent.py",)), quiet=True)
    assert text == "agent.py:12:9: AC101 in Chat.ask: a time changes\n"


def test_what_is_legitimate_has_a_price_and_loses_nothing():
    told = finding("AC403", verdict="legitimate", severity="info")
    text = screen(pages.write_full, outcome(told), quiet=False)
    assert "info AC403 history-compacted (legitimate): " in text and "= price: 1,406 tokens" in text
    assert "computed again for no reason" not in text
    assert one_line(told).endswith("[1,406 tokens paid]")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("around", ["x" * 400, "日本語" * 100, "e\u0301" * 300])
def test_wide_texts_are_cut_around_what_differs_and_marked_in_cells(width, around):
    told = finding(before=f"{around}10:30{around}", after=f"{around}10:31{around}")
    lines = screen(pages.write_full, outcome(told), width=width, quiet=True).splitlines()
    before, after, marks = (line for line in lines if line.startswith("   | "))
    assert all(cell_len(line) <= width for line in (before, after, marks))
    column = cell_len(marks[: marks.index("^")])
    for line, differs in ((before, "0"), (after, "1")):
        cells = 0
        for char in line:
            if cells == column and cell_len(char):
                break
            cells += cell_len(char)
        assert char == differs


def test_what_is_compared_with_no_request_is_before_and_now():
    text = screen(pages.write_full, outcome(finding(compared_to=None)), quiet=True)
    assert "   | before  It is 10:30.\n   | now     It is 10:31.\n   |                   ^\n" in text


def test_long_file_names_do_not_take_the_room():
    name = "/a" * 60 + "/run.jsonl"
    told = finding(where={"file": name}, compared_to=f"{name}:1")
    text = screen(pages.write_full, outcome(told), width=80, quiet=True)
    assert "   | run.jsonl:1  It is 10:30." in text and f"--> {name}:2" in text


@pytest.mark.parametrize("write", [pages.write_full, pages.write_concise])
def test_nothing_of_a_prompt_or_a_name_commands_the_terminal(write):
    where = {"file": f"a{EVIL}.jsonl", "path": f"messages[0].{EVIL}"}
    told = finding(where=where, before=EVIL, after=EVIL * 2, message=EVIL, help=EVIL, compared_to=f"b{EVIL}:1")
    text = screen(write, outcome(told, gone=(EVIL,)), quiet=False)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text)
    assert "日本語" in text and "<b>" in text


def test_control_characters_are_shown_as_signs():
    assert visible("a\n\tb\x1b\u202e\ud83d") == "a⏎⇥b\\u001b\\u202e\\ud83d"


@pytest.mark.parametrize(
    ("environment", "color", "colored"),
    [
        ({}, None, False),
        ({"FORCE_COLOR": "1"}, None, True),
        ({"FORCE_COLOR": "1"}, False, False),
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, None, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, None, False),
    ],
)
def test_colours(monkeypatch, environment, color, colored):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = screen(pages.write_full, outcome(finding()), color=color, quiet=True)
    assert bool(re.search(r"\x1b\[[0-9;]*3\dm", text)) is colored


def test_statistics_for_people():
    told = (finding(), finding(), finding("AC501", tokens_lost=6, tokens_lost_kind="upper_bound"))
    text = screen(pages.write_statistics, outcome(*told, suppressed=2, known=4, gone=("AC101 in b.jsonl",)))
    assert re.search(r"AC101 +volatile-time +2 +2,812 +140\.6%", text)
    assert re.search(r"AC501 +unaligned-share-point +1 +≤ 6 +0\.3%", text)
    assert "2 requests, 1 session, 2,000 prompt tokens, 600 of them served by a warm cache" in text
    assert "70 tokens paid for legitimate changes of the history (AC403)" in text
    assert "2 suppressed, 4 known from the baseline" in text
    assert "gone from the baseline: AC101 in b.jsonl" in text


def test_tables_have_no_blanks_at_their_ends_and_are_not_cut():
    told = (finding(), finding("AC904", tokens_lost=None, tokens_lost_kind=None))
    for width in (20, 200):
        text = screen(pages.write_statistics, outcome(*told), width=width)
        text += screen(pages.write_page_sizes, outcome(), width=width)
        assert all(line == line.rstrip() for line in text.splitlines())
        assert "whole pages only" in text and "140.6%" not in text and "70.3%" in text


def test_page_sizes_are_compared():
    lines = screen(pages.write_page_sizes, outcome()).splitlines()
    assert lines[1].split() == ["16", "600", "30.0%", "592", "29.6%"]
    assert lines[2].split() == ["64", "600", "30.0%", "512", "25.6%"]


# -- for programs -----------------------------------------------------------------------------------------------------


def test_json_with_statistics_is_one_object_and_has_every_request():
    value = json.loads(written(write_json, outcome(finding()), statistics=True))
    assert [Finding.model_validate(each) for each in value["findings"]] == [finding()]
    statistics = value["statistics"]
    assert (statistics["tokens_lost"], statistics["share_lost"]) == (1406, 0.703)
    assert (statistics["by_code"], statistics["tokens_lost_by_code"]) == ({"AC101": 1}, {"AC101": 1406})
    assert [each["whole_page_tokens"] for each in statistics["page_sizes"]] == [592, 512]
    assert [each["record"] for each in statistics["predictions"]] == [1, 2]
    lines = written(write_jsonl, outcome(finding()), statistics=True).splitlines()
    assert json.loads(lines[0])["code"] == "AC101"
    assert json.loads(lines[1]) == {"statistics": statistics}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("write", [write_json, write_jsonl, write_sarif])
def test_json_is_json_whatever_the_encoding_of_the_output(write, encoding):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    write(outcome(finding(before=EVIL, after=EVIL + "x", message=EVIL)), out, statistics=False)
    out.flush()
    text = raw.getvalue().decode(encoding)
    value = json.loads(text.splitlines()[0] if write is write_jsonl else text)
    assert EVIL in json.dumps(value, ensure_ascii=False).replace("\\n", "\n").replace("\\u001b", "\x1b").replace(
        "\\u0007", "\x07"
    )


# -- for code scanning ------------------------------------------------------------------------------------------------


def sarif(shown: Outcome) -> dict[str, Any]:
    log = json.loads(written(write_sarif, shown, statistics=True))
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    assert set(log) == {"$schema", "version", "runs"}
    [run] = log["runs"]
    unread = any(finding.code == "AC903" for finding in shown.findings)
    assert run["invocations"] == [{"executionSuccessful": not unread}]
    rules = run["tool"]["driver"]["rules"]
    for rule in rules:
        assert re.fullmatch(r"[A-Za-z]+", rule["name"])
        assert all(rule[part]["text"] for part in ("shortDescription", "fullDescription", "help"))
        assert rule["defaultConfiguration"]["level"] in {"none", "note", "warning", "error"}
    for result in run["results"]:
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
        for location in (*result["locations"], *result.get("relatedLocations", ())):
            check_physical(location["physicalLocation"], run)
        for fix in result.get("fixes", ()):
            assert fix["artifactChanges"]
            for change in fix["artifactChanges"]:
                assert change["replacements"]
                for replacement in change["replacements"]:
                    check_region(replacement["deletedRegion"])
    return run


def check_physical(physical: dict[str, Any], run: dict[str, Any]) -> None:
    artifact = physical["artifactLocation"]
    assert re.fullmatch(r"[A-Za-z0-9\-._~:/%+@!$&'()*,;=]+", artifact["uri"])
    assert artifact.get("uriBaseId", "SRCROOT") in run["originalUriBaseIds"]
    if "region" in physical:
        check_region(physical["region"])


def check_region(region: dict[str, int]) -> None:
    assert set(region) <= {"startLine", "startColumn", "endLine", "endColumn"}
    assert all(isinstance(number, int) and number >= 1 for number in region.values())


def test_sarif_has_rules_places_and_fingerprints():
    run = sarif(outcome(finding(), finding("AC501"), finding(where={"record": 5})))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["AC101", "AC501"]
    first, _, third = run["results"]
    [location] = first["locations"]
    assert location["physicalLocation"]["region"] == {"startLine": 2}
    assert location["logicalLocations"] == [{"fullyQualifiedName": "messages[0].content", "kind": "member"}]
    assert first["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert first["partialFingerprints"] == third["partialFingerprints"]
    assert first["properties"]["tokens_lost"] == 1406
    assert run["properties"]["statistics"]["prompt_tokens"] == 2000


def test_sarif_names_files_relative_to_here_and_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("a b/ü.jsonl", "-", "http://127.0.0.1:8100", str(tmp_path.parent / "x.jsonl"), str(tmp_path / "y.jsonl"))
    run = sarif(outcome(*(finding(where={"file": name}) for name in names), files=names))
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]]
    assert uris == [
        "a%20b/%C3%BC.jsonl",
        "stdin:",
        "http://127.0.0.1:8100",
        f"file://{tmp_path.parent}/x.jsonl",
        "y.jsonl",
    ]


def test_sarif_has_columns_and_fixes_of_sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_bytes(b"x = 1\r\ny = 2  # agentcache: ignore[AC101] why\r\n")
    edit = Edit(file="agent.py", record=2, path="", start=12, end=44, content="")
    where = {"file": "agent.py", "record": 2, "path": "ask", "char": 7, "token": None, "page": None}
    told = finding("AC901", where=where, compared_to=None, fix=Fix(applicability="safe", edits=(edit,)))
    run = sarif(outcome(told, files=("agent.py",)))
    [result] = run["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 2, "startColumn": 8}
    [change] = result["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 2, "startColumn": 6, "endLine": 2, "endColumn": 38},
            "insertedContent": {"text": ""},
        }
    ]


def test_entries_of_archives_are_no_lines():
    run = sarif(outcome(finding(where={"file": "a.har", "record": 3}, compared_to=None), files=("a.har",)))
    assert "region" not in run["results"][0]["locations"][0]["physicalLocation"]
    assert Sources().line_of(finding(where={"file": "a.har"})) is None


def test_sarif_takes_findings_of_rules_that_this_version_does_not_know():
    log = json.loads(written(write_sarif, outcome(finding("AC899")), statistics=False))
    assert "ruleIndex" not in log["runs"][0]["results"][0]


# -- for systems that run checks --------------------------------------------------------------------------------------


def test_junit_has_a_suite_a_file_and_a_case_a_rule():
    told = (
        finding(),
        finding(where={"record": 9}),
        finding("AC403", verdict="legitimate"),
        finding("AC903", where={"file": "b.jsonl"}),
    )
    root = ET.fromstring(written(write_junit, outcome(*told, files=("a.jsonl", "b.jsonl", "c.jsonl"))))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "1", "1")
    assert [suite.get("name") for suite in root] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    volatile, compacted = root[0]
    assert (volatile.get("name"), volatile.get("classname")) == ("AC101 volatile-time", "a.jsonl")
    [failure] = volatile
    assert failure.text.count("a time changes") == 2 and "a.jsonl:9: " in failure.text
    assert [child.tag for child in compacted] == ["system-out"]
    assert root[1][0][0].tag == "error"
    assert list(root[2][0]) == []


def test_junit_and_github_survive_any_text():
    where = {"file": f"a{EVIL},:%.jsonl", "path": EVIL}
    told = finding(where=where, message=EVIL + "\x00\ufffe", help=EVIL)
    root = ET.fromstring(written(write_junit, outcome(told)).encode())
    assert "日本語" in root[1][0][0].get("message")
    [line] = written(write_github, outcome(told)).splitlines()
    assert re.fullmatch(r"::error file=[^,:]*%2C%3A%25\.jsonl,line=2,title=agentcache AC101 volatile-time::.*", line)
    assert not re.search(r"[\x00-\x1f\u202e\ud800-\udfff]", line)


def test_github_notices_what_is_legitimate_and_has_columns():
    where = {"file": "agent.py", "record": 3, "char": 4, "path": None, "token": None}
    text = written(write_github, outcome(finding(where=where), finding(verdict="legitimate")))
    assert text.splitlines()[0].startswith("::error file=agent.py,line=3,col=5,title=")
    assert text.splitlines()[1].startswith("::notice ")


# -- exit codes -------------------------------------------------------------------------------------------------------


class _Options:
    exit_zero = False
    diff = False


class _Choices:
    options = _Options()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ((), 0),
        ((finding(),), 1),
        ((finding(severity="info"),), 1),
        ((finding(verdict="unavoidable"),), 1),
        ((finding("AC403", verdict="legitimate"),), 0),
        ((finding("AC403", verdict="legitimate"), finding()), 1),
        ((finding("AC903"),), 2),
    ],
)
def test_exit_codes(told, expected):
    assert exit_code(_Choices(), outcome(*told), failed=False) == expected
    assert exit_code(_Choices(), outcome(*told), failed=True) == 2


@pytest.mark.parametrize(("fail_on", "failures"), [("info", 3), ("warning", 2), ("error", 1)])
def test_what_weighs_less_than_is_asked_for_is_told_and_fails_nothing(fail_on, failures):
    told = [finding("AC501", severity="info"), finding("AC102", severity="warning"), finding("AC101", severity="error")]
    for count in range(4):
        shown = outcome(*told[:count], fail_on=fail_on)
        assert exit_code(_Choices(), shown, failed=False) == (1 if count > 3 - failures else 0)
        root = ET.fromstring(written(write_junit, shown))
        assert int(root.get("failures")) == max(0, count - (3 - failures))
        assert all(each.code in ET.tostring(root, "unicode") for each in told[:count])


# -- the manual -------------------------------------------------------------------------------------------------------


def test_the_page_of_the_documentation_is_the_rules():
    page = markdown_page(RULES)
    made = (ROOT / "docs" / "lint-rules.md").read_text("utf-8")
    assert made == page, "agentcache lint rule --output-format markdown > docs/lint-rules.md"


def test_the_page_links_every_rule_to_its_section():
    page = markdown_page(RULES)
    for rule in RULES:
        anchor = f"{rule.code} {rule.name}".lower().replace(" ", "-")
        assert f"[{rule.code}](#{anchor})" in page
        assert f"\n### {rule.code} {rule.name}\n" in page


def test_rules_as_json(capsys):
    assert main(["rule", "--output-format", "json"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert [rule["code"] for rule in every] == [rule.code for rule in RULES]
    assert all(rule[part] for rule in every for part in ("name", "what", "why", "bad", "good", "fix_safety"))
    assert main(["rule", "ac501", "--output-format", "json"]) == 0
    assert [rule["code"] for rule in json.loads(capsys.readouterr().out)] == ["AC501"]


def test_optional_rules_are_marked(capsys):
    assert main(["rule"]) == 0
    marked = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith("(optional)")}
    assert marked == {rule.code for rule in RULES if rule.optional}


# -- files ------------------------------------------------------------------------------------------------------------


def test_the_output_file_is_written_whole_or_not_at_all(tmp_path, capsys, tokenizer_folder):
    target = tmp_path / "report.sarif"
    target.write_text("old", "utf-8")
    target.chmod(0o640)
    source = tmp_path / "agent.py"
    source.write_text("x = 1  # agentcache: ignore[AC101] nothing here\n", "utf-8")
    flags = ("--output-format", "sarif", "--output-file", str(target))
    assert main([str(source), *flags]) == 1
    assert capsys.readouterr().out == ""
    assert json.loads(target.read_text("utf-8"))["version"] == "2.1.0"
    assert target.stat().st_mode & 0o777 == 0o640
    target.write_text("old", "utf-8")
    assert main([str(tmp_path / "a.jsonl"), str(source), "--tokenizer", "/nowhere", *flags]) == 2
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("report")] == ["report.sarif"]


def test_an_output_file_can_be_a_device(tmp_path):
    source = tmp_path / "agent.py"
    source.write_text("x = 1\n", "utf-8")
    assert main([str(source), "--output-file", os.devnull]) == 0


def test_a_prompt_file_is_an_editors_line_and_column(tmp_path, tokenizer_folder, capsys, monkeypatch):
    """A date in its third line; nobody can keep line 1 the same, for nothing is wrong with it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    head = "You are a careful reviewer.\n\nIt is now 2026-03-04 10:31:47. Be brief.\n"
    (tmp_path / "prompts" / "system.md").write_text(head + INSTRUCTIONS * 4)

    def shown(style):
        capsys.readouterr()
        flags = ("--isolated", "--tokenizer", str(tokenizer_folder), "--output-format", style)
        assert main(["prompts/system.md", *flags]) == 1
        return capsys.readouterr().out

    (finding,) = json.loads(shown("json"))
    where = finding["location"]
    assert (where["record"], where["path"], where["char"]) == (3, None, 10)
    assert "--> prompts/system.md:3:11  (token " in shown("full") and "line 1" not in shown("full")
    assert "file=prompts/system.md,line=3,col=11," in shown("github")
    (result,) = json.loads(shown("sarif"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 3, "startColumn": 11}
    assert "in 1 request of 1 session:" in shown("concise") or "in 1 request of 1 session." in shown("concise")
