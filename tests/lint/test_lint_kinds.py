"""What an input is: told by its name and its first bytes, read forwards, in bounded memory, whatever the bytes are."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.lint.readers import blocks
from agentcache.lint.readers.blocks import LIMIT, Line, blocks_of, lines_of
from agentcache.lint.readers.faults import WholeFile
from agentcache.lint.readers.json_text import JsonText
from agentcache.lint.readers.kinds import Kind, kind_of, open_input
from agentcache.lint.records import Place, Record, Unreadable
from agentcache.lint.rules import ac903_unreadable

HI = {"messages": [{"role": "user", "content": "Hi"}]}
BYE = {"messages": [{"role": "user", "content": "Bye"}], "model": "m"}
MIB = 2**20


class Pipe(io.RawIOBase):
    """A stream that cannot seek and hands over what it is given, block by block."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks = blocks
        self.taken = 0

    def read(self, size: int = -1) -> bytes:
        self.taken += 1
        return next(self.blocks, b"")

    def seekable(self) -> bool:
        return False


def read(data: bytes, file: str = "-") -> list[Record | Unreadable]:
    return list(open_input(io.BytesIO(data), file))


def texts(found: list[Record | Unreadable]) -> list[tuple[int, str]]:
    return [
        (record.line, record.body["messages"][0]["content"] if isinstance(record, Record) else "unreadable")
        for record in found
    ]


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


# -- which part of the linter


@pytest.mark.parametrize(
    ("file", "first", "kind"),
    [
        ("a/chat_template.jinja", b"", Kind.TEMPLATE),
        ("x.J2", b"", Kind.TEMPLATE),
        ("agent.py", b"", Kind.PYTHON),
        ("agent", b"#!/usr/bin/env python3\nimport x\n", Kind.PYTHON),
        ("agent", b"#!/bin/sh\n# python\n", Kind.RECORDS),
        ("run.jsonl", b"{", Kind.RECORDS),
        ("prompt.md", b"#!python", Kind.RECORDS),
        ("-", b"{", Kind.RECORDS),
    ],
)
def test_sources_and_templates_are_somebody_elses(file, first, kind):
    assert kind_of(file, first) is kind


# -- shapes of files


@pytest.mark.parametrize("file", ["-", "run.jsonl", "run.json", "requests", "run.log"])
def test_lines_lists_and_values_over_several_lines_are_told_by_their_bytes(file):
    assert texts(read(lines(HI, BYE), file)) == [(1, "Hi"), (2, "Bye")]
    for indent in (None, 0, 2, "\t"):
        assert texts(read(json.dumps([HI, BYE], indent=indent).encode(), file)) == [(1, "Hi"), (2, "Bye")]
    for indent in (0, 2, "\t"):
        spread = json.dumps(HI, indent=indent)
        twice = f"{spread}\n{json.dumps(BYE, indent=indent)}\n".encode()
        assert texts(read(spread.encode(), file)) == [(1, "Hi")]
        assert texts(read(twice.replace(b"\n", b"\r\n"), file)) == [(1, "Hi"), (spread.count("\n") + 2, "Bye")]


def test_packed_by_gzip_in_one_member_or_several():
    packed = gzip.compress(lines(HI)) + gzip.compress(lines(BYE))
    assert texts(read(packed, "run.jsonl.gz")) == [(1, "Hi"), (2, "Bye")]
    assert texts(read(packed + b"\0" * 512)) == [(1, "Hi"), (2, "Bye")]
    assert texts(read(gzip.compress(b"Be brief.", mtime=0), "system.txt.gz")) == [(1, "Be brief.")]


def test_a_gzip_file_that_was_cut_or_damaged_is_said_after_what_could_be_read():
    packed = gzip.compress(lines(HI, BYE))
    *before, last = read(packed[:-12], "run.jsonl.gz")
    assert isinstance(last, Unreadable) and "ends in the middle" in last.reason
    assert texts(before) == [(1, "Hi"), (2, "Bye")][: len(before)]
    damaged = packed[:10] + b"\xff" * 20
    (only,) = read(damaged)
    assert isinstance(only, WholeFile) and "broken gzip data" in only.reason


