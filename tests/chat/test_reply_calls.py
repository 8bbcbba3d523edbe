"""Calls in the four wire formats: each case is read whole and in every cut, and must come to the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reply_fixtures import HARD, THINK, as_object, cuts, message, read, reader

from agentcache.chat.replies.formats import choose_format
from agentcache.chat.replies.pieces import CallArguments

Calls = list[tuple[str, str]]

# format, reply, content, calls
CASES: list[tuple[str, str, str, Calls]] = [
    # -- hermes
    ("hermes", "Just text.\n", "Just text.\n", []),
    ("hermes", "  Text with space around \n", "  Text with space around \n", []),
    (
        "hermes",
        f'<tool_call>\n{{"name": "look", "arguments": {HARD}}}\n</tool_call>',
        "",
        [("look", HARD)],
    ),
    (
        "hermes",
        'Let me look.\n\n<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>{"name":"wait","arguments":{}}</tool_call>\nDone. \n',
        "Let me look.\n\nDone. \n",
        [("look", '{"a": 1}'), ("wait", "{}")],
    ),
    ("hermes", 'Hi <tool_call>{"name": "look"}</tool_call>\n', "Hi", [("look", "{}")]),
    ("hermes", '\n<tool_call>{"name": "look"}</tool_call>\nHi', "Hi", [("look", "{}")]),
    ("hermes", 'a<tool_call>{"name": "look"}</tool_call>\n\nb', "a\n\nb", [("look", "{}")]),
    ("hermes", "a <tool_ that is text, <tool_call and </tool_c", "a <tool_ that is text, <tool_call and </tool_c", []),
    ("hermes", "ends in half a marker <tool_cal", "ends in half a marker <tool_cal", []),
    ("hermes", "<<tool_call>{}", "<{}", []),
    ("hermes", '<tool_call>{"name": "nobody", "arguments": {"a": 1}}</tool_call>', "", [("nobody", '{"a": 1}')]),
    ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "look"}</tool_call>', "", [("look", '{"a": 1}')]),
    (
        "hermes",
        '<tool_call>{"id": 7, "x": {"name": "no", "y": [1, "]"]}, "name": "look", "arguments": {}, "z": null}</tool_call>',
        "",
        [("look", "{}")],
    ),
    ("hermes", '<tool_call>{"name": "look", "name": "wait", "arguments": {}}</tool_call>', "", [("look", "{}")]),
    ("hermes", '<tool_call>{"name": "look", "arguments": {}, "arguments": {"b": 2}}</tool_call>', "", [("look", "{}")]),
    ("hermes", '<tool_call>{"name": "look", "parameters": {"a": 1}}</tool_call>', "", [("look", '{"a": 1}')]),
    (
        "hermes",
        '<tool_call>{"type": "function", "function": {"name": "look", "arguments": {"a": {}}}}</tool_call>',
        "",
        [("look", '{"a": {}}')],
    ),
    ("hermes", '<tool_call>{"function": "look", "arguments": {"a": 1}}</tool_call>', "", [("look", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "l\\u006f\\u006fk", "arguments": {}}</tool_call>', "", [("look", "{}")]),
    ("hermes", '<tool_call>{"name": "look", "arguments": {path: a.py}}</tool_call>', "", [("look", "{path: a.py}")]),
    (
        "hermes",
        '<tool_call>{"name": "look", "arguments": not json, at all}\n</tool_call>b',
        "b",
        [("look", "not json")],
    ),
    ("hermes", '<tool_call>{"name": "look", "arguments": 12 }</tool_call>', "", [("look", "12")]),
    ("hermes", '<tool_call>{"name": "look", "arguments": }</tool_call>', "", [("look", "{}")]),
    # brackets and markers that are missing, or too many
    ("hermes", '<tool_call>{"name": "look", "arguments": {"a": 1}</tool_call>b', "b", [("look", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "look", "arguments": {"a": 1</tool_call>b', "b", [("look", '{"a": 1')]),
    ("hermes", '<tool_call>{"name": "look", "arguments": {}}}}\n</tool_call>b', "b", [("look", "{}")]),
    (
        "hermes",
        '<tool_call>{"name": "look", "arguments": {"a": "open}\n</tool_call>\n<tool_call>{"name": "wait"}</tool_call>',
        "",
        [("look", '{"a": "open}'), ("wait", "{}")],
    ),
    (
        "hermes",
        '<tool_call>\n{"name": "look", "arguments": {}}\n<tool_call>\n{"name": "wait", "arguments": {}}',
        "",
        [("look", "{}"), ("wait", "{}")],
    ),
    (
        "hermes",
        '<tool_call>[{"name": "look", "arguments": {}}, {"name": "wait", "arguments": {}}]</tool_call>',
        "",
        [("look", "{}"), ("wait", "{}")],
    ),
    # no call at all between markers
    ("hermes", '<tool_call>{"city": "Bern"}</tool_call>', '{"city": "Bern"}', []),
    ("hermes", "<tool_call>look it up</tool_call> or not", "look it up or not", []),
    ("hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>', '{"name": 5, "arguments": {}}', []),
    # cut by length
    ("hermes", '<tool_call>{"name": "look", "arguments": {"a": "b', "", [("look", '{"a": "b')]),
    ("hermes", '<tool_call>{"name": "look", "argum', "", [("look", "")]),
    ("hermes", '<tool_call>{"name": "look", "arguments": tr', "", [("look", "tr")]),
    ("hermes", '<tool_call>{"name": "lo', '{"name": "lo', []),
    ("hermes", "<tool_call>\n", "", []),
    ("hermes", '<tool_call>{"name": "look", "arguments": {"a": 1}}\n</tool_', "", [("look", '{"a": 1}')]),
    # arguments as a JSON string
    (
        "hermes",
        '<tool_call>{"name": "look", "arguments": "{\\"a\\": \\"\\u00fc\\ud83d\\udc4b\\\\n\\"}"}</tool_call>',
        "",
        [("look", '{"a": "ü👋\\n"}')],
    ),
    ("hermes", '<tool_call>{"name": "look", "arguments": "{\\"a\\": \\"\\ud83', "", [("look", '{"a": "\\ud83')]),
    ("hermes", '<tool_call>{"name": "look", "arguments": "hello"}</tool_call>', "", [("look", '"hello"')]),
    ("hermes", '<tool_call>{"name": "look", "arguments": ""}</tool_call>', "", [("look", "{}")]),
    ("hermes", '<tool_call>{"name": "look", "arguments": null}</tool_call>', "", [("look", "{}")]),
    # -- llama
    ("llama", f'{{"name": "look", "parameters": {HARD}}}', "", [("look", HARD)]),
    (
        "llama",
        '<|python_tag|>{"name": "look", "parameters": {"a": 1}}; {"name": "wait", "parameters": {}}',
        "",
        [("look", '{"a": 1}'), ("wait", "{}")],
    ),
    (
        "llama",
        '{"name": "look", "parameters": {}}\n{"type": "function", "name": "wait", "parameters": {}}\n\nDone.',
        "Done.",
        [("look", "{}"), ("wait", "{}")],
    ),
    ("llama", 'I look.\n{"name": "look", "parameters": {}}', "I look.", [("look", "{}")]),
    ("llama", 'I look. <|python_tag|>{"name": "look", "parameters": {}}', "I look.", [("look", "{}")]),
    ("llama", 'It is {"name": "look", "parameters": {}} then', 'It is {"name": "look", "parameters": {}} then', []),
    ("llama", '{"name": "nobody", "parameters": {}}', '{"name": "nobody", "parameters": {}}', []),
    ("llama", '{"parameters": {"a": 1}, "name": "nobody"} x', '{"parameters": {"a": 1}, "name": "nobody"} x', []),
    ("llama", '{"city": "Bern", "name": "look"}\n', '{"city": "Bern", "name": "look"}\n', []),
    ("llama", "{}", "{}", []),
    ("llama", "[\n  1, 2]\n{ x", "[\n  1, 2]\n{ x", []),
    ("llama", '{"name": "lo', '{"name": "lo', []),
    ("llama", '{"name": "look", "parameters": {"a', "", [("look", '{"a')]),
    ("llama", "half <|python_ta", "half <|python_ta", []),
    # -- json
    (
        "json",
        '[{"name": "look", "arguments": {"a": 1}},\n {"name": "wait", "arguments": {}}]\nDone.',
        "Done.",
        [("look", '{"a": 1}'), ("wait", "{}")],
    ),
    (
        "json",
        f'So:\n```json\n{{"name": "look", "arguments": {HARD}}}\n```\nDone.',
        "So:\nDone.",
        [("look", HARD)],
    ),
    ("json", '```json\n{"a": 1}\n```\n', '```json\n{"a": 1}\n```\n', []),
    ("json", "```python\nx = {}\n```", "```python\nx = {}\n```", []),
    ("json", "``", "``", []),
    ("json", '```\n[ {"name": "look"}', "", [("look", "{}")]),
    # -- mistral
    (
        "mistral",
        f'[TOOL_CALLS][{{"name": "look", "arguments": {HARD}}}, {{"name": "wait", "arguments": {{}}, "id": "a"}}]',
        "",
        [("look", HARD), ("wait", "{}")],
    ),
    ("mistral", 'Hi.\n[TOOL_CALLS] [{"name": "look"}]\nDone.', "Hi.\nDone.", [("look", "{}")]),
    (
        "mistral",
        f"Hi.[TOOL_CALLS]look[ARGS]{HARD}[TOOL_CALLS]wait[ARGS]{{}}",
        "Hi.",
        [("look", HARD), ("wait", "{}")],
    ),
    ("mistral", '[TOOL_CALLS]look{"a": 1}', "", [("look", '{"a": 1}')]),
    ("mistral", "[TOOL_CALLS]wait[TOOL_CALLS]wait[ARGS][TOOL_CALLS]wait[ARGS]{}", "", [("wait", "{}")] * 3),
    ("mistral", '[TOOL_CALLS]look[ARGS]{"a": [1', "", [("look", '{"a": [1')]),
    ("mistral", '[TOOL_CALLS][{"name": "look", "arguments": {"a', "", [("look", '{"a')]),
    ("mistral", "[TOOL_CALLS]lo", "lo", []),
    ("mistral", "[TOOL_CALLS]I would rather talk.\nYes.", "I would rather talk.\nYes.", []),
    ("mistral", "see [TOOL_ and [TOOL_CALLS", "see [TOOL_ and [TOOL_CALLS", []),
]


@pytest.mark.parametrize(("name", "reply", "content", "calls"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_reply_comes_to_the_same_however_it_is_cut(name: str, reply: str, content: str, calls: Calls) -> None:
    format = choose_format("", name)
    whole = read(reader(format), [reply])
    found = message(whole)
    assert found.content == content
    assert [(call.name, call.arguments) for call in found.calls] == calls
    assert reader(format).read(reply) == found
    for parts in cuts(reply):
        assert read(reader(format), parts) == whole, parts


@pytest.mark.parametrize(("name", "reply", "content", "calls"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_reasoning_before_a_reply_changes_nothing_in_it(name: str, reply: str, content: str, calls: Calls) -> None:
    format = choose_format("", name)
    thoughtful = f"<think>\nIs {{ it? <tool_call>\n</think>\n\n{reply}"
    found = reader(format, THINK).read(thoughtful)
    assert found.reasoning == "Is { it? <tool_call>"
    assert found.content == content.lstrip() or not content.strip()
    assert [(call.name, call.arguments) for call in found.calls] == calls
    characters = read(reader(format, THINK), list(thoughtful))
    assert message(characters) == found


@pytest.mark.parametrize("name", ["hermes", "llama", "mistral", "json"])
@given(data=st.data())
def test_no_text_breaks_a_reader_and_no_cut_changes_what_it_reads(name: str, data: st.DataObject) -> None:
    fragments = st.sampled_from(
        [
            *(
                "<tool_call>",
                "</tool_call>",
                "[TOOL_CALLS]",
                "[ARGS]",
                "[CALL_ID]",
                "<|python_tag|>",
                "<think>",
                "</think>",
            ),
            *(
                '{"name": "look"',
                '{"name":"',
                "look",
                '", ',
                '"arguments": ',
                '"parameters":',
                "{",
                "}",
                "[",
                "]",
                '"',
                "\\",
            ),
            *(
                "\n",
                " ",
                ",",
                ":",
                ";",
                "```json\n",
                "```",
                "\\u",
                "d83d",
                "\\n",
                "null",
                "1",
                "x",
                "abcdefghi",
                "\u00a0",
            ),
        ]
    )
    reply = "".join(data.draw(st.lists(fragments, max_size=40)))
    marks = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=8)))
    parts = [reply[a:b] for a, b in zip([0, *marks], [*marks, len(reply)])]
    opened = data.draw(st.booleans())
    format = choose_format("", name)
    whole = read(reader(format, THINK, starts_open=opened), [reply])
    assert read(reader(format, THINK, starts_open=opened), parts) == whole
    assert read(reader(format, THINK, starts_open=opened), list(reply)) == whole


def test_arguments_go_out_as_they_come_not_at_the_end() -> None:
    given_reader = reader(choose_format("", "hermes"))
    given_reader.push('<tool_call>{"name": "look", "arguments": {"text": "')
    assert given_reader.push("some words") == [CallArguments(0, "some words")]


def test_json_that_is_no_call_is_not_held_back() -> None:
    given_reader = reader(choose_format("", "llama"))
    pieces = given_reader.push('{"city": ')
    assert message(pieces).content == '{"city":'


def test_hard_arguments_are_still_json() -> None:
    found = reader(choose_format("", "hermes")).read(f'<tool_call>{{"name": "look", "arguments": {HARD}}}</tool_call>')
    assert as_object(found.calls[0].arguments)["city"] == "Zürich"


def test_ids_depend_on_the_reply_and_on_the_place_of_the_call_alone() -> None:
    reply = '<tool_call>{"name": "wait"}</tool_call><tool_call>{"name": "wait"}</tool_call>'
    first = reader(choose_format("", "hermes")).read(reply)
    assert first == reader(choose_format("", "hermes")).read(reply)
    assert len({call.id for call in first.calls}) == 2
    assert all(call.id.startswith("call_") for call in first.calls)


def test_an_id_of_the_right_shape_that_the_model_writes_is_the_calls_id() -> None:
    found = reader(choose_format("", "mistral")).read(
        "[TOOL_CALLS]wait[CALL_ID]fJ2kPq93b[ARGS]{}[TOOL_CALLS]wait[CALL_ID]no good[ARGS]{}"
    )
    first, second = (call.id for call in found.calls)
    assert first == "fJ2kPq93b"
    assert len(second) == 9 and second.isalnum() and second != first


def test_lone_surrogates_reach_no_name_and_no_arguments() -> None:
    reply = '<tool_call>{"name": "l\\ud800k", "arguments": "{\\"a\\": \\"\\udc00\\"}"}</tool_call>'
    (call,) = reader(choose_format("", "hermes")).read(reply).calls
    assert call.name == "l\ufffdk"
    assert call.arguments == '{"a": "\ufffd"}'
