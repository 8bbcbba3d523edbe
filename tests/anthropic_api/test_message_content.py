"""Content blocks: the events of a stream, put together by Anthropic's own client, are the message that is not streamed."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from types import SimpleNamespace

from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agentcache.chat.replies.formats import choose_format
from agentcache.request import FinishReason, SamplingParams, SequenceReport
from agentcache.server.anthropic.names import Names
from agentcache.server.anthropic.writer import MessagesWriter, Telling
from agentcache.server.bodies import ChatBody
from agentcache.server.generation import Delta
from agentcache.server.job import Job, Prompt
from agentcache.server.replies.reading import Reading
from agentcache.server.usage import Notes

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
REPORT = SequenceReport(40, 9, 20, 1, 4, 29, 0, None)
events_of = TypeAdapter(RawMessageStreamEvent).validate_python

fragments = st.sampled_from([
    "<think>", "</think>", "so ", "\n", "Let me look.", "é😀", "<tool_call>", "</tool_call>",
    '{"name": "read", "arguments": {"path": "a.py", "n": [1, 2.5, null]}}', '{"name": "read", "arguments": {"pa',
    '{"name": "read", "arguments": {"a": 1, oops}}', "<tool", '{"name": "read", "arguments": "no json"}', "{}",
])  # fmt: skip
replies = st.lists(fragments, max_size=8).map("".join)


class Ended:
    """Nothing is left to do."""

    def started(self, generation):
        pass

    async def finish(self, choices):
        return Notes()

    def drop(self):
        pass


def writer_of(*, streaming: bool, telling: Telling) -> MessagesWriter:
    reading = Reading(choose_format("", "hermes"), TOOLS, ("<think>", "</think>"), False, "seed")
    body = ChatBody(messages=[{"role": "user", "content": "hi"}], stream=streaming)
    job = Job(body, [Prompt([1] * 40)], SamplingParams(), b"", b"", Ended(), reading=reading, id="1")
    info = SimpleNamespace(model_name="m", page_size=16)
    return MessagesWriter(job, SimpleNamespace(engine=SimpleNamespace(info=info)), telling)


def delta(text: str, finish: FinishReason | None = None) -> Delta:
    return Delta(0, [text], finish_reason=finish, report=None if finish is None else REPORT)


def whole(text: str, finish: FinishReason, telling: Telling) -> dict:
    writer = writer_of(streaming=False, telling=telling)
    asyncio.run(writer.gather([delta(text, finish)]))
    return json.loads(json.dumps(writer.whole()))


def streamed(parts: list[str], finish: FinishReason, telling: Telling) -> list[dict]:
    writer = writer_of(streaming=True, telling=telling)
    raw = writer.opening()
    for i, part in enumerate(parts):
        deltas = [delta(part, finish if i + 1 == len(parts) else None)]
        asyncio.run(writer.gather(deltas))
        raw += b"".join(writer.events(deltas))
    raw += writer.ending()
    told = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


def accumulated(told: list[dict]) -> dict:
    snapshot, buffers = None, {}
    for event in told:
        if event["type"] != "ping":
            snapshot = accumulate_event(event=events_of(event), current_snapshot=snapshot, json_bufs=buffers)
    return snapshot.to_dict()


@settings(max_examples=80, deadline=None)
@given(
    replies,
    st.lists(st.integers(0, 120), max_size=10),
    st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    st.booleans(),
)
def test_the_events_add_up_to_the_whole_message_however_the_text_is_cut(text, places, finish, shown):
    telling = Telling(Names([]), max_tokens=9, show_thinking=shown)
    ends = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    parts = [text[start:end] for start, end in pairwise(ends)] or [""]
    message, told = whole(text, finish, telling), streamed(parts, finish, telling)
    client = accumulated(told)
    for key in ("id", "type", "role", "model", "content", "stop_reason", "stop_sequence"):
        assert client[key] == message[key], key
    figures = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    assert [client["usage"][key] for key in figures] == [message["usage"][key] for key in figures] == [8, 20, 12, 9]
    assert told[-2]["agentcache"] == message["agentcache"]


@settings(max_examples=25, deadline=None)
@given(replies)
def test_blocks_are_numbered_and_closed_in_order(text):
    told = streamed(list(text) or [""], FinishReason.STOP, Telling(Names([])))
    open_block, index = None, -1
    for event in told:
        kind = event["type"]
        if kind == "content_block_start":
            assert open_block is None and event["index"] == index + 1
            open_block = index = event["index"]
        elif kind == "content_block_delta":
            assert event["index"] == open_block
        elif kind == "content_block_stop":
            assert event["index"] == open_block
            open_block = None
    assert open_block is None and index >= 0
    assert [told[0]["type"], *(event["type"] for event in told[-2:])] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


def test_thinking_text_and_calls_are_blocks_of_their_own():
    text = '<think>so</think>Let me look.<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'
    message = whole(text, FinishReason.STOP, Telling(Names([])))
    thinking, said, call = message["content"]
    assert thinking["thinking"] == "so" and thinking["signature"]
    assert said == {"type": "text", "text": "Let me look."}
    assert call["type"] == "tool_use" and call["name"] == "read" and call["input"] == {"path": "a.py"}
    assert message["stop_reason"] == "tool_use"


def test_thinking_that_nobody_wants_to_see_is_only_signed():
    (thinking, said) = whole("<think>so</think>Hi", FinishReason.STOP, Telling(Names([]), show_thinking=False))[
        "content"
    ]
    assert thinking["thinking"] == "" and thinking["signature"] and said["text"] == "Hi"


def test_a_reply_that_was_cut_says_by_what():
    cut = [whole("a", FinishReason.LENGTH, Telling(Names([]), max_tokens=limit))["stop_reason"] for limit in (9, 10)]
    assert cut == ["max_tokens", "model_context_window_exceeded"]
