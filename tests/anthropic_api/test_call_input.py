"""The input of a call: always the beginning of one JSON object, whatever the model wrote."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from agentcache.server.call_input import CallInput

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=4)


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def sent(parts: list[str]) -> list[str]:
    read = CallInput()
    return [*map(read.push, parts), read.end()]


@settings(max_examples=60, deadline=None)
@given(objects, st.booleans(), st.sampled_from([None, 2]), st.lists(st.integers(0, 200), max_size=8))
def test_json_goes_out_as_it_was_written(value, escaped, indent, places):
    text = json.dumps(value, ensure_ascii=escaped, indent=indent)
    assert "".join(sent(cut(text, places))) == text


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(st.text(alphabet='{}[]",:\\ud8dcx0123456789-.eE \ntrufalsn'), objects.map(json.dumps)),
    st.integers(0, 300),
    st.lists(st.integers(0, 200), max_size=8),
)
def test_every_beginning_can_be_parsed_and_the_whole_is_an_object(text, end, places):
    parts = sent(cut(text[:end], places))
    so_far = ""
    for part in parts:
        so_far += part
        if so_far:
            from_json(so_far, allow_partial="trailing-strings")
    assert isinstance(json.loads(so_far), dict)
    assert so_far == "".join(sent([text[:end]]))
    json.dumps(json.loads(so_far), ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", {}),
        ("null", {}),
        ("[1, 2]", {}),
        ("oops", {}),
        ('{"path": "a.py"', {"path": "a.py"}),
        ('{"path": "a.p', {"path": "a.p"}),
        ('{"path": "a.py", "li', {"path": "a.py"}),
        ('{"path": "a.py", "lines": 1', {"path": "a.py", "lines": 1}),
        ('{"path": "a.py", "lines": -', {"path": "a.py"}),
        ('{"path": "a.py" oops}', {"path": "a.py"}),
        ('{"path": "a.py"} and more', {"path": "a.py"}),
        ('{"ok": tru', {}),
        ('{"n": 1e999}', {}),
        ('{"n": [1, [2, {"m": 3', {"n": [1, [2, {"m": 3}]]}),
        ('{"n": [1,]}', {"n": [1]}),
        ('{"text": "two\nlines"}', {"text": "two\nlines"}),
        (r'{"text": "\ud83d\ude00 \ud83d!"}', {"text": "\U0001f600 \ufffd!"}),
        (r'{"text": "\ud83d', {"text": "\ufffd"}),
        (r'{"text": "\x"}', {"text": ""}),
    ],
)
def test_what_is_cut_or_no_json_is_told_as_far_as_it_goes(written, told):
    assert json.loads("".join(sent(list(written)))) == told


def test_what_is_nested_deeper_than_a_body_may_be_is_left_out():
    told = json.loads("".join(sent(['{"a": ' + "[" * 100 + "]" * 100 + "}"])))
    assert json.dumps(told).count("[") < 60
