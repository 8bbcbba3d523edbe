"""``--fix``, ``--unsafe-fixes`` and ``--diff``: what is written, what is not, and what stays byte for byte."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import twins_ac201
import twins_ac202
from lint_workloads import INSTRUCTIONS, chat

from agentcache.lint.cli import main
from agentcache.lint.finding import Edit
from agentcache.lint.fixes.changes import AddedMember, applied, changes_between, rewritten
from agentcache.lint.fixes.content import lost_content
from agentcache.lint.fixes.json_text import NotExactError, same, same_value
from agentcache.lint.fixes.native import keys_of, native_changes
from agentcache.lint.fixes.record_diff import records_diff
from agentcache.lint.fixes.sources import verify_comment, verify_template_comment
from agentcache.lint.fixes.text_files import with_edits
from agentcache.lint.fixes.writing import NotWrittenError, Original
from agentcache.lint.records import Place, PlainPlaces

RULES = INSTRUCTIONS * 4
"""Long enough to be worth something."""
NFC, NFD = "Übersicht über alle Fälle. ", "U\u0308bersicht u\u0308ber alle Fa\u0308lle. "


def spelled(*forms: str, **fields: Any) -> list[dict[str, Any]]:
    """A growing chat whose system text is spelled in one form after another."""
    return [{**body, **fields} for body in chat(lambda turn: forms[turn] + RULES, turns=len(forms))]


@pytest.fixture
def run(tokenizer_folder, capsys):
    """``run(files, *flags)`` -> exit code, standard output, standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*map(str, arguments), "--isolated", "--tokenizer", str(tokenizer_folder)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")


def write(path: Path, bodies: list[Any], **style: Any) -> Path:
    path.write_bytes("".join(json.dumps(body, **style) + "\n" for body in bodies).encode("utf-8", "surrogatepass"))
    return path


# -- records ------------------------------------------------------------------------------------------------------


def test_only_what_has_the_defect_is_rewritten(run, tmp_path):
    file = write(tmp_path / "a.jsonl", spelled(NFC, NFD, NFC, NFD), ensure_ascii=False)
    before = lines(file)
    code, out, err = run(file, "--fix")
    assert code == 0 and "Fixed 1 of 1." in err, (out, err)
    after = lines(file)
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True, False, True]
    assert after[1] == before[1].replace(NFD.encode(), NFC.encode())
    assert run(file)[0] == 0


def test_the_lines_own_style_is_kept(run, tmp_path):
    """Escapes, blanks, line ends, numbers and unknown fields are as they were found."""
    first, second, third = spelled(NFC, NFD, NFD)
    odd = '{ "custom_id" : "7\\/x", "n": [1.0, 1e3, 12345678901234567890123, -0.0, true, null], "body" :%s }\r'
    texts = [json.dumps(first), odd % json.dumps(second, separators=(",", ":")), json.dumps(third, ensure_ascii=False)]
    file = tmp_path / "a.jsonl"
    file.write_bytes("\n\n".join(["\ufeff" + texts[0], *texts[1:]]).encode())
    before = file.read_bytes()
    assert run(file, "--fix")[0] == 0
    expected = [texts[0], texts[1].replace(json.dumps(NFD)[1:-1], json.dumps(NFC)[1:-1]), texts[2].replace(NFD, NFC)]
    assert file.read_bytes() == "\n\n".join(["\ufeff" + expected[0], *expected[1:]]).encode() != before


def test_unsafe_fixes_are_asked_for(run, tmp_path):
    file = write(tmp_path / "a.jsonl", spelled("", " ", " "))
    before = file.read_bytes()
    code, _, err = run(file, "--fix")
    assert code == 1 and "Fixed 0 of 1 (1 needs --unsafe-fixes)." in err and file.read_bytes() == before
    code, _, err = run(file, "--fix", "--unsafe-fixes")
    assert code == 0 and "Fixed 1 of 1." in err and file.read_bytes() != before


def test_what_stands_behind_a_defect_that_stays_is_not_touched(run, tmp_path):
    """The clock in front is computed anew each time, and all behind it."""
    bodies = [
        {
            **body,
            "messages": [{"role": "system", "content": f"It is 10:3{turn}:05. {form}{RULES}"}, *body["messages"][1:]],
        }
        for turn, (form, body) in enumerate(zip((NFC, NFD, NFD), spelled(NFC, NFD, NFD)))
    ]
    file = write(tmp_path / "a.jsonl", bodies)
    before = file.read_bytes()
    code, out, err = run(file, "--fix", "--output-format", "concise")
    assert code == 1 and file.read_bytes() == before and "AC101" in out
    assert "AC205 not applied: nothing is reused behind AC101 at messages[0].content, which stays" in err


