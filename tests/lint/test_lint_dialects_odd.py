"""Any JSON on a line is a request or is named as none; nothing that stands in a request gives a traceback."""

from __future__ import annotations

import copy
import json
from typing import Any

from dialect_bodies import ANTHROPIC, CHAT, RESPONSES
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.lint.readers import read_records
from agentcache.lint.records import Record, Unreadable


def read_lines(*values: Any) -> list[Record | Unreadable]:
    return list(read_records([json.dumps(value).encode() for value in values], "x.jsonl"))  # type: ignore[arg-type]


def strings(value: Any, keys: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], str]]:
    if isinstance(value, str):
        return [(keys, value)]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in inner for found in strings(item, (*keys, key))]


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places_in(item, (*path, key)))]


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from([
    "messages", "role", "content", "user", "assistant", "tools", "type", "text", "input", "prompt", "system", "body", "request",
    "response", "choices", "message", "usage", "output", "headers", "tool_use", "tool_result", "metadata", "agentcache_lint",
])  # fmt: skip
shaped = st.recursive(
    st.none() | st.integers(-2, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)
BLOCKS = {"role": "assistant", "content": [{"type": "text", "text": "a"}], "usage": {"input_tokens": 1}}
CALLED = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
CHUNK = {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{"}}]}}]}
ANSWERED = [
    {"request": CHAT, "response": {"body": {"choices": [{"message": {"content": "a"}, "token_ids": [1]}], "usage": {}}}},
    {"body": ANTHROPIC, "response": BLOCKS},
    {"body": RESPONSES, "response": {"id": "resp_1", "output": [CALLED]}},
    {**CHAT, "response": [CHUNK]},
]  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(odd | shaped)
def test_any_json_is_a_record_or_unreadable(value):
    found = read_lines(value)
    assert found and all(isinstance(one, (Record, Unreadable)) for one in found)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from([CHAT, ANTHROPIC, RESPONSES, *ANSWERED]), st.data())
def test_whatever_stands_in_a_place_the_request_is_read_or_named(body, data):
    changed = copy.deepcopy(body)
    path = data.draw(st.sampled_from([path for path in places_in(changed) if path]))
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = data.draw(odd | shaped)
    (found,) = read_lines(changed)
    if isinstance(found, Record):
        for keys, text in strings(dict(found.body)):
            found.places.find(keys, len(text) // 2)
    else:
        assert found.reason


def test_what_is_nested_too_deep_is_unreadable_or_read():
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    for body in ({"input": [deep]}, {"messages": [{"role": "user", "content": [{"type": "image", "source": deep}]}]}):
        (found,) = read_lines(body)
        assert isinstance(found, (Record, Unreadable))
