"""``agentcache lint`` as a command: exit codes, formats, flags."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from lint_commands import CLEAN, CLOCK, command, run_main
from lint_workloads import INSTRUCTIONS, STAMPS, chat, write_jsonl
from rich.console import Console

from agentcache.lint.command.progress import Meter
from agentcache.lint.finding import Finding
from agentcache.lint.outputs import rule_pages
from agentcache.lint.rules import RULES, select_rules


@pytest.mark.parametrize(("name", "code"), [("clean", 0), ("empty", 0), ("clock", 1), ("broken", 2)])
def test_exit_codes_of_the_command(capsys, files, tokenizer_folder, name, code):
    assert run_main(capsys, files[name], "--tokenizer", str(tokenizer_folder))[0] == code


def test_a_broken_line_is_named_with_its_file(files, tokenizer_folder):
    run = command(files["broken"], "--tokenizer", str(tokenizer_folder), "--output-format", "concise")
    assert run.returncode == 2
    assert f"{files['broken']}:3: AC903" in run.stdout.decode()
    assert b"Traceback" not in run.stdout + run.stderr


def test_an_item_of_a_list_that_is_broken_is_named_by_its_number(capsys, tmp_path, tokenizer_folder):
    file = tmp_path / "list.json"
    file.write_text(f"[{json.dumps(CLEAN[0])},\n{{'messages'}}]", "utf-8")
    code, out, _ = run_main(capsys, str(file), "--tokenizer", str(tokenizer_folder), "--output-format", "concise")
    assert code == 2
    assert "item [1] of the list (line 2) cannot be read: not valid JSON: " in out


def test_standard_input(tokenizer_folder):
    run = command(
        "-",
        "--tokenizer",
        str(tokenizer_folder),
        "--output-format",
        "json",
        stdin="".join(json.dumps(body) + "\n" for body in CLOCK).encode(),
    )
    assert run.returncode == 1
    [finding] = json.loads(run.stdout)
    assert (finding["location"]["file"], finding["location"]["record"]) == ("-", 2)


SOURCE = b"""import datetime

