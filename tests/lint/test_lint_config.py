"""``[tool.agentcache.lint]``: where it is found, what it may say, and what is said when it is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from lint_workloads import INSTRUCTIONS, STAMPS, chat, write_jsonl

from agentcache.errors import SettingsError
from agentcache.lint.cli import main
from agentcache.lint.command.choices import choose
from agentcache.lint.command.files import inputs
from agentcache.lint.command.options import parser
from agentcache.lint.config import find_config, tomllib
from agentcache.lint.globs import matcher

CLOCK = chat(lambda turn: f"It is {STAMPS['second'][turn]}. {INSTRUCTIONS}")


@pytest.fixture
def project(tmp_path, monkeypatch, tokenizer_folder) -> Path:
    """An empty project in which the tests run; ``tok`` is its tokenizer."""
    (tmp_path / "tok").symlink_to(tokenizer_folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(project: Path, text: str, name: str = "pyproject.toml") -> Path:
    table = "tool.agentcache.lint" if name == "pyproject.toml" else "lint"
    file = project / name
    file.write_text(f"[project]\nname = 'agents'\n\n[{table}]\n{text}\n", "utf-8")
    return file


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def chosen(*arguments: str):
    return choose(parser().parse_args(list(arguments)))


# -- where ------------------------------------------------------------------------------------------------------------


def test_the_nearest_file_above_with_a_table_counts(project):
    configure(project, "page-size = 32")
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    (project / "a" / "pyproject.toml").write_text("[project]\nname = 'no table here'\n", "utf-8")
    assert find_config(inner).path == project / "pyproject.toml"
    configure(project / "a", "page-size = 64")
    assert find_config(inner).config.page_size == 64


def test_agentcache_toml_comes_before_pyproject_of_the_same_folder(project):
    configure(project, "page-size = 32")
    configure(project, "page-size = 64", "agentcache.toml")
    assert chosen().page_sizes == (64,)


def test_isolated_and_config_choose_the_file(project):
    configure(project, "page-size = 32")
    other = configure(project / "tok" / "..", "page-size = 8", "other.toml")
    assert chosen("--isolated").page_sizes == (16,)
    assert chosen("--config", str(other)).page_sizes == (8,)


def test_a_named_file_without_a_table_is_an_error(project):
    (project / "empty.toml").write_text("", "utf-8")
    with pytest.raises(SettingsError, match=r"got no table \[lint\]"):
        chosen("--config", "empty.toml")


# -- what -------------------------------------------------------------------------------------------------------------


def test_the_command_line_wins(project):
    configure(
        project,
        'select = ["AC1"]\nignore = ["AC101"]\nextend-select = ["AC503"]\npage-size = [32, 64]\nmin-tokens-lost = 9\n'
        'output-format = "json"\n[tool.agentcache.lint.per-file-ignores]\n"a.jsonl" = ["AC102"]',
    )
    plain = chosen()
    assert plain.codes == {"AC102", "AC103", "AC104", "AC105", "AC106", "AC503", "AC903"}
    assert (plain.page_sizes, plain.min_tokens_lost, plain.output_format) == ((32, 64), 9, "json")
    assert plain.per_file_ignores == (("a.jsonl", ("AC102",)),)
    assert chosen("--select", "AC101").codes == {"AC101", "AC903"}
    assert chosen("--ignore", "AC102,AC106").codes == {"AC103", "AC104", "AC105", "AC503", "AC903"}
    assert "AC701" in chosen("--extend-select", "AC701").codes
    given = chosen(
        "--page-size", "8", "--min-tokens-lost", "1", "--output-format", "full", "--per-file-ignores", "b:AC1"
    )
    assert (given.page_sizes, given.min_tokens_lost, given.output_format) == ((8,), 1, "full")
    assert given.per_file_ignores == (("b", ("AC1",)),)


def test_the_tokenizer_is_that_of_the_configuration_then_of_the_server_then_smollm2(project):
    assert chosen().tokenizer == "smollm2"
    (project / "agentcache.toml").write_text('[serve]\nmodel = "some/model"\n', "utf-8")
    assert chosen().tokenizer == "some/model"
    assert chosen("--isolated").tokenizer == "smollm2"
    (project / "agentcache.toml").write_text('[serve]\nmodel = "tok"\n', "utf-8")
    (project / "sub").mkdir()
    os.chdir("sub")
    assert Path(chosen().tokenizer).samefile(project / "tok")
    configure(project, 'tokenizer = "tok"')
    assert Path(chosen().tokenizer) == project / "tok"
    assert chosen("--tokenizer", "other").tokenizer == "other"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('selct = ["AC1"]', "selct: got an unknown key, expected one of select, extend-select, "),
        ('selct = ["AC1"]', "did you mean 'select'?"),
        ("page_size = 16", "did you mean 'page-size'?"),
        ('select = "AC1"', "select: got 'AC1', expected a list of codes"),
        ("select = [1]", "select: got [1], expected a list of codes"),
        ('page-size = "many"', "page-size: got 'many', expected a whole number from 1 to 1024, or a list of them"),
        ("page-size = [16, 0]", "page-size: got [16, 0], expected"),
        ("page-size = true", "page-size: got true, expected"),
        ("min-tokens-lost = -1", "min-tokens-lost: got -1, expected a whole number from 0"),
        ('output-format = "xml"', "output-format: got 'xml', expected one of full, concise, json"),
        ('per-file-ignores = {"a" = "AC1"}', "per-file-ignores: got {'a': 'AC1'}, expected a table"),
        ('suppress = [{code = "AC101"}]', "suppress[0].reason: got nothing, expected why"),
        ('suppress = [{code = "AC101", reason = " "}]', "suppress[0].reason: got ' ', expected why"),
        ('suppress = [{code = "AC101", reson = "x", reason = "y"}]', "did you mean 'reason'?"),
        (
            'suppress = {code = "AC101", reason = "x"}',
            "suppress: got {'code': 'AC101', 'reason': 'x'}, expected a list",
        ),
        ("page-size = ", "not valid TOML"),
    ],
)
def test_a_wrong_configuration_names_file_key_got_and_expected(project, capsys, text, said):
    configure(project, text)
    code, _, err = run(capsys, "x.jsonl")
    assert code == 2
    assert said in err
    assert all(line.startswith(f"error: {project / 'pyproject.toml'}: ") for line in err.splitlines())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pyproject.toml", "[tool.agentcache.lnt]\nselect = ['AC1']", "[tool.agentcache.lnt]: got a table that nothing"),
        ("pyproject.toml", "[tool.agentcache.linter]", "[tool.agentcache.linter]: got a table that nothing reads, expected"),
        ("pyproject.toml", "[tool.agentcache]\nselect = []", "in [tool.agentcache], expected it in [tool.agentcache.lint]"),
        ("pyproject.toml", "[tool.agentcache]\nbaselines = 1\nlint = {}", "baselines: got it in [tool.agentcache], expected"),
        ("pyproject.toml", "[[tool.agentcache.suppress]]", "suppress: got it in [tool.agentcache], expected it in"),
        ("agentcache.toml", "[per-file-ignores]\nx = ['AC1']", "per-file-ignores: got it in no table, expected it in [lint]"),
        ("pyproject.toml", "[tool.agent-cache.lint]", "[tool.agent-cache.lint]: got a table that nothing reads, expected"),
        ("agentcache.toml", "[lnt]\nselect = ['AC1']", "[lnt]: got a table that nothing reads, expected [lint]"),
        ("agentcache.toml", "[Lint]", "[Lint]: got a table that nothing reads, expected [lint]"),
        ("agentcache.toml", "page_size = 16", "page_size: got it in no table, expected it in [lint]"),
        ("agentcache.toml", "[tool.agentcache.lnt]", "expected [tool.agentcache.lint]"),
    ],
)  # fmt: skip
def test_a_table_that_is_misspelt_is_not_passed_over(project, capsys, name, text, said):
    (project / name).write_text(text, "utf-8")
    code, _, err = run(capsys, "x.jsonl")
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith(f"error: {project / name}: ") and said in err
    assert run(capsys, "x.jsonl", "--config", name)[0] == 2
    assert "no such file" in run(capsys, "x.jsonl", "--isolated")[2].lower()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[tool.ruff.lint]\nselect = ['E']\n[tool.agentcache]\n[tool.black]"),
        ("agentcache.toml", "[templates]\n[serve]\nmodel = 'smollm2'\n[store]\nx = 1\n[tool.agentcache.serve]"),
    ],
)
def test_tables_of_others_are_left_alone(project, name, text):
    (project / name).write_text(text, "utf-8")
    assert chosen().config is None


def test_a_table_that_is_none_is_an_error(project, capsys):
    (project / "pyproject.toml").write_text("[tool.agentcache]\nlint = 4\n", "utf-8")
    code, _, err = run(capsys, "x.jsonl")
    assert (code, "got 4, expected a table" in err) == (2, True)


def test_unknown_codes_of_the_configuration_are_findings_at_their_line(project, capsys):
    write_jsonl(project / "clean.jsonl", chat(lambda turn: INSTRUCTIONS))
    configure(project, 'tokenizer = "tok"\nselect = ["AC"]\nignore = ["AC110"]\noutput-format = "json"')
    code, out, _ = run(capsys, "clean.jsonl")
    [finding] = json.loads(out)
    assert code == 1
    assert (finding["code"], finding["location"]["file"], finding["location"]["record"]) == (
        "AC902",
        "pyproject.toml",
        7,
    )
    assert "got 'AC110', expected the beginning of a rule's code; did you mean AC1" in finding["message"]


def test_what_fails_can_be_configured(project, capsys):
    write_jsonl(project / "clock.jsonl", CLOCK)
    configure(project, 'tokenizer = "tok"\nfail-on = "error"\noutput-format = "json"')
    assert chosen().fail_on == "error"
    assert run(capsys, "clock.jsonl")[0] == 1  # an error
    two = chat(lambda turn: INSTRUCTIONS)
    write_jsonl(project / "used.jsonl", [{**body, "agentcache_lint": {"ignore": {"AC102": "why"}}} for body in two])
    code, out, _ = run(capsys, "used.jsonl")
    assert (code, [(each["code"], each["severity"]) for each in json.loads(out)]) == (0, [("AC901", "warning")])
    assert run(capsys, "used.jsonl", "--fail-on", "warning")[0] == 1
    assert run(capsys, "used.jsonl", "--fail-on", "never")[0] == 2


def test_show_settings_is_toml_with_origins(project, capsys):
    configure(project, 'ignore = ["AC5"]\npage-size = 32')
    code, out, _ = run(capsys, "--show-settings", "--min-tokens-lost", "5")
    table = tomllib.loads(out)["tool"]["agentcache"]["lint"]
    assert code == 0
    assert (table["ignore"], table["page-size"], table["min-tokens-lost"]) == (["AC5"], 32, 5)
    assert "page-size = 32  # pyproject.toml" in out and "min-tokens-lost = 5  # command line" in out
    assert 'tokenizer = "smollm2"  # default' in out and "include = []  # default" in out
    configure(project, 'include = ["src"]')
    assert 'include = ["src"]  # pyproject.toml' in run(capsys, "--show-settings")[1]


def test_the_configuration_of_the_documentation_is_one(project):
    page = (Path(__file__).parents[2] / "docs" / "linter.md").read_text("utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    (project / "pyproject.toml").write_text("\n".join(reversed(blocks)), "utf-8")
    found = chosen()
    assert found.unknown == ()
    assert found.per_file_ignores == (("tests/**", ("AC1",)),)
    assert found.config.config.suppress[0].file == "traces/*.jsonl"
    unset = {name for name, value in found.config.config if not value}
    assert unset == set()


# -- files ------------------------------------------------------------------------------------------------------------


def test_without_files_the_configuration_says_which(project, capsys, monkeypatch):
    traces = project / "traces"
    traces.mkdir()
    write_jsonl(traces / "clock.jsonl", CLOCK)
    configure(project, 'tokenizer = "tok"\ninclude = ["traces/*.jsonl"]\noutput-format = "json"')
    monkeypatch.chdir(project / "traces")
    code, out, _ = run(capsys)
    assert (code, [finding["location"]["file"] for finding in json.loads(out)]) == (1, ["clock.jsonl"])
    configure(project, 'include = ["nothing/*.jsonl"]')
    code, _, err = run(capsys)
    assert code == 2 and "includes nothing/*.jsonl, and no file is called so" in err


@pytest.mark.parametrize("pattern", ["/etc/*.jsonl", "..", "../x", "a/../../x.jsonl", "[/x"])
def test_include_cannot_leave_the_project(project, capsys, pattern):
    configure(project, f'include = ["{pattern}"]')
    code, _, err = run(capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"include: got '{pattern}', expected a pattern below {project}" in err or "no file is called so" in err


@pytest.mark.parametrize("pattern", [".", "./", "./a.py", "a.py"])
def test_include_can_be_the_folder_of_the_configuration(project, monkeypatch, pattern):
    (project / "a.py").write_text("", "utf-8")
    (project / "sub").mkdir()
    configure(project, f'include = ["{pattern}"]')
    assert [Path(each).resolve() for each in names()] == [project / "a.py"]
    monkeypatch.chdir(project / "sub")
    assert [Path(each).resolve() for each in names()] == [project / "a.py"]


def names(*arguments: str) -> list[str]:
    return [each.name for each in inputs(chosen(*arguments)).files]


def touch(project: Path, *files: str) -> None:
    for name in files:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("", "utf-8")


def test_folders_give_what_can_be_linted(project):
    touch(
        project,
        "b/z.jsonl",
        "b/a.py",
        "b/t.jinja",
        "b/notes.md",
        "b/package.json",
        "b/.venv/x.py",
        "b/node_modules/y.py",
        "b/z.jsonl.gz",
        "b/a.py.gz",
    )
    assert names("b") == ["b/a.py", "b/t.jinja", "b/z.jsonl", "b/z.jsonl.gz"]
    assert names("b/notes.md", "b", "b/a.py") == ["b/notes.md", "b/a.py", "b/t.jinja", "b/z.jsonl", "b/z.jsonl.gz"]


def test_what_git_ignores_is_left_out_of_folders(project):
    touch(project, "agent.py", "out/made.py", "kept/ö.py", "kept/.gitignore")
    (project / ".gitignore").write_text("out/\n", "utf-8")
    (project / "kept" / ".gitignore").write_text("*.jsonl\n", "utf-8")
    touch(project, "kept/a.jsonl")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    assert names(".") == ["agent.py", "kept/ö.py"]
    assert names("kept") == ["kept/ö.py"]
    assert names("out/made.py") == ["out/made.py"]


def test_why_nothing_of_a_folder_is_linted_is_said(project, capsys):
    touch(project, "out/made.py", "out/more.py", "docs/a.md", "docs/b.md", "docs/c.json", "gen/a.py", "env/.venv/a.py")
    (project / "none").mkdir()
    (project / ".gitignore").write_text("out/\n", "utf-8")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    said = {
        "out": "2 files ignored by git: name them to have them linted",
        "docs": "of folders only requests, templates and sources are taken, not 1 .json, 2 .md: name them",
        "gen": "1 file excluded",
        "env": "not looked into: .venv",
        "none": "no file of a kind that is linted",
    }
    for folder, why in said.items():
        code, out, err = run(capsys, folder, "--exclude", "gen/")
        assert (code, out, err) == (0, "Nothing was linted.\n", f"{folder}: nothing to lint ({why})\n")
        assert run(capsys, folder, "--exclude", "gen/", "--quiet")[2] == ""


def test_a_folder_that_cannot_be_read_is_an_error_and_the_rest_is_linted(project, capsys, monkeypatch):
    touch(project, "src/a.py", "src/closed/b.py", "src/open/c.py")
    scan = os.scandir

    def refusing(folder):
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    code, out, err = run(capsys, "src")
    assert (code, out) == (2, "No findings in 2 source files.\n")
    assert err == "error: src/closed: cannot be read: Permission denied\n"
    code, out, err = run(capsys, "src/closed")
    assert (code, err) == (2, "error: src/closed: cannot be read: Permission denied\n")


def test_exclude_is_about_folders_unless_it_is_forced(project):
    touch(project, "src/a.py", "src/gen/b.py", "tests/c.py")
    configure(project, 'exclude = ["gen/", "tests/**"]')
    assert names(".") == ["src/a.py"]
    assert names("src/gen/b.py", "tests") == ["src/gen/b.py"]
    assert names("--force-exclude", "src/gen/b.py", "src/a.py") == ["src/a.py"]
    assert names("--exclude", "src", ".") == ["tests/c.py"]


def test_files_of_folders_that_hold_no_requests_are_left_out_and_named_ones_are_not(project, capsys):
    folder = project / "data"
    folder.mkdir()
    write_jsonl(folder / "clock.jsonl", CLOCK)
    (folder / "rows.jsonl").write_text('{"x": 1}\n{"x": 2}\n', "utf-8")
    flags = ("--tokenizer", "tok", "--output-format", "json")
    code, out, err = run(capsys, "data", *flags)
    assert (code, {f["location"]["file"] for f in json.loads(out)}) == (1, {"data/clock.jsonl"})
    assert "data/rows.jsonl" in err
    assert run(capsys, "data", *flags, "--quiet")[2] == ""
    assert run(capsys, "data/rows.jsonl", *flags)[0] == 2
    assert run(capsys, "--force-exclude", "data/rows.jsonl", *flags)[0] == 0


def test_per_file_ignores(project, capsys):
    write_jsonl(project / "clock.jsonl", CLOCK)
    flags = ("clock.jsonl", "--tokenizer", "tok", "--output-format", "json")
    assert run(capsys, *flags)[0] == 1
    assert run(capsys, *flags, "--per-file-ignores", "*.py:AC1,clock.*:AC101")[0] == 0
    assert run(capsys, *flags, "--per-file-ignores", "*.py:AC1")[0] == 1
    configure(project, '[tool.agentcache.lint.per-file-ignores]\n"*.jsonl" = ["AC1"]')
    assert run(capsys, *flags)[0] == 0


@pytest.mark.parametrize(
    ("pattern", "file", "expected"),
    [
        ("*.py", "a/b.py", True),
        ("*.py", "a/b.pyi", False),
        ("a/*.py", "a/b.py", True),
        ("a/*.py", "a/c/b.py", False),
        ("a/*.py", "x/a/b.py", False),
        ("a/**", "a/c/b.py", True),
        ("a/**/b.py", "a/b.py", True),
        ("**/b.py", "b.py", True),
        ("gen", "a/gen/b.py", True),
        ("gen/", "a/gen/b.py", True),
        ("/b.py", "b.py", True),
        ("/b.py", "a/b.py", False),
        ("./a/b.py", "a/b.py", True),
        ("b[0-9].py", "b7.py", True),
        ("b[!0-9].py", "b7.py", False),
        ("b[z-a].py", "b7.py", False),
        ("?.py", "b.py", True),
        ("a.py", "a?py", False),
        ("…/*.py", "…/ä.py", True),
    ],
)  # fmt: skip
def test_patterns(tmp_path, pattern, file, expected):
    assert matcher([pattern], tmp_path)(tmp_path / file) is expected


def test_absolute_patterns_and_files_outside(tmp_path):
    inside = matcher([str(tmp_path / "a" / "*.py")], tmp_path)
    assert inside(tmp_path.parent / "x.py") is False
    assert matcher([str(tmp_path / "*.py")], tmp_path / "sub")(tmp_path / "x.py") is True
