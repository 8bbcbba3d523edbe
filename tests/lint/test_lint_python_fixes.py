"""Fixes of Python sources: what they are, and what is refused."""

from __future__ import annotations

import pytest

from agentcache.lint.finding import Edit
from agentcache.lint.python import check_python, verify_python_fix

SOURCE = """import os  # needed
def ask(client, text):
    # Ünsorted
    tags = set(text.split())
    system = "Tags: " + ", ".join(tags)  # here
    system += "\\n".join(name for name in os.listdir("."))
    return client.responses.create(model="m", instructions=system)
"""


def edits_of(source: str) -> list[Edit]:
    return [edit for finding in check_python(source, "agent.py") for edit in finding.fix.edits]


def applied(source: str, edits: list[Edit]) -> str:
    for edit in sorted(edits, key=lambda edit: -edit.start):
        source = source[: edit.start] + edit.content + source[edit.end :]
    return source


@pytest.mark.parametrize("mark", ["", "\N{ZERO WIDTH NO-BREAK SPACE}"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_has_no_order_is_sorted_and_nothing_else_is_touched(mark, line_end):
    source = mark + SOURCE.replace("\n", line_end)
    edits = edits_of(source)
    mended = applied(source, edits)
    assert [edit.content for edit in edits] == ["sorted(tags)", 'sorted(os.listdir("."))']
    assert [edit.record for edit in edits] == [5, 6]
    assert mended == source.replace(".join(tags)", ".join(sorted(tags))").replace(
        'os.listdir(".")', 'sorted(os.listdir("."))'
    )
    assert verify_python_fix(source, mended, edits) is None
    assert check_python(mended, "agent.py") == []


@pytest.mark.parametrize(
    ("line", "applicability"),
    [
        ("system = ', '.join({'b', 'a'})", "safe"),
        ("system = ', '.join(set(text.split()))", "safe"),
        ("system = str(set(text))", "display"),
        ("system = f'{set(text)}'", "display"),
        ("system = ', '.join(str(x) for x in set(text))", "unsafe"),
    ],
)
def test_sorting_is_safe_where_all_parts_are_texts(line, applicability):
    source = f"def ask(client, text):\n    {line}\n    return client.responses.create(model='m', instructions=system)\n"
    (finding,) = check_python(source, "a.py")
    assert finding.fix.applicability == applicability


def test_a_module_with_its_own_sorted_is_left_alone():
    assert edits_of("def sorted(x):\n    return x\n" + SOURCE) == []


def test_clocks_are_for_people_to_move():
    source = "import time\ndef ask(c):\n    return c.session(system=f'It is {time.time()}')\n"
    (finding,) = check_python(source, "a.py")
    assert (finding.fix.applicability, finding.fix.edits) == ("display", ())


def an_edit(source: str, old: str, new: str) -> Edit:
    start = source.index(old)
    return Edit(file="a.py", record=1, path="", start=start, end=start + len(old), content=new)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("a, b", "sorted(a, b", "parse"),
        ("join(x)", "join(y)", "more than sort"),
        ("join(x)", "join(sorted(x, key=len))", "more than sort"),
        ("join(x)", "join(x) ", "0 expressions are sorted by 1 edits"),
        ("join(x)", "join(sorted(sorted(x)))", "2 expressions are sorted by 1 edits"),
        ("# why", "# how", "0 expressions"),
        ("join(x)  # why", "join(sorted(x))", "comment"),
        ('"a"', '"A"', "more than sort"),
    ],
)
def test_an_edit_that_does_anything_else_is_refused(old, new, reason):
    source = 'a, b = "a", 1\nx = {a}\ny = ", ".join(x)  # why\n'
    edit = an_edit(source, old, new)
    refused = verify_python_fix(source, applied(source, [edit]), [edit])
    assert refused is not None
    assert reason in refused


def test_a_change_that_no_edit_names_is_refused():
    edit = an_edit("y = ', '.join(x)\n", "x", "sorted(x)")
    assert verify_python_fix("y = ', '.join(x)\n", "y = ', '.join(sorted(x))\n\n", [edit]) is not None


def test_edits_that_overlap_are_refused():
    source = "y = ', '.join(x)\n"
    edits = [an_edit(source, "x", "sorted(x)"), an_edit(source, ".join(x)", ".join(sorted(x))")]
    assert "overlap" in (verify_python_fix(source, "y = ', '.join(sorted(x))\n", edits) or "")