def test_a_byte_order_mark_is_no_part_of_the_first_value():
    for data in (lines(HI), json.dumps([HI]).encode(), json.dumps(HI, indent=1).encode()):
        assert texts(read(b"\xef\xbb\xbf" + data)) == [(1, "Hi")]


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be"])
def test_what_powershell_writes_is_read(coding):
    for data in (lines(HI, BYE), json.dumps([HI, BYE]).encode()):
        packed = (b"" if coding == "utf-16" else codecs.BOM_UTF16_BE) + data.decode().encode(coding)
        assert texts(read(packed)) == [(1, "Hi"), (2, "Bye")]
    (prompt,) = read("Sei kurz, größer \U0001f600".encode("utf-16"), "p.txt")
    assert prompt.body["messages"][0]["content"] == "Sei kurz, größer \U0001f600"


def test_a_file_that_holds_something_else_is_given_up():
    noise = b"\x89PNG\n" * 5000
    found = read(noise, "picture.jsonl")
    assert len(found) == 1 and "the rest was not read; line 1: not UTF-8" in found[0].reason
    assert len(read(lines(HI) + noise)) == 5001, "one request is enough to go on"


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 12,
        b"name,age\nAda,36\nAlan,41\n",
        b"import sys\n\nprint(sys.argv)\n",
        b"[tool.agentcache.lint]\npage-size = 16\nselect = []\n",
        b"[[suppress]]  # known\ncode = 'AC101'\n",
        b'1\n2\n"three"\n',
    ],
)
def test_another_kind_of_file_is_one_reason(data):
    (only,) = read(data, "-")
    assert isinstance(only, WholeFile) and only.line == 1
    assert only.reason.startswith("nothing in it is a request; line 1: ") and "[0]" not in only.reason


def test_what_is_no_archive_or_cannot_be_unpacked_is_the_whole_file():
    for data, file in (
        (b"\x1f\x8b0000", "bad.jsonl.gz"),
        (b"noise", "run.har"),
        (b'{"log": {"entries": 5}}', "run.har"),
    ):
        (only,) = read(data, file)
        assert isinstance(only, WholeFile), only


def test_faults_of_json_say_each_thing_once():
    for broken, said in (
        (b'{"messages": [{"role": "user', "unterminated string starting at character 24"),
        (b'{"messages": "a\tb"}', "invalid control character at character 16"),
        (b"{", "expecting property name enclosed in double quotes at character 2"),
    ):
        (record,) = read(broken + b"\n")
        assert record.reason == f"not valid JSON: {said}"


@pytest.mark.parametrize("data", [b"", b"\n \r\n\t", b"[]", b"[\n]\n", gzip.compress(b"", mtime=0)])
def test_nothing_in_it_gives_nothing(data):
    assert read(data) == []


def test_a_broken_line_does_not_stop_the_others():
    for broken in (b'{"messages": [{"role": "user", "content": "H', b'{"messages": [', b"not json", b"\xff\xfe"):
        assert texts(read(broken + b"\n" + lines(HI))) == [(1, "unreadable"), (2, "Hi")]
        assert texts(read(lines(HI) + broken + b"\n" + lines(BYE))) == [(1, "Hi"), (2, "unreadable"), (3, "Bye")]


def test_a_broken_item_does_not_stop_the_others():
    data = b'[{"messages": 5}, 7, "text", {"messages": [}, ' + json.dumps(BYE).encode() + b"]"
    found = read(data)
    # Brackets that do not fit end where the next one closes them, and what is behind is not lost.
    assert all(isinstance(record, Unreadable) for record in found[:3])
    assert found[0].reason.startswith("[0]: ") and "messages" in found[0].reason
    assert "got a number" in found[1].reason and "got a string" in found[2].reason
    assert any(isinstance(record, Unreadable) and "not valid JSON" in record.reason for record in found)


def test_a_list_or_value_that_ends_in_the_middle_is_said():
    cut = json.dumps([HI, BYE]).encode()[:-9]
    assert texts(read(cut))[0] == (1, "Hi")
    assert isinstance(read(cut)[-1], Unreadable)
    assert "ends in the middle" in read(b"[" + json.dumps(HI).encode())[-1].reason
    (only,) = read(json.dumps(HI, indent=1).encode()[:-3])
    assert isinstance(only, Unreadable) and only.line == 1


