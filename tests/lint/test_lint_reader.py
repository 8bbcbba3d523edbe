"""Files as they come: broken, empty, wrapped, long."""

from __future__ import annotations

import io
import json

import pytest

from agentcache.lint.cli import main
from agentcache.lint.readers import read_records
from agentcache.lint.records import Record, Unreadable

GOOD = {"messages": [{"role": "user", "content": "Hi"}]}
RULES = "Be a good helper. Read a file before you change it, and run the tests after each change."


def read(data: bytes) -> list[Record | Unreadable]:
    return list(read_records(io.BytesIO(data), "x.jsonl"))


def line(value) -> bytes:
    return json.dumps(value).encode() + b"\n"


def test_bare_and_wrapped_bodies():
    wrapped = [GOOD, {"body": GOOD, "custom_id": "1"}, {"request": GOOD}, {"request": {"headers": {}, "body": GOOD}}]
    records = read(b"".join(map(line, wrapped)))
    places = [r.places.find(("messages", 0, "content"), 1)[:2] for r in records]
    assert [(r.line, r.body["messages"]) for r in records] == [(n, GOOD["messages"]) for n in (1, 2, 3, 4)]
    assert places == [
        (f"{prefix}messages[0].content", 1) for prefix in ("", "body.", "request.", "request.body.")
    ]  # fmt: skip
    assert [r.source for r in records] == wrapped


def test_blank_lines_count_and_say_nothing():
    records = read(b"\n" + line(GOOD) + b"  \r\n" + line(GOOD))
    assert [record.line for record in records] == [2, 4]


def test_a_byte_order_mark_and_a_missing_last_line_end():
    assert [type(r) for r in read(b"\xef\xbb\xbf" + line(GOOD).strip())] == [Record]


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b'{"messages": [', "not valid JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[1, 2]", "got a list"),
        (b'"text"', "got a string"),
        (b"null", "got null"),
        (b"{}", "messages is missing"),
        (b'{"body": {"model": "x"}}', "body.messages is missing"),
        (b'{"url": "/v1/embeddings", "body": {"input": "x"}}', "takes no prompts"),
        (b'{"input": [5]}', "input[0]: got 5"),
        (b'{"body": {"prompt": []}}', "body.prompt: got []"),
        (b'{"prompt": [1, -1]}', "prompt: got [1, -1], expected text or a list of token ids"),
        (b'{"messages": []}', "an empty list"),
        (b'{"messages": "Hi"}', "messages: got a string"),
        (b'{"messages": [{"role": "user", "content": "a"}, 7]}', "messages[1]: got a number"),
        (b'{"messages": [{"content": "a"}]}', "messages[0]: got an object without a role"),
        (b'{"messages": [{"role": "user", "content": 5}]}', "messages[0].content: got a number"),
        (b'{"messages": [{"role": "user", "content": "a"}], "tools": {}}', "tools: got an object"),
        (b"[" * 100_000, "not readable as JSON"),
        (b'{"messages": [{"role": "user", "content": "a"}], "n": ' + b"9" * 5000 + b"}", "not readable as JSON"),
    ],
)
def test_a_line_that_is_no_request_says_why(data, word):
    [record] = read(data)
    assert isinstance(record, Unreadable) and record.line == 1
    assert word in record.reason


def test_the_file_is_read_a_line_at_a_time():
    asked = []

    class Lines(io.RawIOBase):
        def __next__(self) -> bytes:
            asked.append(1)
            return line(GOOD)

        def __iter__(self):
            return self

    records = read_records(Lines(), "endless.jsonl")
    for _ in range(5):
        next(records)
    assert len(asked) == 5


def test_a_broken_line_is_named_the_rest_is_linted_and_the_code_is_2(lint, tokenizer_folder, tmp_path, capsys):
    file = tmp_path / "broken.jsonl"
    stamped = [
        {"messages": [{"role": "system", "content": f"It is 10:3{n}:00. Be a good helper."}, GOOD["messages"][0]]}
        for n in range(3)
    ]
    file.write_bytes(line(stamped[0]) + line(stamped[1]) + b'{"messages": [\n' + line(stamped[2]))
    code = main([str(file), "--tokenizer", str(tokenizer_folder), "--output-format", "json"])
    out = capsys.readouterr()
    assert code == 2
    findings = json.loads(out.out)
    assert [(f["code"], f["location"]["record"]) for f in findings] == [("AC101", 2), ("AC903", 3)]
    assert "line 3" in findings[1]["message"]
    assert "Traceback" not in out.err


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "wizard", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        {"messages": [{"role": "user", "content": "Hi"}], "tools": [7]},
        {"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": 7},
    ],
)
def test_a_request_that_cannot_be_rendered_is_an_unreadable_record(lint, body):
    code, findings = lint([GOOD, body])
    assert code == 2
    assert [(f["code"], f["location"]["record"]) for f in findings] == [("AC903", 2)]


@pytest.mark.parametrize("text", ["\ud800", "\x00", "😀" * 50, "\uf8ff\U000f0000", "a\u0301é"])
def test_odd_characters_are_linted_like_others(lint, text):
    requests = [
        {"messages": [{"role": "system", "content": f"{text} It is 10:30:0{n}. {RULES}"}, *GOOD["messages"]]}
        for n in range(2)
    ]
    code, findings = lint(requests)
    assert code == 1
    [finding] = findings
    assert finding["location"]["char"] == len(f"{text} It is 10:30:0")
