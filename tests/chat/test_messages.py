from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from chat_fixtures import CHATML

from agentcache.chat.messages import normalize_messages
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import ChatTemplateError

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"b": "é", "a": [1, {}]}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"}
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Look at <it> ü", "parameters": {"type": "object", "properties": {}}},
}
NATIVE = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{% if m.content is not none %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}"
    "<call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v | tojson }}{% endfor %}</call>"
    "{% endfor %}{% endfor %}"
)

CALLS = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ ARGUMENTS }}){% endfor %}{% endfor %}"


@pytest.fixture(scope="module")
def renderer(smol: Tokenizer) -> ChatRenderer:
    return ChatRenderer(smol)


def text(renderer: ChatRenderer, *messages: Any, **options: Any) -> str:
    return renderer.render(list(messages), **options).text


@pytest.mark.parametrize("role", ["user", "system", "assistant"])
def test_text_parts_are_the_joined_string(renderer: ChatRenderer, role: str) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    listed = renderer.render([USER, {"role": role, "content": parts}])
    joined = renderer.render([USER, {"role": role, "content": "one two"}])
    assert listed == joined and "one two" in listed.text


def test_null_missing_and_empty_content_are_the_same_and_the_message_is_kept(renderer: ChatRenderer) -> None:
    forms = [{"role": "assistant", "content": None}, {"role": "assistant"}, {"role": "assistant", "content": ""}]
    texts = {text(renderer, USER, {**form, "tool_calls": [CALL]}, RESULT) for form in forms}
    assert len(texts) == 1
    assert '<tool_call>{"name": "look", "arguments": {"b": "é", "a": [1, {}]}}</tool_call>' in texts.pop()
    assert {text(renderer, USER, form, USER).count("<|im_start|>assistant\n<|im_end|>") for form in forms} == {1}


def test_keys_without_a_value_never_reach_the_prompt(renderer: ChatRenderer) -> None:
    empty = {"name": None, "refusal": None, "annotations": [], "audio": None, "tool_calls": None, "function_call": None}
    nested = {"id": None, "type": "function", "function": {"name": "look", "arguments": None}}
    bare = text(renderer, USER, {"role": "assistant", "content": "yes"})
    assert text(renderer, {**USER, "name": None}, {"role": "assistant", "content": "yes", **empty}) == bare
    assert "None" not in text(renderer, USER, {"role": "assistant", "tool_calls": [nested]}, RESULT)


def test_a_user_who_says_none_is_heard(renderer: ChatRenderer) -> None:
    assert "None of them" in text(renderer, {"role": "user", "content": "None of them"})


@pytest.mark.parametrize(
    ("messages", "param", "says"),
    [
        ([], "messages", "got an empty list, expected at least one message"),
        ("hi", "messages", "got a string, expected a list of messages"),
        (None, "messages", "got null"),
        ({"role": "user"}, "messages", "got an object, expected a list"),
        ([USER, "hi"], "messages[1]", "got a string, expected an object"),
        ([USER, USER, {"content": "x"}], "messages[2].role", "missing, expected one of system, developer, user"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role", "got 'wizard', expected one of"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role", "expected one of"),
        ([{"role": "user", "content": 7}], "messages[0].content", "got a number, expected a string"),
        ([{"role": "user", "content": {"a": 1}}], "messages[0].content", "got an object"),
        ([{"role": "user", "content": [True]}], "messages[0].content[0]", "got a boolean"),
        (
            [
                USER,
                {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]},
            ],
            "messages[1].content[1]",
            "got a part of type 'image_url', expected type 'text'",
        ),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0]", "'input_audio'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "got null"),
        ([{"role": "user", "content": "x", "name": 3}], "messages[0].name", "got a number, expected a string"),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls", "got a string, expected a list"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function", "got null"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}],
            "messages[0].tool_calls[0].function.arguments",
            "got a list, expected JSON text or an object",
        ),
    ],
)
def test_malformed_messages_are_refused_by_place(renderer: ChatRenderer, messages: Any, param: str, says: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        renderer.render(messages)
    assert caught.value.param == param
    assert str(caught.value).startswith(f"{param}: ") and says in str(caught.value)


@pytest.mark.parametrize(("tools", "param"), [("x", "tools"), ({}, "tools"), ([TOOL, 3], "tools[1]")])
def test_malformed_tools_are_refused_by_place(renderer: ChatRenderer, tools: Any, param: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        renderer.render([USER], tools=tools)
    assert caught.value.param == param


def test_normalising_changes_nothing_that_was_given() -> None:
    given = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    before = repr(given)
    normalize_messages([given])
    assert repr(given) == before


# -- roles


def test_developer_is_system_unless_the_template_knows_better(smol: Tokenizer, renderer: ChatRenderer) -> None:
    said = {"role": "developer", "content": "Be brief."}
    assert text(renderer, said, USER) == text(renderer, {**said, "role": "system"}, USER)
    assert "SmolLM" not in text(renderer, said, USER)
    own = ChatRenderer(smol, CHATML + "{% if messages[0].role == 'developer' %}!{% endif %}")
    assert text(own, said, USER).startswith("<|im_start|>developer\n") and text(own, said, USER).endswith("!")


def test_tool_and_function_results_pass_through_where_the_template_shows_them(renderer: ChatRenderer) -> None:
    for role in ("tool", "function"):
        assert f"<|im_start|>{role}\n21 degrees<|im_end|>" in text(renderer, USER, {**RESULT, "role": role})


def test_results_reach_a_template_that_has_no_place_for_them(smol: Tokenizer) -> None:
    strict = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}({{ m.role }}) {{ m.content }}\n{% endfor %}"
    )
    renderer = ChatRenderer(smol, strict)
    called = {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}
    assert text(
        renderer, USER, called, RESULT, {**RESULT, "content": "rain"}, {"role": "assistant", "content": "ok"}
    ) == (
        "(user) Hi\n"
        '(assistant) <tool_call>{"name": "look", "arguments": {"b": "é", "a": [1, {}]}}</tool_call>\n'
        '<tool_call>{"name": "look", "arguments": {"b": "é", "a": [1, {}]}}</tool_call>\n'
        "(user) <tool_response>21 degrees</tool_response>\n<tool_response>rain</tool_response>\n"
        "(assistant) ok\n"
    )
    with pytest.raises(ChatTemplateError, match=r"^roles must alternate$"):
        renderer.render([USER, USER])