def test_items_of_a_list_say_where_they_stand():
    first, second = read(json.dumps([HI, {"body": BYE}]).encode())
    assert first.places.find(("messages", 0, "content"), 1) == Place("[0].messages[0].content", 1)
    assert second.places.find(("messages", 0, "content")).path == "[1].body.messages[0].content"
    assert first.source is None and second.source is None, "a line of JSONL cannot be written back into a list"


def test_a_line_of_jsonl_can_be_written_back():
    (record,) = read(lines({"body": HI, "id": 7}), "run.jsonl")
    assert record.source == {"body": HI, "id": 7}


# -- plain prompts


def test_a_prompt_file_is_one_request_of_its_own_session():
    (record,) = read("\ufeffBe brief.\nIt is noon.\n".encode(), "prompts/system.md")
    assert record.body == {"messages": [{"role": "system", "content": "Be brief.\nIt is noon.\n"}]}
    assert (record.session, record.dialect, record.line) == ("prompts/system.md", "prompt", 1)
    keys = ("messages", 0, "content")
    assert record.places.find(keys, 0) == ("the prompt", 0, 1)
    assert record.places.find(keys, len("Be brief.\nIt")) == ("the prompt", 2, 2)
    assert record.places.find(keys) == ("the prompt", None, 1)


def test_a_prompt_file_may_look_like_anything():
    text = '{"messages": 5}\n[1]\n'
    assert texts(read(text.encode(), "p.prompt")) == [(1, text)]
    assert read(b" \n", "p.txt") == []
    (bad,) = read(b"fine\nnot \xff so", "p.txt")
    assert isinstance(bad, Unreadable) and bad.line == 2 and "0xff" in bad.reason


# -- how it is read


def test_lines_are_handed_on_as_they_come():
    pipe = Pipe(lines(HI) for _ in iter(int, 1))
    found = open_input(pipe, "-")
    for number in range(1, 6):
        assert next(found).line == number
        assert pipe.taken <= number + 1


@pytest.mark.parametrize("shape", ["list", "spread"])
def test_items_are_handed_on_as_they_come(shape):
    item = json.dumps(HI, indent=1).encode()

    def endless() -> Iterator[bytes]:
        yield b"[\n" if shape == "list" else b""
        while True:
            yield item + (b",\n" if shape == "list" else b"\n")

    pipe = Pipe(block for block in endless() if block)
    found = open_input(pipe, "-")
    for count in range(1, 6):
        assert next(found).body == HI
        assert pipe.taken <= count + 3


def test_a_long_file_is_read_in_the_memory_of_a_line():
    line = json.dumps({"messages": [{"role": "user", "content": "x" * 10_000}]}).encode() + b"\n"
    pipe = Pipe(line for _ in range(3000))
    tracemalloc.start()
    try:
        count = sum(isinstance(record, Record) for record in open_input(pipe, "-"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 3000
    assert peak < 2 * MIB


@pytest.fixture
def small_limits(monkeypatch):
    """The bounds, small enough to be reached in no time; what is tested is that they hold."""
    from agentcache.lint.readers import json_text, prompt_files

    for module in (blocks, json_text, prompt_files):
        monkeypatch.setattr(module, "LIMIT", 1000)
    for module in (blocks, json_text):
        monkeypatch.setattr(module, "SKIPPED", 20_000)


@pytest.mark.parametrize("size", [1, 7, 300, 100_000])
def test_a_line_that_is_too_long_is_passed_over(small_limits, size):
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 5000}]}).encode()
    data = lines(HI) + long + b"\n" + lines(BYE)
    found = list(open_input(Pipe(iter([data[i : i + size] for i in range(0, len(data), size)])), "-"))
    assert texts(found) == [(1, "Hi"), (2, "unreadable"), (3, "Bye")]
    assert "longer than" in found[1].reason