def test_a_record_may_ask_not_to_be_mended(run, tmp_path):
    bodies = spelled(NFC, NFD, NFD)
    for body in bodies[1:]:
        body["agentcache_lint"] = {"ignore": {"AC205": "the tokenizer wants it"}}
    file = write(tmp_path / "a.jsonl", bodies)
    before = file.read_bytes()
    run(file, "--fix")
    assert file.read_bytes() == before


def test_a_code_that_is_not_selected_is_not_mended(run, tmp_path):
    file = write(tmp_path / "a.jsonl", spelled(NFC, NFD, NFD))
    before = file.read_bytes()
    assert run(file, "--fix", "--ignore", "AC205")[0] == 0 and file.read_bytes() == before


def test_a_member_that_is_there_twice_is_left_alone(run, tmp_path):
    texts = [json.dumps(body) for body in spelled(NFC, NFD, NFD)]
    twice = [texts[0], *(text[:-1] + ', "model": "m"}' for text in texts[1:])]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(twice), "utf-8")
    code, _, err = run(file, "--fix")
    assert code == 1 and 'not applied: the record has "model" twice in one object' in err
    assert file.read_text("utf-8") == "\n".join(twice)


def test_recorded_token_ids_would_not_fit_any_more(run, tmp_path, tokenizer_folder):
    file = write(tmp_path / "a.jsonl", spelled(NFC, NFD, NFD))
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    before = packed.read_bytes()
    code, _, err = run(packed, "--fix")
    assert code == 1 and "not applied: packed files are not rewritten" in err and packed.read_bytes() == before


def test_files_are_proved_together(run, tmp_path):
    first = write(tmp_path / "a.jsonl", spelled(NFC))
    second = write(tmp_path / "b.jsonl", spelled(NFC, NFD, NFD)[1:])
    before = first.read_bytes()
    code, _, err = run(first, second, "--fix")
    assert code == 0 and "Fixed 1 of 1." in err and first.read_bytes() == before
    assert " more prompt tokens are reused." in err
    assert NFC in json.loads(lines(second)[0])["messages"][0]["content"]


# -- --diff -------------------------------------------------------------------------------------------------------


