"""The baseline: what is known is not reported, what is new is, and what is gone is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lint_workloads import INSTRUCTIONS, chat, write_jsonl

from agentcache.lint.cli import main
from agentcache.lint.finding import Finding, Location
from agentcache.lint.fingerprints import fingerprint

AGENT = """import datetime


def ask(client, question):
    system = f"It is {datetime.datetime.now()}. Be careful."
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return client.chat.completions.create(model="m", messages=messages)
"""


def clock(day: int, *, task: str = "Fix the parser."):
    return chat(lambda turn: f"It is 2026-11-{day} 10:3{turn}:05. {INSTRUCTIONS}", task=task)


@pytest.fixture
def lint_here(tmp_path, monkeypatch, capsys, tokenizer_folder):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*arguments, "--tokenizer", str(tokenizer_folder)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def codes(out: str) -> list[str]:
    return [finding["code"] for finding in json.loads(out)]


def test_known_findings_are_not_reported_another_day_on_another_line(lint_here, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", clock(20))
    Path("agent.py").write_text(AGENT, "utf-8")
    code, out, err = lint_here("a.jsonl", "agent.py", "--write-baseline", "known.json")
    assert (code, out) == (0, "")
    assert err == "2 findings written to known.json\n"
    write_jsonl(tmp_path / "a.jsonl", [*chat(lambda turn: "Say hello.", task="Another."), *clock(27)])
    Path("agent.py").write_text("# moved down\n\n" + AGENT, "utf-8")
    code, out, _ = lint_here("a.jsonl", "agent.py", "--baseline", "known.json", "--select", "AC1")
    assert (code, "(2 known from the baseline)" in out) == (0, True)


def test_new_findings_are_reported(lint_here, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", clock(20))
    lint_here("a.jsonl", "--write-baseline", "known.json")
    write_jsonl(tmp_path / "b.jsonl", clock(20))
    flags = ("--baseline", "known.json", "--output-format", "json")
    assert lint_here("a.jsonl", *flags)[:2] == (0, "[]\n")
    code, out, _ = lint_here("b.jsonl", *flags)
    assert (code, codes(out)) == (1, ["AC101"])
    twice = AGENT + AGENT.replace("ask", "ask_again")
    Path("agent.py").write_text(AGENT, "utf-8")
    lint_here("agent.py", "--write-baseline", "known.json")
    Path("agent.py").write_text(twice, "utf-8")
    code, out, _ = lint_here("agent.py", *flags)
    assert (code, [f["location"]["path"] for f in json.loads(out)]) == (1, ["ask_again"])


def test_what_is_gone_is_said_of_linted_files_only(lint_here, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        write_jsonl(tmp_path / name, clock(20, task=name))
        Path(f"{name}.py").write_text(AGENT, "utf-8")
    lint_here("a.jsonl.py", "b.jsonl.py", "--write-baseline", "known.json")
    for name in ("a.jsonl", "b.jsonl"):
        Path(f"{name}.py").write_text("", "utf-8")
    _, out, _ = lint_here("a.jsonl.py", "--baseline", "known.json", "--statistics")
    assert "(1 gone from it)" in out
    assert "gone from the baseline: AC101 in a.jsonl.py ask\n" in out
    assert "b.jsonl.py" not in out


@pytest.mark.parametrize(
    "flags",
    [("--ignore", "AC101"), ("--select", "AC2"), ("--min-tokens-lost", "100000"), ("--per-file-ignores", "*:AC1")],
)
def test_what_was_not_looked_for_is_not_gone(lint_here, tmp_path, flags):
    write_jsonl(tmp_path / "a.jsonl", clock(20))
    lint_here("a.jsonl", "--write-baseline", "known.json")
    assert "gone" not in lint_here("a.jsonl", "--baseline", "known.json", *flags)[1]
    write_jsonl(tmp_path / "a.jsonl", clock(20)[:1])
    assert ("1 gone" in lint_here("a.jsonl", "--baseline", "known.json", *flags)[1]) is (
        flags[0] not in {"--ignore", "--select"}
    )


def test_what_deleted_files_had_is_gone_where_they_were_looked_for(lint_here):
    Path("sub").mkdir()
    for name in ("sub/a.py", "sub/b.py", "c.py"):
        Path(name).write_text(AGENT, "utf-8")
    lint_here("sub", "c.py", "--write-baseline", "known.json")
    Path("sub/a.py").unlink()
    flags = ("--baseline", "known.json")
    assert "gone" not in lint_here("c.py", *flags)[1]
    assert "(1 known from the baseline, 1 gone from it)" in lint_here("sub", *flags)[1]
    Path("pyproject.toml").write_text('[tool.agentcache.lint]\ninclude = ["."]\nexclude = ["c.py"]\n', "utf-8")
    assert "(1 known from the baseline, 2 gone from it)" in lint_here(*flags)[1]


def test_the_file_is_sorted_and_the_same_whatever_the_order(lint_here, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", clock(20))
    for name in ("c.py", "b.py"):
        Path(name).write_text(AGENT, "utf-8")
    lint_here("a.jsonl", "b.py", "c.py", "--write-baseline", "one.json")
    lint_here("c.py", "a.jsonl", "b.py", "--write-baseline", "two.json")
    text = Path("one.json").read_text("utf-8")
    assert text == Path("two.json").read_text("utf-8")
    assert [entry["file"] for entry in json.loads(text)["findings"]] == ["a.jsonl", "b.py", "c.py"]
    assert len(text.splitlines()) == 8
    assert "2026" not in text and "careful" not in text


def test_names_in_it_are_relative_to_its_folder(lint_here, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    Path("agent.py").write_text(AGENT, "utf-8")
    lint_here("agent.py", "--write-baseline", "sub/known.json")
    monkeypatch.chdir(tmp_path / "sub")
    assert lint_here("../agent.py", "--baseline", "known.json")[0] == 0
    assert lint_here(str(tmp_path / "agent.py"), "--baseline", "known.json")[0] == 0


def test_what_cannot_be_read_never_becomes_known(lint_here):
    Path("broken.jsonl").write_text("{\n", "utf-8")
    code, out, err = lint_here("broken.jsonl", "missing.jsonl", "--write-baseline", "known.json")
    assert (code, out, Path("known.json").exists()) == (2, "", False)
    assert "error: missing.jsonl: " in err and "error: broken.jsonl:1: " in err and "known.json: not written" in err


def test_an_input_is_not_written_over(lint_here, tmp_path):
    """By whatever name."""
    Path("agent.py").write_text(AGENT, "utf-8")
    Path("link.py").symlink_to("agent.py")
    Path("pyproject.toml").write_text('[tool.agentcache.lint]\ninclude = ["agent.py"]\n', "utf-8")
    Path("notes.json").write_text("{}", "utf-8")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for flag in ("--write-baseline", "--output-file"):
        for name in ("agent.py", "link.py", str(tmp_path / "agent.py"), "pyproject.toml"):
            code, out, err = lint_here(flag, name)
            assert (code, out, len(err.splitlines())) == (2, "", 1)
            assert err.startswith(f"error: {flag} {name}: got ")
    code, _, err = lint_here("--write-baseline", "notes.json")
    assert (code, "got a file that is no baseline" in err) == (2, True)
    assert lint_here("--write-baseline", "one.json", "--output-file", "one.json")[0] == 2
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_report_in_the_folder_is_written_over(lint_here, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", clock(20))
    for _ in range(2):
        assert lint_here(".", "--output-format", "jsonl", "--output-file", "report.jsonl")[0] == 1
        assert json.loads(Path("report.jsonl").read_text("utf-8"))["code"] == "AC101"
    assert lint_here(".", "--output-file", "a.jsonl")[0] == 2


def test_a_baseline_is_written_over(lint_here):
    Path("agent.py").write_text(AGENT, "utf-8")
    Path("empty.json").touch()
    for name in ("empty.json", "known.json", "known.json"):
        assert lint_here("agent.py", "--write-baseline", name)[0] == 0
        assert len(json.loads(Path(name).read_text("utf-8"))["findings"]) == 1
    assert lint_here("agent.py", "--baseline", "known.json", "--write-baseline", "known.json")[0] == 0
    assert sorted(path.name for path in Path().iterdir()) == ["agent.py", "empty.json", "known.json"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("", "got no baseline of agentcache lint"),
        ("[]", "got no baseline of agentcache lint"),
        ('{"agentcache_lint_baseline": 2, "findings": []}', "agentcache_lint_baseline: Input should be 1"),
        ('{"agentcache_lint_baseline": 1, "findings": [{"code": 1}]}', "findings.0"),
    ],
)
def test_what_is_no_baseline_is_an_error(lint_here, content, said):
    Path("agent.py").write_text("", "utf-8")
    if content is not None:
        Path("known.json").write_text(content, "utf-8")
    code, out, err = lint_here("agent.py", "--baseline", "known.json")
    assert (code, out) == (2, "")
    assert said in err and err.startswith("error: --baseline known.json: ")


def test_it_cannot_be_written_into_nowhere(lint_here):
    Path("agent.py").write_text("", "utf-8")
    code, _, err = lint_here("agent.py", "--write-baseline", "no/where.json")
    assert (code, "cannot be written" in err) == (2, True)


def test_the_configuration_names_the_baseline_relative_to_itself(lint_here, tmp_path, monkeypatch):
    Path("agent.py").write_text(AGENT, "utf-8")
    lint_here("agent.py", "--write-baseline", "known.json")
    Path("pyproject.toml").write_text('[tool.agentcache.lint]\nbaseline = "known.json"\n', "utf-8")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert lint_here("../agent.py")[0] == 0
    assert lint_here("../agent.py", "--isolated")[0] == 1


def finding(before: str | None, after: str, path: str = "messages[0].content") -> Finding:
    where = Location(file="a.jsonl", record=2, path=path)
    return Finding(code="AC101", name="n", severity="error", location=where, before=before, after=after, message="m")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("It is 10:30:05. Be kind.", "It is 10:31:47. Be kind."), ("It is 9:00:00. Be kind.", "It is 9:01:10. Be kind."), True),
        (("Day 2026-11-29 10:30", "Day 2026-11-29 10:31"), ("Day 2026-12-01 10:30", "Day 2026-12-01 10:31"), True),
        (("for Alice now", "for Andrew now"), ("for Bob now", "for Carol now"), True),
        (("for Alice now", "for Bob now"), ("to Alice now", "to Bob now"), False),
        ((None, "run 3f2a99bc in /tmp/x81"), (None, "run 77aa01cd in /tmp/x82"), True),
        ((None, "run a"), (None, "run b"), False),
    ],
)  # fmt: skip
def test_a_fingerprint_is_of_what_stays(one, other, same):
    prints = [fingerprint(finding(*pair), Path.cwd(), None) for pair in (one, other)]
    assert (prints[0] == prints[1]) is same


def test_a_fingerprint_knows_the_first_message_and_not_the_number_of_later_ones():
    paths = ["messages[0].content", "messages[4].content", "messages[6].content"]
    first, fourth, sixth = (fingerprint(finding("a 1", "a 2", path), Path.cwd(), None) for path in paths)
    assert first != fourth == sixth