@pytest.mark.parametrize("size", [1, 7, 300, 100_000])
def test_an_item_that_is_too_long_is_passed_over(small_limits, size):
    long = {"messages": [{"role": "user", "content": 'x"]}\n' * 900}]}
    data = json.dumps([HI, long, BYE], indent=1).encode()
    found = list(open_input(Pipe(iter([data[i : i + size] for i in range(0, len(data), size)])), "-"))
    assert texts(found) == [(1, "Hi"), (2, "unreadable"), (3, "Bye")]
    assert found[1].reason.startswith("[1]: longer than")


def test_nobody_waits_for_the_end_of_a_line_without_one(small_limits):
    for start, name in (
        (b"", "-"),
        (b'["', "-"),
        (b'{"a":"', "-"),
        (b'{"log": {"entries": ["', "x.har"),
        (b"", "x.txt"),
    ):
        pipe = Pipe(iter([start, *([b"x" * 500] * 10_000)]) if start else iter([b"x" * 500] * 10_000))
        (only,) = open_input(pipe, name)
        assert isinstance(only, Unreadable)
        assert pipe.taken < 200


def test_a_bomb_is_refused_in_bounded_memory():
    packer = gzip.GzipFile(fileobj=(packed := io.BytesIO()), mode="wb", compresslevel=9)
    packer.write(b'{"messages": "')
    for _ in range(200):
        packer.write(b"x" * MIB)
    packer.write(b'"}\n' + lines(HI))
    packer.close()
    assert len(packed.getvalue()) < MIB
    packed.seek(0)
    tracemalloc.start()
    try:
        found = list(open_input(packed, "bomb.jsonl.gz"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert texts(found) == [(1, "unreadable"), (2, "Hi")]
    assert "64 MiB" in found[0].reason
    assert peak < 2 * LIMIT + 16 * MIB


# -- whatever the bytes are


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["-", "a.jsonl", "a.json", "a.har", "a.txt", "a.gz", "a"]))
def test_any_bytes_give_records_or_reasons(data, file):
    for record in read(data, file):
        assert isinstance(record, (Record, Unreadable)) and record.line >= 1 and record.file == file


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(JSON | st.text(alphabet='"\\x[', max_size=12), max_size=5),
    st.sampled_from([None, 0, 1]),
    st.integers(1, 40),
)
def test_values_are_cut_where_they_end_however_they_arrive(values, indent, size):
    data = json.dumps(values, indent=indent).encode()
    pieces = iter([data[i : i + size] for i in range(0, len(data), size)])
    found = [json.loads(raw.raw) for raw in JsonText(pieces).items()]
    assert json.dumps(found) == json.dumps(values)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"")), max_size=8), st.integers(1, 30))
def test_lines_are_cut_where_they_end_however_they_arrive(pieces, size):
    data = b"\n".join(pieces)
    found = list(lines_of(iter([data[i : i + size] for i in range(0, len(data), size)])))
    expected = [Line(number, raw) for number, raw in enumerate(data.split(b"\n"), start=1)]
    assert found == (expected if expected[-1].raw else expected[:-1])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=4), st.integers(1, 50))
def test_packed_members_are_unpacked_however_they_arrive(members, size):
    data = b"".join(gzip.compress(member, mtime=0) for member in members)
    pipe = Pipe(iter([data[i : i + size] for i in range(0, len(data), size)]))
    assert b"".join(blocks_of(pipe)) == b"".join(members)


# -- what is said about it


@pytest.mark.parametrize(
    ("record", "subject", "advice"),
    [
        (Unreadable("run.jsonl", 3, "it is cut"), "line 3", "the other lines were linted"),
        (WholeFile("run.jsonl.gz", 1, "it is a table"), "the file", "packed by gzip, or as they are"),
        (WholeFile("-", 1, "it is a table"), "the file", "JSON bodies, one a line or in a list"),
        (Unreadable("system.md", 7, "not UTF-8"), "the file", "text in UTF-8"),
        (Unreadable("chat.jinja", 7, "no end"), "the template", "mend the template"),
        (Unreadable("agent.py", 7, "no end"), "the source", "Python"),
    ],
)
def test_advice_fits_the_kind_of_file(record, subject, advice):
    finding = ac903_unreadable.report(record)
    assert finding.message == f"{subject} cannot be read: {record.reason}" and advice in finding.help
    assert finding.location.record == record.line