def ask(client, question):
    system = f"It is {datetime.datetime.now()}. Be careful."
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return client.chat.completions.create(model="m", messages=messages)
"""


@pytest.mark.parametrize("arguments", [("-",), ()])
def test_standard_input_can_have_a_name(tmp_path, arguments):
    """There may be another file of that name."""
    (tmp_path / "agent.py").write_text("x = 1\n", "utf-8")
    name = str(tmp_path / "agent.py")
    run = command(*arguments, "--stdin-filename", name, "--output-format", "concise", stdin=SOURCE)
    assert run.returncode == 1
    assert run.stdout.decode().startswith(f"{name}:4:23: AC101 ")
    run = command("-", "--stdin-filename", name, "--diff", stdin=SOURCE)
    assert (run.returncode, run.stdout) == (0, b"")
    excluded = ("--force-exclude", "--exclude", "agent.py")
    assert command("-", "--stdin-filename", name, *excluded, stdin=SOURCE).returncode == 0
    assert (tmp_path / "agent.py").read_text("utf-8") == "x = 1\n"


@pytest.mark.parametrize("arguments", [("a.py",), ("-", "a.py"), ("-", "--fix")])
def test_a_name_of_standard_input_goes_with_nothing_else(capsys, arguments):
    code, out, err = run_main(capsys, *arguments, "--stdin-filename", "b.py")
    assert (code, out, len(err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize("flags", [(), ("--output-file",), ("--write-baseline",), ("--baseline",), ("--template",)])
def test_a_name_that_is_too_long_is_an_error_in_one_line(capsys, files, tokenizer_folder, flags):
    long = "x" * 5000
    arguments = (files["clock"], *flags, long) if flags else (long,)
    code, _, err = run_main(capsys, *arguments, "--tokenizer", str(tokenizer_folder))
    assert (code, len(err.splitlines()), "File name too long" in err) == (2, 1, True)


def test_what_holds_no_requests_is_said(capsys, files, tokenizer_folder):
    code, out, err = run_main(capsys, files["empty"], "--tokenizer", str(tokenizer_folder))
    assert (code, out, err) == (
        0,
        "No findings in 0 requests.\n",
        f"{files['empty']} holds no requests\n",
    )
    run = command("-", "--tokenizer", str(tokenizer_folder), stdin=b"\n")
    assert (run.returncode, run.stderr) == (0, b"- holds no requests\n")
    assert command("-", "-q", "--tokenizer", str(tokenizer_folder)).stderr == b""


def test_linting_imports_neither_torch_nor_transformers(files, tokenizer_folder):
    program = (
        "import sys\nfrom agentcache.cli import main\n"
        f"code = main(['lint', {files['clock']!r}, '--tokenizer', {str(tokenizer_folder)!r}])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'fastapi', 'safetensors'} & set(sys.modules)\n"
        "assert code == 1 and not heavy, (code, heavy)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "no files"),
        (("",), "got an empty name, expected names of files or folders"),
        (("x.jsonl", "--page-size", "0"), "got 0, expected a whole number from 1 to 1024"),
        (("x.jsonl", "--page-size", "many"), "got 'many', expected a whole number"),
        (("x.jsonl", "--output-format", "xml"), "invalid choice"),
        (("x.jsonl", "--select", "ZZ9"), "got 'ZZ9'"),
        (("x.jsonl", "--ignore", "AC777"), "got 'AC777'"),
        (("x.jsonl", "--unheard-of",), "unrecognized"),
        ((__file__, "--config", "/nowhere/at/all.toml"), "--config /nowhere/at/all.toml: no such file"),
        ((__file__, "--config", "a.toml", "--isolated"), "not allowed with"),
        ((__file__, "--output-file", "/nowhere/at/all"), "there is no folder /nowhere/at"),
        ((__file__, "--per-file-ignores", "AC1"), "expected PATTERN:CODES"),
        ((__file__, "--per-file-ignores", "*.py:AC777"), "got 'AC777'"),
        ((__file__, "--baseline", "/nowhere/at/all.json"), "--write-baseline"),
        (("rule", "AC999"), "got 'AC999'"),
    ],
)  # fmt: skip
def test_a_bad_command_line_is_2_and_says_what_was_expected(capsys, arguments, word):
    code, _, err = run_main(capsys, *arguments)
    assert code == 2
    assert word in err


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("--page-sise", "8"), "error: unrecognized arguments: --page-sise; did you mean --page-size?"),
        (("--fixx", "--quite=1"), "error: unrecognized arguments: --fixx --quite=1; did you mean --fix and --quiet?"),
        (("--output-format", "sarf"), "did you mean sarif?"),
        (("--xyzzy",), "error: unrecognized arguments: --xyzzy"),
        (("--page-size",), "error: argument --page-size: expected one argument"),
    ],
)
def test_the_error_comes_first_with_what_was_meant(capsys, arguments, first):
    code, out, err = run_main(capsys, *arguments)
    lines = err.splitlines()
    assert (code, out, len(lines)) == (2, "", 2)
    assert lines[0].endswith(first) or lines[0].startswith(first)
    assert lines[1] == "usage: agentcache lint [FLAGS] ...; agentcache lint --help lists the flags"


@pytest.mark.parametrize("text", ["{% for", "{{ 1 }}"])
def test_a_template_that_is_none_is_named(capsys, tmp_path, files, tokenizer_folder, text):
    template = tmp_path / "bad.jinja"
    template.write_text(text, "utf-8")
    flags = (files["clean"], "--tokenizer", str(tokenizer_folder), "--template", str(template))
    code, _, err = run_main(capsys, *flags)
    assert (code, len(err.splitlines()), err.startswith(f"error: --template {template}: ")) == (2, 1, True)


@pytest.mark.parametrize("name", ["missing.jsonl", "page.jinja", "agent.py"])
def test_what_cannot_be_read_is_2_and_the_rest_is_linted(capsys, tmp_path, files, tokenizer_folder, name):
    unreadable = str(tmp_path / name)
    code, out, err = run_main(
        capsys, unreadable, files["clock"], "--tokenizer", str(tokenizer_folder), "--output-format", "json"
    )
    assert code == 2
    assert [finding["code"] for finding in json.loads(out)] == ["AC101"]
    assert err.startswith(f"error: {unreadable}: ")


@pytest.mark.parametrize("text", ["{% for", "{{ messages[0].nothing.at.all.x }}"])
def test_a_template_that_does_not_render_is_2(capsys, tmp_path, files, tokenizer_folder, text):
    template = tmp_path / "bad.jinja"
    template.write_text(text, "utf-8")
    code, out, err = run_main(capsys, files["clean"], "--tokenizer", str(tokenizer_folder), "--template", str(template))
    assert code == 2
    assert "Traceback" not in out + err


def test_exit_zero_hides_findings_from_the_exit_code_but_not_errors(capsys, files, tokenizer_folder):
    flags = ("--tokenizer", str(tokenizer_folder), "--exit-zero")
    assert run_main(capsys, files["clock"], *flags)[0] == 0
    assert run_main(capsys, files["broken"], *flags)[0] == 2


def test_select_ignore_and_the_least_loss(lint):
    assert [f["code"] for f in lint(CLOCK, "--select", "AC1")[1]] == ["AC101"]
    assert lint(CLOCK, "--select", "AC5,AC9") == (0, [])
    assert lint(CLOCK, "--ignore", "ac101") == (0, [])
    lost = lint(CLOCK)[1][0]["tokens_lost"]
    assert lint(CLOCK, "--min-tokens-lost", str(lost))[0] == 1
    assert lint(CLOCK, "--min-tokens-lost", str(lost + 1)) == (0, [])


def test_the_longer_prefix_decides_and_unreadable_records_are_always_said():
    def codes(select: str, ignore: str) -> list[str]:
        return [rule.code for rule in select_rules(select.split(), ignore.split())]

    assert codes("", "") == [rule.code for rule in RULES if not rule.optional]
    assert codes("AC10", "AC102 AC103 AC104 AC105 AC106") == ["AC101", "AC903"]
    assert codes("AC501", "AC5") == ["AC501", "AC903"]
    assert codes("AC5", "") == ["AC501", "AC502", "AC503", "AC903"]
    assert codes("AC5", "AC501 AC903") == ["AC502", "AC503"]


def test_json_has_every_field_of_a_finding(lint):
    for finding in lint(CLOCK)[1]:
        assert Finding.model_validate(finding).model_dump(mode="json") == finding
        assert set(finding) == {
            *(
                "code",
                "name",
                "severity",
                "confidence",
                "verdict",
                "location",
                "session",
                "compared_to",
                "before",
                "after",
            ),
            *("tokens_lost", "tokens_lost_kind", "shared_by", "fix", "message", "help"),
        }
        assert set(finding["location"]) == {"file", "record", "path", "char", "token", "page"}
        assert finding["fix"] == {"applicability": "display", "edits": []}


def test_statistics_say_what_a_warm_cache_would_serve(capsys, files, tokenizer_folder):
    flags = ("--tokenizer", str(tokenizer_folder), "--statistics")
    _, out, _ = run_main(capsys, files["clock"], files["single"], *flags, "--output-format", "json")
    statistics = json.loads(out)["statistics"]
    assert (statistics["requests"], statistics["by_code"]["AC101"]) == (4, 1)
    assert [p["record"] for p in statistics["predictions"]] == [1, 2, 3, 1]
    assert sum(p["prompt_tokens"] for p in statistics["predictions"]) == statistics["prompt_tokens"]
    _, text, _ = run_main(capsys, files["clock"], *flags)
    assert "volatile-time" in text and "served by a warm cache" in text


def test_json_lines(capsys, files, tokenizer_folder):
    arguments = (files["clock"], files["broken"], "--tokenizer", str(tokenizer_folder), "--output-format", "jsonl")
    _, out, _ = run_main(capsys, *arguments)
    assert {json.loads(line)["code"] for line in out.splitlines()} >= {"AC101", "AC903"}


def test_github_commands_name_file_line_and_title(capsys, tmp_path, tokenizer_folder):
    file = write_jsonl(tmp_path / "a,b:c%.jsonl", CLOCK)
    _, out, _ = run_main(capsys, str(file), "--tokenizer", str(tokenizer_folder), "--output-format", "github")
    [line] = out.splitlines()
    assert line.startswith(f"::error file={tmp_path}/a%2Cb%3Ac%25.jsonl,line=2,title=agentcache AC101 volatile-time::")
    assert "tokens lost" in line


def test_a_file_that_cannot_be_read_is_in_the_formats_of_builds(capsys, tmp_path, files, tokenizer_folder):
    missing = str(tmp_path / "missing, too.jsonl")

    def told(style: str) -> str:
        arguments = (files["clock"], missing, "--tokenizer", str(tokenizer_folder), "--output-format", style)
        code, out, err = run_main(capsys, *arguments)
        assert (code, err) == (2, f"error: {missing}: cannot be read: No such file or directory\n")
        return out

    first, second = told("github").splitlines()
    assert first.startswith(
        f"::error file={tmp_path}/missing%2C too.jsonl,title=agentcache lint::{missing}: cannot be read"
    )
    assert "AC101" in second
    [run] = json.loads(told("sarif"))["runs"]
    [invocation] = run["invocations"]
    [unread] = invocation["toolExecutionNotifications"]
    assert invocation["executionSuccessful"] is False
    assert (unread["level"], "missing, too.jsonl: cannot be read" in unread["message"]["text"]) == ("error", True)
    root = ET.fromstring(told("junit").encode())
    assert (root.get("errors"), root.get("failures"), root.get("tests")) == ("1", "1", "2")
    assert root.find(f"testsuite[@name='{missing}']/testcase/error").get("message").startswith("cannot be read")
    assert [json.loads(line)["code"] for line in told("jsonl").splitlines()] == ["AC101"]


def test_full_output_marks_what_differs(capsys, files, tokenizer_folder):
    _, out, _ = run_main(capsys, files["clock"], "--tokenizer", str(tokenizer_folder))
    lines = out.splitlines()
    assert lines[0].startswith("error AC101 volatile-time: ")
    assert lines[1].startswith(f"  --> {files['clock']}:2  messages[0].content, character 21")
    before, after, marks = lines[2:5]
    start, end = marks.index("^"), marks.rindex("^") + 1
    assert (before[start:end], after[start:end]) == ("0:05", "1:47")
    assert "\x1b" not in out
    assert "prompt tokens are computed again" in lines[-1]


def test_a_clean_run_says_so(capsys, files, tokenizer_folder):
    for style in ("full", "concise"):
        _, out, _ = run_main(capsys, files["clean"], "--tokenizer", str(tokenizer_folder), "--output-format", style)
        assert out == "No findings in 3 requests of 1 session.\n"


def test_a_prompt_cannot_command_the_terminal(tokenizer_folder, tmp_path, capsys):
    evil = chat(lambda turn: f"\x1b]0;owned\x07 [bold]It is {STAMPS['second'][turn]}. \x1b[2J " + INSTRUCTIONS)
    file = write_jsonl(tmp_path / "evil.jsonl", evil)
    _, out, _ = run_main(capsys, str(file), "--tokenizer", str(tokenizer_folder))
    assert "\x1b" not in out and "\\u001b" in out and "[bold]" in out


def test_colours_are_for_terminals():
    screen = io.StringIO()
    rule_pages.write_rule(RULES[0], Console(file=screen, force_terminal=True, color_system="standard"))
    assert "\x1b[" in screen.getvalue()


@pytest.mark.parametrize("folder", [True, False])
def test_nothing_to_lint_is_said(capsys, tmp_path, folder):
    code, out, err = run_main(capsys, str(tmp_path if folder else tmp_path / "missing.jsonl"))
    assert (code, out) == (0 if folder else 2, "Nothing was linted.\n")
    assert ("cannot be read" in err) is not folder


def test_sources_need_no_tokenizer(capsys, tmp_path):
    source = tmp_path / "agent.py"
    source.write_text("x = 1\n", "utf-8")
    code, out, _ = run_main(capsys, str(source), "--tokenizer", "/nowhere/at/all")
    assert (code, out) == (0, "No findings in 1 source file.\n")


def test_a_tokenizer_that_is_none_is_an_error(capsys, files):
    code, _, err = run_main(capsys, files["clean"], "--tokenizer", "/nowhere/at/all")
    assert code == 2
    assert "--tokenizer /nowhere/at/all" in err


def test_flags_may_stand_between_files(capsys, files, tokenizer_folder):
    flags = ("--tokenizer", str(tokenizer_folder), "--output-format", "json")
    _, out, _ = run_main(capsys, files["clean"], *flags, files["clock"], "--statistics", files["single"])
    assert json.loads(out)["statistics"]["files"] == 3


def test_quiet_leaves_findings_and_errors(capsys, files, tokenizer_folder):
    flags = ("--tokenizer", str(tokenizer_folder), "--quiet", "--output-format", "concise")
    assert run_main(capsys, files["clean"], *flags) == (0, "", "")
    code, out, err = run_main(capsys, files["clock"], "/nowhere.jsonl", *flags)
    assert (code, len(out.splitlines())) == (2, 1)
    assert err == "error: /nowhere.jsonl: cannot be read: No such file or directory\n"


def test_several_page_sizes_are_compared(capsys, files, tokenizer_folder):
    flags = ("--tokenizer", str(tokenizer_folder), "--page-size", "16,64")
    _, out, _ = run_main(capsys, files["clean"], *flags)
    rows = [line.split() for line in out.splitlines()[-2:]]
    assert [row[0] for row in rows] == ["16", "64"]
    _, out, _ = run_main(capsys, files["clean"], *flags, "--statistics", "--output-format", "json")
    sizes = json.loads(out)["statistics"]["page_sizes"]
    assert [f"{each['cached_tokens']:,}" for each in sizes] == [row[1] for row in rows]
    assert all(each["whole_page_tokens"] % each["page_size"] == 0 for each in sizes)
    assert all(each["whole_page_tokens"] <= each["cached_tokens"] for each in sizes)


def test_progress_is_for_terminals_unless_it_is_asked_for(capsys, files, tokenizer_folder):
    flags = ("--tokenizer", str(tokenizer_folder))
    assert run_main(capsys, files["clock"], *flags)[2] == ""
    assert run_main(capsys, files["clock"], *flags, "--no-progress")[2] == ""


def test_how_far_a_long_run_is(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    screen, log = io.StringIO(), io.StringIO()
    shown = Meter(Console(file=screen, force_terminal=True, width=100), None, 4000)
    lines = Meter(Console(file=log), True, None)
    hidden = Meter(Console(file=log), False, 4000)
    for meter in (shown, lines, hidden):
        with meter.reading(io.BytesIO(b"x" * 4000), "a\x1b.jsonl") as stream:
            while stream.read1(1000):
                now[0] += 6.0
                meter.request()
        meter.close()
    assert "a?.jsonl" in screen.getvalue() and "requests" in screen.getvalue()
    first = log.getvalue().splitlines()[0]
    assert re.fullmatch(r"[\d,]+ bytes read, \d requests, \d+/s", first)
    assert len(log.getvalue().splitlines()) <= 3


# -- hooks ------------------------------------------------------------------------------------------------------------

HOOKS = yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text("utf-8"))


def test_hooks_are_as_pre_commit_wants_them():
    assert [hook["id"] for hook in HOOKS] == ["agentcache-lint", "agentcache-lint-template"]
    for hook in HOOKS:
        assert {"id", "name", "entry", "language", "files"} <= set(hook)
        assert (hook["language"], hook["require_serial"]) == ("python", True)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_hooks_run_on_changed_files(monkeypatch, capsys, tmp_path, tokenizer_folder, hook):
    """Entry, then the names of changed files that match, in the folder of the repository."""
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(
        f'[tool.agentcache.lint]\ntokenizer = "{tokenizer_folder}"\nexclude = ["gen/"]\n', "utf-8"
    )
    Path("gen").mkdir()
    write_jsonl(Path("gen/clock.jsonl"), CLOCK)
    Path("rows.jsonl").write_text('{"x": 1}\n', "utf-8")
    Path("agent.py").write_text("x = 1\n", "utf-8")
    plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    Path("chat.jinja").write_text(plain, "utf-8")
    changed = ["gen/clock.jsonl", "rows.jsonl", "agent.py", "chat.jinja", "README.md"]
    entry = shlex.split(hook["entry"])
    assert entry[:2] == ["agentcache", "lint"]
    names = [name for name in changed if re.search(hook["files"], name)]
    assert run_main(capsys, *entry[2:], *names)[0] == 0
    Path("chat.jinja").write_text("{{ strftime_now('%H:%M') }}" + plain, "utf-8")
    assert run_main(capsys, *entry[2:], *names)[0] == 1


# -- the manual -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_explains_itself(capsys, rule):
    code, out, _ = run_main(capsys, "rule", rule.code.lower())
    assert code == 0
    for heading in (rule.code, rule.name, "What it reports", "Why it matters", "Bad", "Good", "Fix"):
        assert heading in out


def test_a_group_of_rules_is_listed(capsys):
    codes = [rule.code for rule in RULES if rule.code.startswith("AC1")]
    code, out, _ = run_main(capsys, "rule", "ac1")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, codes)
    assert [each["code"] for each in json.loads(run_main(capsys, "rule", "AC1", "--output-format", "json")[1])] == codes
    assert "## AC1: " in run_main(capsys, "rule", "AC1", "--output-format", "markdown")[1]
    assert run_main(capsys, "rule", "")[0] == 2


def test_the_list_of_rules(capsys):
    code, out, _ = run_main(capsys, "rule")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [rule.code for rule in RULES]
