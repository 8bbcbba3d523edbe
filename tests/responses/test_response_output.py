"""Pieces of replies, the items they make and the events that tell of them; checked with OpenAI's own types."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from agentcache.chat.replies.formats import choose_format
from agentcache.chat.replies.pieces import CallArguments, CallStart, Content, Reasoning
from agentcache.chat.replies.reader import ReplyReader
from agentcache.server.responses.output import OutputItems
from agentcache.server.responses.tools import Toolbox, free_text, read_tools

EVENT = TypeAdapter(ResponseStreamEvent)
TOOLS = read_tools(
    [
        {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}},
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "agents", "description": "d", "tools": [{"type": "function", "name": "spawn"}]},
    ]
)


def told(pieces, toolbox: Toolbox = TOOLS, *, cut: bool = False):
    """Items and events of a reply."""
    output = OutputItems("seed", toolbox)
    events = [event for piece in pieces for event in output.add(piece)] + list(output.end(cut=cut))
    return output.json(), events


def rebuilt(events):
    """What a client that knows the deltas alone makes of a stream: kind and text of each item."""
    items: dict[int, list[str]] = {}
    for event in events:
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(items)
            items[event["output_index"]] = [event["item"]["type"], ""]
        elif event["type"].endswith(".delta"):
            items[event["output_index"]][1] += event["delta"]
    return list(items.values())


def text_of(item) -> str:
    if "content" in item:
        return "".join(part["text"] for part in item["content"])
    return item["arguments"] if "arguments" in item else item["input"]


def check_stream(items, events) -> None:
    """Everything opened is closed, in order, and the deltas are the whole."""
    assert rebuilt(events) == [[item["type"], text_of(item)] for item in items]
    for index, item in enumerate(items):
        mine = [event for event in events if event["output_index"] == index]
        assert mine[0]["type"] == "response.output_item.added"
        assert mine[0]["item"]["status"] == "in_progress"
        assert mine[-1] == {"type": "response.output_item.done", "output_index": index, "item": item}
        assert {event.get("item_id", item["id"]) for event in mine} == {item["id"]}
    assert [event["output_index"] for event in events] == sorted(event["output_index"] for event in events)
    for number, event in enumerate(events):
        EVENT.validate_python({**event, "sequence_number": number}, strict=True)


PIECE = st.one_of(
    st.builds(Content, st.text(min_size=1, max_size=5)),
    st.builds(Reasoning, st.text(min_size=1, max_size=5)),
    st.tuples(st.sampled_from(["read", "patch", "agents__spawn", "unheard_of"]), st.lists(st.text(max_size=4))),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECE, max_size=6), st.booleans())
def test_any_reply_opens_and_closes_its_items_in_order(found, cut):
    pieces = []
    calls = 0
    for piece in found:
        if isinstance(piece, tuple):
            pieces.append(CallStart(calls, f"call_{calls}", piece[0]))
            pieces += [CallArguments(calls, text) for text in piece[1]]
            calls += 1
        else:
            pieces.append(piece)
    items, events = told(pieces, cut=cut)
    check_stream(items, events)
    assert [item["status"] for item in items] == ["completed"] * (len(items) - 1) + [
        "incomplete" if cut else "completed"
    ]


CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "añ.py", "n": [1, 2]}}\n</tool_call>'
REPLY = f"<think>so it is\n…</think>\n\nLet me <b>look</b>. {CALL}\n{CALL}"
HERMES = choose_format("<tool_call>", "hermes")


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(1, len(REPLY) - 1), max_size=30))
def test_the_deltas_of_every_chunking_are_the_whole_reply(cuts):
    def pieces(text_cuts):
        reader = ReplyReader(HERMES, TOOLS.chat, ("<think>", "</think>"), False, "seed")
        places = [0, *sorted(text_cuts), len(REPLY)]
        found = [piece for a, b in pairwise(places) for piece in reader.push(REPLY[a:b])]
        return found + reader.flush()

    whole, _ = told(pieces(()))
    items, events = told(pieces(cuts))
    assert items == whole
    check_stream(items, events)
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call", "function_call"]
    assert text_of(items[2]) == '{"path": "añ.py", "n": [1, 2]}'


def test_a_reply_of_nothing_is_an_empty_message():
    items, events = told([])
    check_stream(items, events)
    assert [(item["type"], text_of(item)) for item in items] == [("message", "")]


def test_calls_are_named_as_the_client_named_its_tools():
    start = [CallStart(0, "call_0", "agents__spawn"), CallStart(1, "call_1", "patch")]
    items, _ = told([start[0], CallArguments(0, "{}"), start[1], CallArguments(1, '{"input": "*** a\\n"}')])
    assert [item["name"] for item in items] == ["spawn", "patch"]
    assert items[0]["namespace"] == "agents"
    assert (items[1]["type"], items[1]["input"]) == ("custom_tool_call", "*** a\n")


def test_free_text_of_odd_arguments_is_what_was_written():
    assert free_text('{"input": "a"}') == "a"
    for odd in ('{"input": 1}', '{"other": "a"}', "[1]", "not json", '{"inp'):
        assert free_text(odd) == odd
    for cut in ('{"input": "a', '{"input": "a"', '{"input": "a\\u00', '{"input": "a"} and more'):
        assert free_text(cut) == "a"
    assert free_text('{"input": "\\ud83d"}') == "\ufffd"  # half a pair can be sent to nobody


def test_items_are_what_openai_says_a_response_holds():
    items, _ = told([Reasoning("r"), Content("c"), CallStart(0, "call_0", "read"), CallArguments(0, "{}")])
    body = {
        "id": "resp_1", "object": "response", "created_at": 1.0, "model": "m", "output": items,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    parsed = TypeAdapter(Response).validate_python(body, strict=True)
    assert json.loads(parsed.model_dump_json(include={"output"}, exclude_unset=True))["output"] == items
