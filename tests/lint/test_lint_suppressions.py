"""Findings that are left as they are, by comments, records and the configuration; and suppressions that do nothing."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import jinja2
import pytest
from lint_workloads import INSTRUCTIONS, STAMPS, chat, write_jsonl

from agentcache.lint.cli import main
from agentcache.lint.comments import python_comments, template_comments
from agentcache.lint.finding import Finding, Location
from agentcache.lint.records import Record
from agentcache.lint.suppressions import Suppressions

AGENT = """import datetime

RULES = "<rules>"


def ask(client, question):
    system = f"It is {datetime.datetime.now()}. {RULES}"<comment>
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return client.chat.completions.create(model="m", messages=messages)
""".replace("<rules>", INSTRUCTIONS)
CLOCK = chat(lambda turn: f"It is {STAMPS['second'][turn]}. {INSTRUCTIONS}")


@pytest.fixture
def found(tmp_path, monkeypatch, capsys, tokenizer_folder):
    """``found({name: text}, *flags)`` -> exit code, and code, file, line of each finding."""
    monkeypatch.chdir(tmp_path)

    def run(files: dict[str, str], *flags: str) -> tuple[int, list[tuple[str, str, int]]]:
        for name, text in files.items():
            Path(name).write_text(text, "utf-8")
        linted = [name for name in files if not name.endswith(".toml")]
        capsys.readouterr()
        code = main([*linted, "--tokenizer", str(tokenizer_folder), "--output-format", "json", *flags])
        told = json.loads(capsys.readouterr().out)
        return code, [(f["code"], f["location"]["file"], f["location"]["record"]) for f in told]

    return run


# -- comments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("", [("AC101", "agent.py", 7)]),
        ("  # agentcache: ignore[AC101] runs once a day", []),
        ("  # agentcache: ignore[ac101,AC102] runs once a day", [("AC901", "agent.py", 7)]),
        ("  # agentcache: ignore[AC1] runs once a day", []),
        ("  # noqa: E501  # agentcache: ignore[AC101] runs once a day  # type: ignore", []),
        ("  # agentcache: ignore[AC101]", [("AC101", "agent.py", 7), ("AC902", "agent.py", 7)]),
        ("  # agentcache: ignore", [("AC101", "agent.py", 7), ("AC902", "agent.py", 7)]),
        ("  # agentcache: ignore[AC111] no such rule", [("AC101", "agent.py", 7), ("AC902", "agent.py", 7)]),
        ("\n    # agentcache: ignore[AC101] above the next", [("AC101", "agent.py", 7), ("AC901", "agent.py", 8)]),
        ("\n# agentcache: ignore-file[AC101] runs once a day", []),
    ],
)  # fmt: skip
def test_a_comment_of_a_source_suppresses_what_it_names_and_is_about(found, comment, left):
    code, told = found({"agent.py": AGENT.replace("<comment>", comment)})
    assert told == left
    assert code == (1 if left else 0)


def test_a_comment_on_its_own_line_is_about_the_statement_below(found):
    above = AGENT.replace("<comment>", "").replace(
        "    system =", "    # agentcache: ignore[AC101] runs once a day\n    system ="
    )
    assert found({"agent.py": above}) == (0, [])


def test_comments_cover_lines_or_statements():
    source = (
        "f(  # agentcache: ignore[AC101] first line\n"
        "    a,  # agentcache: ignore[AC102] this line\n"
        "    # agentcache: ignore[AC103] the line below\n"
        "    b,\n"
        ")  # agentcache: ignore[AC104] the statement\n"
        "# agentcache: ignore[AC105] the statement below\n"
        "\n"
        "# another comment\n"
        "g(\n"
        ")\n"
        's = "# agentcache: ignore[AC106] a text"\n'
        "# agentcache: ignore[AC201] nothing below\n"
    )
    covered = {comment.codes[0]: comment.covers for comment in python_comments(source)}
    assert covered == {
        "AC101": (1, 1),
        "AC102": (2, 2),
        "AC103": (4, 4),
        "AC104": (1, 5),
        "AC105": (9, 10),
        "AC201": (12, 12),
    }


def test_template_comments_are_found_where_jinja_has_comments():
    source = (
        "{# agentcache: ignore[AC701] the line below #}\n"
        "{{ now }}\n"
        "{{ a }} {#- agentcache: ignore[AC702] this line -#} text\n"
        "{#\n agentcache: ignore-file[AC7]\n two lines of\n reasons\n#}\n"
        '{{ "{# agentcache: ignore[AC101] a text #}" }}\n'
        "{% raw %}{# agentcache: ignore[AC102] raw #}{% endraw %}\n"
    )
    comments = list(template_comments(source))
    assert [(c.codes, c.covers, c.reason) for c in comments] == [
        (("AC701",), (2, 2), "the line below"),
        (("AC702",), (3, 3), "this line"),
        (("AC7",), None, "two lines of reasons"),
    ]
    windows = list(template_comments(source.replace("\n", "\r\n")))
    assert [(c.codes, c.covers) for c in windows] == [(c.codes, c.covers) for c in comments]


@pytest.mark.parametrize(
    "source", ["'''", "(", "\x00 agentcache: ignore", "if x:\n  a\n b # agentcache: ignore[AC1] x\n"]
)
def test_sources_that_are_none_have_no_comments(source):
    assert list(python_comments(source + "# agentcache:")) == []
    assert list(template_comments("{% for {# agentcache: ignore[AC701] x #}")) == []


def test_taking_a_comment_out_changes_nothing_else():
    source = (
        "x = 1  # agentcache: ignore[AC101] a\r\n"
        "# agentcache: ignore[AC102] b\r\n"
        "y = 'é'  # noqa # agentcache: ignore[AC103] c\n"
        "    # agentcache: ignore-file[AC104] d"
    )
    for comment in python_comments(source):
        without = source[: comment.removal.start] + source[comment.removal.end :]
        assert comment.codes[0] not in without
        assert ast.dump(ast.parse(without)) == ast.dump(ast.parse(source))
    template = (
        "a\n  {# agentcache: ignore[AC701] x #}\n"
        "b {# agentcache: ignore[AC702] y #}\n"
        "{#- agentcache: ignore[AC703] z -#}\n"
    )
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    removable = [comment for comment in template_comments(template) if comment.removal is not None]
    assert [comment.codes for comment in removable] == [("AC701",)]
    [comment] = removable
    without = template[: comment.removal.start] + template[comment.removal.end :]
    assert environment.from_string(without).render() == environment.from_string(template).render()


def test_fixing_takes_an_unused_comment_out_of_a_template(found):
    plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    files = {"chat.jinja": "{# agentcache: ignore[AC701] there was a clock #}\n" + plain}
    assert found(files) == (1, [("AC901", "chat.jinja", 1)])
    assert found(files, "--fix") == (0, [])
    assert Path("chat.jinja").read_text("utf-8") == plain


# -- records ----------------------------------------------------------------------------------------------------------


def asking(ignored: object, bodies=CLOCK) -> str:
    return "".join(json.dumps({**body, "agentcache_lint": {"ignore": ignored}}) + "\n" for body in bodies)


def test_records_ask_for_themselves(found):
    assert found({"a.jsonl": asking({"AC101": "recorded like that"})}) == (0, [])
    assert found({"a.jsonl": asking({"AC1": "recorded like that"})}) == (0, [])
    assert found({"a.jsonl": asking({"AC101": ""})}) == (1, [("AC902", "a.jsonl", 1), ("AC101", "a.jsonl", 2)])
    assert found({"a.jsonl": asking(["AC101"])}) == (1, [("AC902", "a.jsonl", 1), ("AC101", "a.jsonl", 2)])


def test_of_many_records_that_ask_in_vain_one_is_told_of(found):
    clean = chat(lambda turn: INSTRUCTIONS)
    assert found({"a.jsonl": asking({"AC101": "why not"}, clean)}) == (1, [("AC901", "a.jsonl", 1)])
    assert found({"a.jsonl": asking({"AC101": "why not"}, clean)}, "--select", "AC5,AC9") == (0, [])


def test_what_many_records_ask_for_takes_no_memory():
    suppressions = Suppressions(None)
    for line in range(1, 5001):
        record = Record("a.jsonl", line, {}, ignored={"AC101": "", "X1": "no such code"})
        assert suppressions.checked(record).ignored == {}
    told = list(suppressions.findings(["AC902"], {}, everything=True))
    assert [(finding.code, finding.location.record) for finding in told] == [("AC902", 1), ("AC902", 1)]


# -- configuration ----------------------------------------------------------------------------------------------------


def configuration(*entries: str) -> str:
    return "".join(f"[[tool.agentcache.lint.suppress]]\n{entry}\n" for entry in entries)


@pytest.mark.parametrize(
    ("entry", "count"),
    [
        ('code = "AC101"\nreason = "a recording"', 0),
        ('code = "AC1"\nfile = "*.jsonl"\nreason = "a recording"', 0),
        ('code = "AC101"\nfile = "b.jsonl"\nreason = "a recording"', 1),
        ('code = "AC101"\npath = "messages[0].content"\nreason = "a recording"', 0),
        ('code = "AC101"\npath = "messages[*].content"\nreason = "a recording"', 0),
        ('code = "AC101"\npath = "messages[1].content"\nreason = "a recording"', 1),
        ('code = "AC102"\nreason = "a recording"', 1),
    ],
)  # fmt: skip
def test_the_configuration_suppresses_by_code_file_and_path(found, entry, count):
    _, told = found({"pyproject.toml": configuration(entry), "a.jsonl": asking({})})
    assert [code for code, _, _ in told] == ["AC101"] * count


def test_entries_of_the_configuration_are_judged_when_everything_was_linted(found, tmp_path, capsys, tokenizer_folder):
    entries = configuration('code = "AC101"\nreason = "used"', 'code = "AC102"\nreason = "unused"')
    files = {"pyproject.toml": 'tool.agentcache.lint.include = ["*.jsonl"]\n' + entries, "a.jsonl": asking({})}
    assert found(files) == (0, [])
    capsys.readouterr()
    assert main(["--tokenizer", str(tokenizer_folder), "--output-format", "json"]) == 1
    [finding] = json.loads(capsys.readouterr().out)
    assert (finding["code"], finding["location"]["record"]) == ("AC901", 5)
    assert finding["location"]["path"] == "tool.agentcache.lint.suppress[1]"


def test_what_is_suppressed_twice_makes_both_of_use():
    suppressions = Suppressions(None)
    comments = python_comments("x  # agentcache: ignore[AC101] a\n# agentcache: ignore-file[AC101] b\n")
    suppressions.add_comments("a.py", comments)
    where = Location(file="a.py", record=1)
    finding = Finding(code="AC101", name="volatile-time", severity="error", location=where, message="m")
    assert suppressions.sieve([finding]) == []
    assert list(suppressions.findings(["AC101"], {}, everything=True)) == []
    assert suppressions.suppressed == 1


def test_suppressed_findings_are_counted(tmp_path, capsys, tokenizer_folder):
    file = tmp_path / "a.jsonl"
    write_jsonl(file, CLOCK)
    (tmp_path / "pyproject.toml").write_text(configuration('code = "AC101"\nreason = "a recording"'), "utf-8")
    flags = ("--tokenizer", str(tokenizer_folder), "--config", str(tmp_path / "pyproject.toml"))
    assert main([str(file), *flags]) == 0
    assert "(1 suppressed)" in capsys.readouterr().out