def test_odd_orders_are_rendered_as_they_are(renderer: ChatRenderer) -> None:
    system = {"role": "system", "content": "S"}
    assert text(renderer, system, USER, system).count("<|im_start|>system\nS<|im_end|>") == 2
    assert text(renderer, USER, RESULT).count("21 degrees") == 1
    last = text(renderer, USER, {"role": "assistant", "content": "So"}, add_generation_prompt=False)
    assert last.endswith("<|im_start|>assistant\nSo<|im_end|>\n")


def test_a_further_turn_never_changes_what_stands_before(renderer: ChatRenderer) -> None:
    reply = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    history = [USER, reply, RESULT, {"role": "assistant", "content": "It is 21."}, USER]
    for tools in (None, [TOOL]):
        ids = [
            renderer.render(history[:k], tools=tools, add_generation_prompt=False).token_ids
            for k in range(1, len(history) + 1)
        ]
        assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(ids))


# -- tools


def test_arguments_reach_the_template_as_an_object_in_their_own_order(smol: Tokenizer) -> None:
    native = ChatRenderer(smol, NATIVE)
    assert '<call>look b="é" a=[1, {}]</call>' in text(
        native, USER, {"role": "assistant", "tool_calls": [CALL]}, RESULT
    )


def test_arguments_that_are_not_json_are_passed_on_as_text(smol: Tokenizer, renderer: ChatRenderer) -> None:
    broken = {**CALL, "function": {"name": "look", "arguments": '{"a": '}}
    called = {"role": "assistant", "content": "hm", "tool_calls": [broken]}
    assert 'hm\n<tool_call>{"name": "look", "arguments": "{\\"a\\": "}</tool_call>' in text(renderer, called)
    as_json = CALLS.replace("ARGUMENTS", "c.function.arguments | tojson")
    assert text(ChatRenderer(smol, as_json), called) == 'look("{\\"a\\": ")'
    assert r'<call>look arguments="{\"a\": "</call>' in text(ChatRenderer(smol, NATIVE), called)


def test_a_template_that_wants_arguments_as_text_gets_text(smol: Tokenizer) -> None:
    renderer = ChatRenderer(smol, CALLS.replace("ARGUMENTS", "'' + c.function.arguments"))
    for arguments in ('{"b": 1}', {"b": 1}):
        call = {"function": {"name": "f", "arguments": arguments}}
        assert text(renderer, {"role": "assistant", "tool_calls": [call]}) == 'f({"b": 1})'


def test_the_older_function_call_is_a_call(renderer: ChatRenderer) -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    new = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}
    assert text(renderer, USER, old) == text(renderer, USER, new)


def test_tools_that_the_template_ignores_stand_in_the_system_message(renderer: ChatRenderer) -> None:
    schema = (
        '{"type": "function", "function": {"name": "look", "description": "Look at <it> ü", '
        '"parameters": {"type": "object", "properties": {}}}}'
    )
    alone = text(renderer, USER, tools=[TOOL])
    assert schema in alone and alone.index(schema) < alone.index("Hi") and alone.count("<|im_start|>system") == 1
    assert '<tool_call>{"name": ' in alone
    told = text(renderer, {"role": "system", "content": "Be brief."}, USER, tools=[TOOL])
    assert told.startswith("<|im_start|>system\nBe brief.\n\n") and schema in told
    assert text(renderer, USER, tools=[]) == text(renderer, USER)


def test_tools_reach_a_template_without_a_system_role(smol: Tokenizer) -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{{ m.content }}\n{% endfor %}"
    )
    rendered = text(ChatRenderer(smol, source), USER, tools=[TOOL])
    assert '"name": "look"' in rendered and rendered.endswith("\n\nHi\n")


def test_tools_that_the_template_knows_are_left_to_it(smol: Tokenizer) -> None:
    rendered = text(ChatRenderer(smol, NATIVE), USER, tools=[TOOL])
    assert rendered.startswith('<tools>[{"type": "function"') and rendered.count("look") == 1


def test_the_template_for_tools_is_used_when_tools_are_given(smol_folder: Any, tmp_path: Any) -> None:
    import shutil

    shutil.copytree(smol_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text(NATIVE)
    renderer = ChatRenderer(Tokenizer.from_folder(tmp_path))
    assert text(renderer, USER, tools=[TOOL]).startswith("<tools>")
    assert text(renderer, USER).startswith("<|im_start|>system")


def test_reasoning_is_passed_under_the_names_that_templates_read(smol: Tokenizer) -> None:
    renderer = ChatRenderer(smol, "{% for m in messages %}{{ m.reasoning_content }}/{{ m.thinking }}{% endfor %}")
    for key in ("reasoning_content", "thinking", "reasoning"):
        assert text(renderer, {"role": "assistant", "content": "x", key: "hm"}) == "hm/hm"