def test_a_diff_of_records_shows_what_changes_in_each(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(
        Path("a.jsonl"), spelled("Be   brief.  " + NFC, "Be brief. " + NFC, "Be   brief.  " + NFC), ensure_ascii=False
    )
    before = Path("a.jsonl").read_bytes()
    code, diff, err = run("a.jsonl", "--diff", "--unsafe-fixes")
    assert code == 1 and "Would fix 1 of 1." in err and Path("a.jsonl").read_bytes() == before
    assert max(map(len, diff.splitlines())) < 300 and diff.startswith("--- a/a.jsonl\n+++ b/a.jsonl\n@@ line")
    assert "messages[0].content @@\n-" in diff


def test_characters_that_look_alike_are_shown_by_their_numbers(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("a.jsonl"), spelled(NFC, NFD, NFD), ensure_ascii=False)
    _, diff, _ = run("a.jsonl", "--diff")
    assert diff.count("@@ lines 2-3, messages[0].content @@\n-") == 1 == diff.count("\n@@ ")
    removed, added = (line for line in diff.splitlines()[3:5])
    assert removed.startswith('-"U\\u0308bersicht') and added.startswith('+"\\u00dcbersicht') and added.endswith('…"')


def test_records_that_change_alike_are_told_together(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    changed = [1, *range(3, 6), *range(8, 40, 2)]
    old.write_text('{"n": 1.0}\n' * 40)
    new.write_text("".join('{"n": 1}\n' if line in changed else '{"n": 1.0}\n' for line in range(1, 41)))
    hunk = "@@ lines 1, 3-5, 8, 10, 12, 14, 16, 18 and 10 more, n @@\n-1.0\n+1\n"
    assert records_diff("a", old, new, changed) == f"--- a/a\n+++ b/a\n{hunk}"


def test_orders_numbers_and_new_members_are_shown_short(tmp_path):
    before = {
        "tools": [{"function": {"name": name}} for name in "cab"],
        "n": 1.0,
        "o": {"x": 1, "y": 2},
        "l": [[3], [4]],
    }
    after = {**before, "tools": before["tools"][::-1], "n": 1, "o": {"y": 2, "x": 1}, "l": [[4], [3]], "new": "z" * 500}
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("{}\n" + json.dumps(before) + "\n")
    new.write_text("{}\n" + json.dumps(after) + "\n")
    assert records_diff("a.jsonl", old, new, [2]) == (
        "--- a/a.jsonl\n+++ b/a.jsonl\n"
        "@@ line 2, tools @@\n-c, a, b\n+b, a, c\n@@ line 2, n @@\n-1.0\n+1\n@@ line 2, o @@\n-x, y\n+y, x\n"
        "@@ line 2, l @@\n-[3], [4]\n+[4], [3]\n@@ line 2 @@\n+" + f'"new": "{"z" * 151}…\n'
    )


@pytest.mark.parametrize(
    "tool", [["git", "apply", "-p1", "--unsafe-paths", "-"], ["patch", "-p1"]], ids=lambda tool: tool[0]
)
def test_what_is_no_patch_hinders_none_of_the_sources_beside_it(run, tmp_path, monkeypatch, tool):
    monkeypatch.chdir(tmp_path)
    records = write(Path("a.jsonl"), spelled(NFC, NFD, NFD), ensure_ascii=False)
    before = records.read_bytes()
    for name in ("0.py", "z.py"):
        Path(name).write_text(SOURCE)
    code, diff, _ = run("0.py", "a.jsonl", "z.py", "--diff")
    assert code == 1 and "+++ b/a.jsonl\n@@ lines 2-3, " in diff
    subprocess.run(tool, input=diff.encode(), check=True, cwd=tmp_path, capture_output=True)
    assert records.read_bytes() == before and all("sorted(TAGS)" in Path(name).read_text() for name in ("0.py", "z.py"))


def test_a_diff_without_changes_is_empty_and_clean(run, tmp_path):
    file = write(tmp_path / "a.jsonl", spelled(NFC, NFC, NFC))
    assert run(file, "--diff") == (0, "", "")


def test_standard_input_is_shown_and_never_written(run, tmp_path, monkeypatch):
    text = "".join(json.dumps(body) + "\n" for body in spelled(NFC, NFD, NFD)).encode()
    for flag, code in (("--diff", 1), ("--fix", 1)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        result, out, err = run("-", flag)
        assert result == code
        if flag == "--diff":
            assert out.startswith("--- a/-\n+++ b/-\n")
        else:
            assert "not applied: standard input cannot be rewritten; --diff shows the change" in err


# -- writing ------------------------------------------------------------------------------------------------------


def test_permissions_and_links_are_kept(run, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    file = write(folder / "real.jsonl", spelled(NFC, NFD, NFD))
    file.chmod(0o640)
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    assert run(link, "--fix")[0] == 0
    assert link.is_symlink() and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert NFC in json.loads(lines(file)[1])["messages"][0]["content"]
    assert sorted(os.listdir(folder)) == ["real.jsonl"]


def test_a_read_only_file_is_an_error_and_stays(run, tmp_path):
    file = write(tmp_path / "a.jsonl", spelled(NFC, NFD, NFD))
    before = file.read_bytes()
    file.chmod(0o444)
    code, _, err = run(file, "--fix")
    assert code == 2 and f"error: {file}: it is read-only" in err and file.read_bytes() == before
    assert run(file, "--diff")[0] == 1


def test_a_file_that_somebody_else_wrote_meanwhile_is_not_replaced(tmp_path):
    file, mended = tmp_path / "a", tmp_path / "b"
    file.write_text("one")
    mended.write_text("two")
    original = Original.of(file, "a")
    file.write_text("three")
    with pytest.raises(NotWrittenError, match="it was changed while it was being linted"):
        original.replace(mended)
    assert file.read_text() == "three"
    Original.of(file, "a").replace(mended)
    assert file.read_text() == "two"


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotWrittenError, match="no regular file"):
        Original.of(tmp_path / "pipe", "pipe")
    with pytest.raises(NotWrittenError, match="cannot be read"):
        Original.of(tmp_path / "none", "none")


# -- sources ------------------------------------------------------------------------------------------------------

SOURCE = """from openai import OpenAI

client = OpenAI()
TAGS = {"b", "a", "c"}


def ask(question):
    # the tags of this project
    system = "You know these tags: " + ", ".join(TAGS)
    return client.chat.completions.create(
        model="m", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]
    )
"""


@pytest.mark.parametrize(
    ("mark", "declared", "end"),
    [(b"", "utf-8", "\n"), (b"\xef\xbb\xbf", "utf-8", "\r\n"), (b"", "latin-1", "\n")],
    ids=["plain", "marked-with-crlf", "latin-1"],
)
def test_a_source_is_mended_in_its_own_encoding_and_line_ends(run, tmp_path, mark, declared, end):
    text = SOURCE.replace("of this project", "of this projéct")
    if declared != "utf-8":
        text = f"# -*- coding: {declared} -*-\n{text}"
    file = tmp_path / "agent.py"
    file.write_bytes(mark + text.replace("\n", end).encode(declared))
    code, out, err = run(file, "--fix")
    assert code == 0 and "Fixed 1 of 1." in err, (out, err)
    expected = text.replace('", ".join(TAGS)', '", ".join(sorted(TAGS))')
    assert file.read_bytes() == mark + expected.replace("\n", end).encode(declared)


def test_a_sources_diff_is_shown_and_nothing_written(run, tmp_path):
    file = tmp_path / "agent.py"
    file.write_text(SOURCE)
    code, diff, _ = run(file, "--diff")
    assert code == 1 and file.read_text() == SOURCE
    assert '-    system = "You know these tags: " + ", ".join(TAGS)\n+' in diff and "sorted(TAGS)" in diff


UNUSED = SOURCE.replace("client = OpenAI()", "client = OpenAI()  # agentcache: ignore[AC101] it was needed once")


def test_comments_that_suppress_nothing_go_beside_other_fixes(run, tmp_path):
    file = tmp_path / "agent.py"
    file.write_text(UNUSED)
    code, out, err = run(file, "--fix")
    assert code == 0 and "Fixed 2 of 2." in err, (out, err)
    assert file.read_text() == SOURCE.replace('", ".join(TAGS)', '", ".join(sorted(TAGS))')


def cut(text: str, piece: str, content: str = "") -> tuple[str, str, list[Edit]]:
    start = text.index(piece)
    edits = [Edit(file="f", record=1, path="", start=start, end=start + len(piece), content=content)]
    return text, with_edits(text, edits), edits


@pytest.mark.parametrize(
    ("text", "piece", "content", "kept"),
    [
        ("a = 1  # why\nb = 2\n", "  # why", "", True),
        ("if a:\n    # why\n    b = 2\n", "    # why\n", "", True),
        ("a = 1  # why\nb = 2\n", "  # why\nb = 2", "", False),
        ("a = 1  # why\nb = 2\n", "  # why", " + 1", False),
        ('a = """x  # why\n"""\n', "  # why", "", False),
        ("a = (  # why\n", "  # why", "", False),
    ],
)
def test_only_a_comment_may_go_from_a_source(text, piece, content, kept):
    assert (verify_comment(*cut(text, piece, content)) is None) is kept


@pytest.mark.parametrize(
    ("text", "piece", "kept"),
    [
        ("a\n{# why #}\n{% for m in messages %}{{ m.content }}{% endfor %}", "{# why #}\n", True),
        ("a {# why #}b{{ messages }}", "{# why #}", True),
        ("a{# why #}\nb{{ messages }}", "{# why #}\n", True),
        ("a{# why #}\n\nb{{ messages }}", "{# why #}\n\n", False),
        ("a{# why #}{{ messages }}", "{# why #}{{ messages }}", False),
        ("a{# why #}{% if %}", "{# why #}", False),
    ],
)
def test_only_a_comment_may_go_from_a_template(text, piece, kept):
    assert (verify_template_comment(*cut(text, piece)) is None) is kept


# -- JSON text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ('{"a": "x", "b": [1.0, 2]}', {"a": "y", "b": [1.0, 2]}, '{"a": "y", "b": [1.0, 2]}'),
        ('{"a" : 1e3,"b":2}', {"b": 2, "a": 1000.0}, '{"b":2,"a" : 1e3}'),
        ('[ {"n": 1}, {"n": 2} , 3]', [3, {"n": 2}, {"n": 1}], '[ 3, {"n": 2} , {"n": 1}]'),
        ('{"a":{}}', {"a": {"b": [1, "é"]}}, '{"a":{"b":[1, "\\u00e9"]}}'),
        ('{"a":{"x":1,"y":"é"}}', {"a": {"x": 1, "y": "é", "z": "ü/"}}, '{"a":{"x":1,"y":"é","z":"ü/"}}'),
        ('"\\ud83d\\ude00 a\\/b \\u00e9"', "😀 a/b e", '"\\ud83d\\ude00 a\\/b e"'),
        ('"a\\/b"', "a/b/c", '"a\\/b\\/c"'),
        ('{"n": 1}', {"n": 1.0}, '{"n": 1.0}'),
        ('{"\\u0061": "x"}', {"a": "\ud800"}, '{"\\u0061": "\\ud800"}'),
    ],
)  # fmt: skip
def test_a_change_leaves_everything_else_as_it_is_written(text, after, expected):
    before = json.loads(text)
    changes = list(changes_between(before, after))
    assert rewritten(text, changes) == expected
    assert same(applied(before, changes), after) and same(json.loads(expected), after)


@pytest.mark.parametrize(
    ("before", "after"),
    [({"a": 1, "b": 2}, {"a": 1}), ([1, 2], [1]), ({"a": "1"}, {"a": 1}), ({"a": [1]}, {"a": {"0": 1}}), ([None], [0])],
)
def test_nothing_is_taken_away_or_made_another_kind(before, after):
    with pytest.raises(NotExactError):
        list(changes_between(before, after))


def test_equality_is_that_of_json():
    assert same({"a": 1}, {"a": 1}) and not same(1, 1.0) and not same(1, True) and not same(0.0, -0.0)
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1}) and same(float("nan"), float("nan"))
    assert same_value({"a": 1, "b": [2.0]}, {"b": [2], "a": 1}) and not same_value([1], [True])


