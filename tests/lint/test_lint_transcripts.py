"""Claude Code transcripts: the requests that were sent, put together from the lines of what was said.

The lines are written here with the fields and the order that the program writes: a block of a reply is a line, results hang
below the block that called, and much else stands in between.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.lint.readers.blocks import lines_of
from agentcache.lint.readers.claude_code import read_transcript
from agentcache.lint.readers.kinds import open_input
from agentcache.lint.records import Record, Unreadable

SESSION = "0f3c2a52-5b1d-4f0e-9d3e-0a1b2c3d4e5f"
USAGE = {"input_tokens": 4, "cache_creation_input_tokens": 120, "cache_read_input_tokens": 3000, "output_tokens": 1}


class Transcript:
    """Writes lines as Claude Code does; each follows the one before it unless told otherwise."""

    def __init__(self, **common: Any) -> None:
        self.lines: list[dict[str, Any]] = []
        self.common = {"isSidechain": False, "userType": "external", "cwd": "/w", "sessionId": SESSION, **common}
        self.last: str | None = None

    def add(self, kind: str, *, parent: str | None = "", uuid: str = "", **fields: Any) -> str:
        """One line; returns its uuid."""
        uuid = uuid or f"u{len(self.lines):03d}"
        above = self.last if parent == "" else parent
        self.lines.append(
            {
                "parentUuid": above,
                **self.common,
                "type": kind,
                "uuid": uuid,
                "timestamp": "2026-11-29T10:30:05Z",
                **fields,
            }
        )
        self.last = uuid
        return uuid

    def user(self, content: Any, **fields: Any) -> str:
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def result(self, call: str, content: str, parent: str, **fields: Any) -> str:
        block = {"tool_use_id": call, "type": "tool_result", "content": content}
        return self.user(
            [block], parent=parent, sourceToolAssistantUUID=parent, toolUseResult={"stdout": content * 3}, **fields
        )

    def reply(self, message_id: str, *blocks: dict[str, Any], usage: Any = USAGE, **fields: Any) -> list[str]:
        """A line a block; returns their uuids."""
        return [
            self.add(
                "assistant",
                requestId=f"req_{message_id}",
                message={
                    "id": message_id, "type": "message", "role": "assistant", "model": "claude-opus-5",
                    "content": [block], "stop_reason": None, "usage": usage,
                },
                **fields,
            )
            for block in blocks
        ]  # fmt: skip

    def bare(self, **fields: Any) -> None:
        """A line that is not part of the tree."""
        self.lines.append(fields)

    @property
    def data(self) -> bytes:
        return b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)

    def read(self) -> list[Record]:
        found = read(self.data)
        assert all(isinstance(record, Record) for record in found), found
        return found


def read(data: bytes, file: str = "session.jsonl") -> list[Record | Unreadable]:
    return list(open_input(io.BytesIO(data), file))


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{name}", "name": "Bash", "input": {"command": name, **fields}}


def said(record: Record) -> list[str]:
    """Each message in a word or two."""
    found = []
    for message in record.body["messages"]:
        calls = [found["function"]["name"] + found["id"][-1] for found in message.get("tool_calls") or ()]
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        words = "|".join(str(part.get("text")) for part in parts if part.get("text"))
        found.append(f"{message['role']}: {' '.join([*([words] if words else []), *calls])}")
    return found


def test_each_reply_is_one_request_with_all_that_was_said_before():
    chat = Transcript()
    chat.bare(type="summary", summary="A title", leafUuid="x")
    chat.bare(type="file-history-snapshot", messageId="m", snapshot={}, isSnapshotUpdate=False)
    chat.bare(type="queue-operation", operation="dequeue", sessionId=SESSION)
    chat.user("Hi")
    chat.reply("msg_1", {"type": "thinking", "thinking": "Hm.", "signature": "s"}, text("Hello."))
    chat.user("How are you?")
    chat.reply("msg_2", text("Fine."))
    first, second = chat.read()
    assert (first.line, second.line) == (5, 8)
    assert said(first) == ["user: Hi"]
    assert said(second) == ["user: Hi", "assistant: Hello.", "user: How are you?"]
    assert (first.session, first.dialect) == (SESSION, "anthropic")
    assert first.body["model"] == "claude-opus-5"
    assert first.reply.message["content"] == "Hello."
    assert first.reply.message["reasoning_content"] == "Hm."
    assert (first.usage.prompt_tokens, first.usage.cached_tokens) == (3124, 3000)
    assert first.source is None


def test_the_last_line_of_a_reply_has_its_usage():
    chat = Transcript()
    chat.user("Hi")
    chat.reply("msg_1", text("One"), usage={"input_tokens": 3, "output_tokens": 1})
    chat.reply("msg_1", text("Two"), usage={**USAGE, "output_tokens": 40})
    (record,) = chat.read()
    assert record.usage.cached_tokens == 3000


def test_parallel_calls_are_one_message_and_every_result_is_found():
    chat = Transcript()
    chat.user("Look")
    (first,) = chat.reply("msg_1", text("Looking."))
    (one,) = chat.reply("msg_1", call("a"), parent=first)
    (two,) = chat.reply("msg_1", call("b"), parent=one)
    chat.result("toolu_a", "result a", parent=one)
    chat.result("toolu_b", "result b", parent=two)
    chat.reply("msg_2", text("Done."))
    _, later = chat.read()
    assert said(later) == [
        "user: Look",
        "assistant: Looking. Basha Bashb",
        "tool: result a",
        "tool: result b",
    ]


def test_results_that_were_written_before_the_next_call_belong_behind_all_calls():
    chat = Transcript()
    chat.user("Look")
    (one,) = chat.reply("msg_1", call("a"))
    chat.result("toolu_a", "result a", parent=one)
    (two,) = chat.reply("msg_1", call("b"), parent=one)
    chat.result("toolu_b", "result b", parent=two)
    chat.reply("msg_2", text("Done."))
    first, later = chat.read()
    assert [found["id"] for found in first.reply.message["tool_calls"]] == ["toolu_a", "toolu_b"]
    assert said(later) == ["user: Look", "assistant: Basha Bashb", "tool: result a", "tool: result b"]


def test_lines_of_other_kinds_in_between_do_not_break_the_way():
    chat = Transcript()
    chat.user("Hi")
    chat.add("attachment", attachment={"type": "skill_listing"})
    chat.add("progress", data={"type": "hook_progress"})
    chat.reply("msg_1", text("Hello."))
    chat.add("system", subtype="turn_duration", durationMs=5)
    chat.add("a-kind-of-tomorrow", payload=[1])
    chat.user("And?", isMeta=True)
    chat.reply("msg_2", text("So."))
    assert said(chat.read()[1]) == ["user: Hi", "assistant: Hello.", "user: And?"]


def test_errors_and_replies_that_no_model_wrote_are_no_requests():
    chat = Transcript()
    chat.user("Hi")
    synthetic = {"id": "s1", "role": "assistant", "model": "<synthetic>", "content": [text("API Error: 529")]}
    chat.add("assistant", message=synthetic, isApiErrorMessage=True)
    chat.user("Again")
    chat.reply("msg_1", text("Hello."))
    chat.add("assistant", message={**synthetic, "id": "s2", "content": [text("No response requested.")]})
    chat.user("Well?")
    chat.reply("msg_2", text("So."))
    first, second = chat.read()
    assert said(first) == ["user: HiAgain"]
    assert said(second)[1:] == ["assistant: Hello.No response requested.", "user: Well?"]


def test_going_back_forks_the_conversation():
    chat = Transcript()
    chat.user("Hi")
    *_, hello = chat.reply("msg_1", text("Hello."))
    chat.user("Left?")
    chat.reply("msg_2", text("Left."))
    chat.user("Right?", parent=hello)
    chat.reply("msg_3", text("Right."))
    assert [said(record)[-1] for record in chat.read()] == ["user: Hi", "user: Left?", "user: Right?"]
    assert said(chat.read()[2]) == ["user: Hi", "assistant: Hello.", "user: Right?"]


def test_a_compaction_begins_anew_with_its_summary():
    chat = Transcript()
    chat.user("Hi")
    chat.reply("msg_1", text("Hello."))
    end = chat.last
    chat.add(
        "system", subtype="compact_boundary", parent=None, logicalParentUuid=end, compactMetadata={"trigger": "auto"}
    )
    chat.user("This session is being continued.", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    chat.reply("msg_2", text("So."))
    _, after = chat.read()
    assert said(after) == ["user: This session is being continued."]
    assert after.session == SESSION


def test_messages_that_a_compaction_keeps_follow_its_summary():
    for newer in (True, False):
        chat = Transcript()
        chat.user("Hi")
        chat.reply("msg_1", text("Hello."))
        kept = [chat.user("Kept?"), *chat.reply("msg_2", text("Kept."))]
        metadata: dict[str, Any] = (
            {"preservedMessages": {"anchorUuid": "summary", "uuids": kept}}
            if newer
            else {"preservedSegment": {"headUuid": kept[0], "anchorUuid": "summary", "tailUuid": kept[-1]}}
        )
        chat.add("system", subtype="compact_boundary", parent=None, uuid="boundary", compactMetadata=metadata)
        chat.user("Summary.", isCompactSummary=True, uuid="summary")
        chat.add("attachment", attachment={}, parent="summary")
        chat.user("Next?")
        chat.reply("msg_3", text("So."))
        after = chat.read()[2]
        assert said(after) == ["user: Summary.Kept?", "assistant: Kept.", "user: Next?"]


def test_lines_that_are_written_a_second_time_change_nothing():
    chat = Transcript()
    chat.user("Hi")
    chat.reply("msg_1", text("Hello."))
    chat.user("And?")
    copies = list(chat.lines)
    chat.lines += copies
    again = {**copies[1], "uuid": "another"}
    chat.lines.append(again)
    chat.reply("msg_2", text("So."))
    assert [said(record) for record in chat.read()] == [["user: Hi"], ["user: Hi", "assistant: Hello.", "user: And?"]]


def test_a_line_above_that_was_never_written_is_stepped_over():
    chat = Transcript()
    chat.user("Hi")
    chat.reply("msg_1", text("Hello."))
    chat.user("And?", parent="never-written")
    chat.reply("msg_2", text("So."))
    assert said(chat.read()[1]) == ["user: Hi", "assistant: Hello.", "user: And?"]


def test_lines_that_name_each_other_in_a_circle_end():
    chat = Transcript()
    chat.user("Hi", uuid="a", parent="b")
    chat.user("Ho", uuid="b", parent="a")
    chat.reply("msg_1", text("Hello."))
    assert said(chat.read()[0]) == ["user: HiHo"]


def test_agents_have_sessions_of_their_own():
    chat = Transcript()
    chat.user("Do it")
    (task,) = chat.reply("msg_1", call("a"))
    old = chat.user("Agent of an old version", parent=None, isSidechain=True, uuid="0123456789ab")
    chat.reply("msg_s1", text("Working."), parent=old, isSidechain=True)
    new = chat.user("Agent with an id", parent=None, isSidechain=True, agentId="ac47f8c")
    chat.reply("msg_s2", text("Working too."), parent=new, isSidechain=True, agentId="ac47f8c")
    chat.result("toolu_a", "done", parent=task)
    chat.reply("msg_2", text("Done."))
    records = chat.read()
    assert [record.session for record in records] == [SESSION, f"{SESSION}/01234567", f"{SESSION}/ac47f8c", SESSION]
    assert [said(record)[-1] for record in records] == [
        "user: Do it", "user: Agent of an old version", "user: Agent with an id", "tool: done",
    ]  # fmt: skip


def test_places_name_the_line_that_says_it():
    chat = Transcript()
    chat.user("Hi")
    (one,) = chat.reply("msg_1", text("Looking."))
    (two,) = chat.reply("msg_1", call("a"), parent=one)
    chat.result("toolu_a", "result a", parent=two)
    chat.user([text("So?"), text("Now?")])
    chat.reply("msg_2", text("Done."))
    record = chat.read()[-1]
    roles = [message["role"] for message in record.body["messages"]]
    assert roles[:3] == ["user", "assistant", "tool"]
    find = record.places.find
    assert find(("messages", 0, "content"), 1)[:2] == ("line 1: message.content", 1)
    assert find(("messages", 2, "content"), 2).path.startswith("line 4: message.content[0]")
    assert find(("messages", 1, "tool_calls", 0, "function", "arguments")).path.startswith("line 3: message.content[0]")
    assert find(("messages", 1, "content"), 0).path.startswith("line 2: message.content")
    asked = record.body["messages"][3]["content"]
    keys = ("messages", 3, "content") if isinstance(asked, str) else ("messages", 3, "content", 1, "text")
    assert find(keys, asked.index("Now?") if isinstance(asked, str) else 0)[:2] == (
        "line 5: message.content[1].text",
        0,
    )


def test_broken_lines_are_named_and_the_rest_is_read():
    chat = Transcript()
    chat.user("Hi")
    chat.reply("msg_1", text("Hello."))
    broken = chat.data + b'{"type": "assistant", "uuid":\n\xff\n[1]\n'
    chat = Transcript()
    chat.user("And?", parent="u001", uuid="v1")
    chat.reply("msg_2", text("So."), uuid="v2")
    records = read(broken + chat.data)
    assert [record.line for record in records if isinstance(record, Unreadable)] == [3, 4]
    assert [said(record)[-1] for record in records if isinstance(record, Record)] == ["user: Hi", "user: And?"]


def test_a_file_that_holds_the_end_of_a_conversation_alone_begins_there():
    chat = Transcript()
    chat.reply("msg_0", text("…"), parent="elsewhere")
    chat.user("And?")
    chat.reply("msg_1", text("So."))
    (record,) = chat.read()
    assert said(record) == ["assistant: …", "user: And?"]


def test_results_of_calls_that_were_never_written_are_left_out():
    chat = Transcript()
    chat.user("Hi")
    (one,) = chat.reply("msg_1", call("a"))
    chat.result("toolu_lost", "of a call that is missing", parent=one)
    chat.result("toolu_a", "result a", parent=one)
    chat.reply("msg_2", text("So."))
    assert said(chat.read()[1]) == ["user: Hi", "assistant: Basha", "tool: result a"]


def test_a_message_that_cannot_be_read_is_told_once_and_left_out():
    chat = Transcript()
    chat.user([{"type": "text", "text": 5}])
    chat.user("Hi")
    chat.reply("msg_1", text("Hello."))
    chat.user([text("And?"), {"type": "text"}])
    chat.reply("msg_2", text("So."))
    chat.user("Then?")
    chat.reply("msg_3", text("Well."))
    found = read(chat.data)
    told = [record for record in found if isinstance(record, Unreadable)]
    assert [(record.line, record.reason[:32]) for record in told] == [
        (1, "line 1: message.content[0].text:"[:32]),
        (4, "line 4: message.content[1].text:"[:32]),
    ]
    assert said(found[-1])[-2:] == ["assistant: So.", "user: Then?"]


def test_a_long_conversation_is_translated_once():
    """Messages are the same objects in every request that repeats them."""
    chat = Transcript()
    for number in range(30):
        chat.user(f"Question {number}")
        chat.reply(f"msg_{number}", text("Answer."))
    records = chat.read()
    assert len(records[-1].body["messages"]) == 59
    for earlier, later in pairwise(records):
        same = zip(earlier.body["messages"], later.body["messages"], strict=False)
        assert all(one is other for one, other in same)


def test_what_has_no_replies_has_no_requests():
    chat = Transcript()
    assert read(b'{"type": "summary", "summary": "A title", "leafUuid": "x"}\n') == []
    chat.bare(type="file-history-snapshot", messageId="m", snapshot={}, isSnapshotUpdate=False)
    chat.user("Hi")
    assert chat.read() == []


def test_it_is_read_line_by_line():
    taken = []

    def lines() -> Iterator[bytes]:
        chat = Transcript()
        for number in range(10_000):
            start = len(chat.lines)
            chat.user(f"Question {number}", parent=None)
            chat.reply(f"msg_{number}", text("Answer."))
            for line in chat.lines[start:]:
                taken.append(1)
                yield json.dumps(line).encode() + b"\n"

    found = read_transcript(lines_of(lines()), "session.jsonl")
    for _ in range(3):
        next(found)
    assert len(taken) <= 8


def test_a_reply_that_nothing_follows_does_not_hold_back_the_others():
    chat = Transcript()
    agent = chat.user("Agent", parent=None, isSidechain=True, agentId="a1")
    chat.reply("msg_s", text("Its last word."), parent=agent, isSidechain=True, agentId="a1")
    chat.last = None
    for number in range(1500):
        chat.user(f"Question {number}", parent=None)
        chat.reply(f"msg_{number}", text("Answer."))
    lines = iter([json.dumps(line).encode() + b"\n" for line in chat.lines])
    first = next(read_transcript(lines_of(lines), "session.jsonl"))
    assert first.session == f"{SESSION}/a1"
    assert sum(1 for _ in lines) > 1500


def work(chat: Transcript, name: str, turns: int, **fields: Any) -> None:
    """Turns of two parallel calls each, and a last word."""
    words = random.Random(name)

    def many(count: int) -> str:
        return " ".join(words.choice(WORDS) for _ in range(count))

    for turn in range(turns):
        (said_first,) = chat.reply(f"{name}_{turn}", text(many(30)), **fields)
        (one,) = chat.reply(f"{name}_{turn}", call(f"{name}{turn}a", more=many(10)), parent=said_first, **fields)
        (two,) = chat.reply(f"{name}_{turn}", call(f"{name}{turn}b", more=many(10)), parent=one, **fields)
        chat.result(f"toolu_{name}{turn}a", many(60), parent=one, **fields)
        chat.result(f"toolu_{name}{turn}b", many(60), parent=two, **fields)
    chat.reply(f"{name}_end", text("Done: " + many(20)), **fields)


WORDS = ("build", "test", "run", "error", "fix", "patch", "module", "import", "class", "value", "node", "file", "read")


def test_a_session_with_all_that_is_usual_has_no_findings(tmp_path: Path, tokenizer_folder: Path, capsys: Any) -> None:
    from agentcache.lint.cli import main

    chat = Transcript()
    chat.user("<system-reminder>" + "Be careful. " * 30 + "</system-reminder>", isMeta=True)
    chat.user("Please look at everything in the folder.")
    work(chat, "start", 5)
    end = chat.last
    chat.user("Now the left side.")
    work(chat, "left", 3)
    chat.user("No, the right side.", parent=end)
    work(chat, "right", 3)
    last = chat.last
    for agent, task in (("a1", "Find where it is read. "), ("a2", "Which tests fail, and why? ")):
        chat.user(task * 5, parent=None, isSidechain=True, agentId=agent)
        work(chat, agent, 3, isSidechain=True, agentId=agent)
    chat.last = last
    kept = [chat.user("One more thing."), *chat.reply("kept", text("Sure."))]
    metadata = {"preservedMessages": {"anchorUuid": "summary", "uuids": kept}}
    chat.add("system", subtype="compact_boundary", parent=None, uuid="boundary", compactMetadata=metadata)
    chat.user("This session is being continued. " * 10, isCompactSummary=True, uuid="summary")
    chat.user("Go on.")
    work(chat, "after", 4)
    path = tmp_path / "session.jsonl"
    path.write_bytes(chat.data)
    code = main(
        [str(path), "--tokenizer", str(tokenizer_folder), "--output-format", "json", "--statistics", "--ignore", "AC5"]
    )
    told = json.loads(capsys.readouterr().out)
    assert (code, told["findings"]) == (0, [])
    assert (told["statistics"]["requests"], told["statistics"]["sessions"]) == (28, 3)


LINE = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["user", "assistant", "system", "summary", "odd"]),
        "uuid": st.sampled_from(["a", "b", "c", "d"]) | st.none() | st.integers(),
        "parentUuid": st.sampled_from(["a", "b", "c", "d", "never"]) | st.none() | st.integers(),
        "isSidechain": st.booleans(),
        "agentId": st.sampled_from(["x", None, 5]),
        "sessionId": st.sampled_from(["s", 5]),
        "subtype": st.just("compact_boundary"),
        "compactMetadata": st.fixed_dictionaries(
            {},
            optional={
                "preservedMessages": st.fixed_dictionaries(
                    {"uuids": st.lists(st.sampled_from(["a", "b", "c", 5]))},
                    optional={"anchorUuid": st.sampled_from(["a", "d", 5])},
                ),
                "preservedSegment": st.dictionaries(
                    st.sampled_from(["headUuid", "anchorUuid", "tailUuid"]), st.sampled_from(["a", "b", "c", None])
                ),
            },
        )
        | st.integers(),
        "message": st.fixed_dictionaries(
            {},
            optional={
                "role": st.sampled_from(["user", "assistant", 5]),
                "id": st.sampled_from(["m1", "m2", "", 7, None]),
                "model": st.sampled_from(["claude", "<synthetic>", 5]),
                "usage": st.none() | st.dictionaries(st.sampled_from(["input_tokens"]), st.text() | st.integers()),
                "content": st.text(max_size=3)
                | st.integers()
                | st.lists(
                    st.just(text("x")) | st.just(call("a"))
                    | st.just({"type": "tool_result", "tool_use_id": "toolu_a", "content": [text("r")]})
                    | st.dictionaries(st.sampled_from(["type", "text", "tool_use_id"]), st.integers() | st.lists(st.text())),
                    max_size=3,
                ),
            },
        )
        | st.text(),
    },
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(LINE, max_size=10))
def test_any_lines_give_records_or_reasons(values):
    data = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    for record in read_transcript(lines_of(iter([data])), "session.jsonl"):
        assert isinstance(record, (Record, Unreadable)) and record.line <= len(values)
        if isinstance(record, Record):
            assert record.body["messages"]
            record.places.find(("messages", len(record.body["messages"]) - 1, "content"), 0)
    for record in read(data):
        assert isinstance(record, (Record, Unreadable))