# -- from the prompt's terms to the file's ------------------------------------------------------------------------


def test_paths_are_read_against_the_record():
    record = {"a.b": {"c": [1]}, "a": {"b": {"c": [2]}, "d": [[3]]}, "e[0]": 4}
    assert keys_of("a.d[0][0]", record) == ("a", "d", 0, 0)
    assert keys_of("a.b.c[0]", record) is None, "two things are called so"
    assert keys_of("e[0]", record) == ("e[0]",) and keys_of("a.x", record) is None and keys_of("", record) == ()


class JoinedPlaces:
    """``messages[0].content`` of the body is the texts of ``system``, with an empty line between them."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def find(self, keys: Any, char: int | None = None) -> Place:
        start = 0
        for index, text in enumerate(self._texts):
            if char is not None and start <= char <= start + len(text):
                return Place(f"system[{index}].text", char - start)
            start += len(text) + 2
        return Place("system")


def joined(before: str, after: str) -> list[Any]:
    texts = before.split("\n\n")
    source = {"system": [{"type": "text", "text": text} for text in texts]}
    bodies = [{"messages": [{"role": "system", "content": text}]} for text in (before, after)]
    return list(native_changes(changes_between(*bodies), bodies[0], JoinedPlaces(*texts), source))


def test_a_piece_of_a_joined_text_is_changed_in_its_own_string():
    (change,) = joined("Be brief.\n\nBe  kind.", "Be brief.\n\nBe kind.")
    assert change.keys == ("system", 1, "text")
    (change,) = joined("Be brief. \n\nBe kind.", "Be brief.\n\nBe kind.")
    assert (change.keys, change.start, change.end) == (("system", 0, "text"), 9, 10)
    with pytest.raises(NotExactError):
        joined("Be brief.\n\nBe kind.", "Be short.\n\nBe nice.")


def test_arguments_that_the_file_has_as_an_object_change_in_order_only():
    old, new = '{"b": 1, "a": 2}', '{"a": 2, "b": 1}'
    body = {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": old}}]}]}
    after = {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": new}}]}]}
    source = {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": {"b": 1, "a": 2}}}]}]}
    (change,) = native_changes(changes_between(body, after), body, PlainPlaces(), source)
    assert list(applied(source, [change])["messages"][0]["tool_calls"][0]["function"]["arguments"]) == ["a", "b"]
    compact = {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": '{"b":1,"a":2}'}}]}]}
    with pytest.raises(NotExactError, match="not for the file to say"):
        list(native_changes(changes_between(body, compact), body, PlainPlaces(), source))


# -- nothing is lost ----------------------------------------------------------------------------------------------


def told(code: str, before: Any, after: Any) -> str | None:
    bodies = [value if isinstance(value, dict) else {"messages": [{"content": value}]} for value in (before, after)]
    return lost_content(code, bodies[0], list(changes_between(*bodies)))


def ids(*names: str) -> dict[str, Any]:
    call, other, first, second = names
    calls = [{"id": call, "function": {"name": "f"}}, {"id": other, "function": {"name": "g"}}]
    return {"messages": [{"tool_calls": calls}, {"tool_call_id": first}, {"tool_call_id": second}]}


@pytest.mark.parametrize(
    ("code", "before", "after", "kept"),
    [
        ("AC204", "a b\r\n", "a  b\n", True),
        ("AC204", "a b", "a c", False),
        ("AC205", "e\u0301", "é", True),
        ("AC205", "e", "é", False),
        ("AC206", 'say "\\u00e9\\/"', 'say "é/"', True),
        ("AC206", '{"a": 1}', '{"a":1}', True),
        ("AC206", "\\u00e9", "è", False),
        ("AC207", '{"a": 1, "b": 2}', '{"b":2,"a":1.0}', True),
        ("AC207", '{"a": 1}', '{"a": true}', False),
        ("AC201", {"tools": [{"a": 1, "b": 2}]}, {"tools": [{"b": 2.0, "a": 1}]}, True),
        ("AC201", {"tools": [{"a": 1}]}, {"tools": [{"a": 2}]}, False),
        ("AC202", {"tools": [{"a": 1}, {"b": 2}]}, {"tools": [{"b": 2}, {"a": 1}]}, True),
        ("AC202", {"tools": [{"a": 1}, {"a": 2}]}, {"tools": [{"a": 2}, {"a": 3}]}, False),
        ("AC203", "tags: b, a", "tags: a, b", True),
        ("AC203", "tags: b, a", "tags: a, c", False),
        ("AC208", ids("1", "2", "1", "2"), ids("3", "4", "3", "4"), True),
        ("AC208", ids("1", "2", "1", "2"), ids("3", "3", "3", "3"), False),
        ("AC208", ids("1", "2", "1", "2"), ids("3", "4", "3", "2"), False),
        ("AC999", "It is noon. Be kind.", "Be kind. It is noon.", True),
        ("AC999", "It is noon. Be kind.", "Be kind.", False),
    ],
)  # fmt: skip
def test_each_defect_is_mended_by_its_own_kind_of_change(code, before, after, kept):
    assert (told(code, before, after) is None) is kept


def test_only_reasoning_may_be_added():
    body = {"messages": [{"role": "assistant", "content": "Done."}]}
    assert lost_content("AC405", body, [AddedMember(("messages", 0), "reasoning_content", "Hm.")]) is None
    assert lost_content("AC405", body, [AddedMember(("messages", 0), "name", "x")]) is not None


WRAPPERS = {
    "bare": lambda body: body,
    "body": lambda body: {"custom_id": "7", "body": body},
    "request": lambda body: {"request": body, "note": "x"},
    "params": lambda body: {"params": body},
    "input": lambda body: {"input": body},
    "request.body": lambda body: {"request": {"url": "/v1/chat/completions", "body": body}},
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
@pytest.mark.parametrize("twin", [*twins_ac201.TWINS[:2], twins_ac202.TWINS[0]], ids=lambda twin: twin.name)
def test_tools_are_mended_wherever_the_request_stands(run, tmp_path, twin, wrap):
    """Tools named before the messages stay there: the order of a request's own members is nobody's business."""
    requests = [wrap({"tools": body["tools"], **body}) for body in twin.failing]
    file = write(tmp_path / "a.jsonl", requests)
    code, out, err = run(file, "--fix", "--unsafe-fixes", *twin.flags)
    assert "Fixed 1 of 1." in err and "not applied" not in err, (code, out, err)
    members = [list(unwrapped(json.loads(line))) for line in lines(file)[:-1]]
    assert members == [list(unwrapped(request)) for request in requests]


def unwrapped(record: dict[str, Any]) -> dict[str, Any]:
    while "messages" not in record:
        record = next(value for value in record.values() if isinstance(value, dict))
    return record
