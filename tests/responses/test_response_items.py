"""Input items become messages, as one reply after another, or are refused by their own path."""

from __future__ import annotations

import pytest

from agentcache.server.errors import ApiError
from agentcache.server.responses.fields import Fields, Place
from agentcache.server.responses.items import read_input
from agentcache.server.responses.tools import chat_choice, read_tools

CALL = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"a":  1}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}


def messages(*items):
    return read_input(list(items), lambda name: None).messages


def refused(*items) -> ApiError:
    with pytest.raises(ApiError) as error:
        messages(*items)
    return error.value


def reasoning(text: str):
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def assistant(text: str):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def test_text_is_a_users_message():
    turn = read_input("hello", lambda name: None)
    assert turn.messages == [{"role": "user", "content": "hello"}]
    assert turn.items[0]["content"] == [{"type": "input_text", "text": "hello"}]
    assert turn.items[0]["id"].startswith("msg_")


def test_items_of_one_reply_become_one_message():
    told = messages(reasoning("so"), assistant("Let me."), CALL, {**CALL, "call_id": "call_2"}, RESULT, assistant("ok"))
    assert [message["role"] for message in told] == ["assistant", "tool", "assistant"]
    assert (told[0]["reasoning_content"], told[0]["content"]) == ("so", "Let me.")
    assert [call["id"] for call in told[0]["tool_calls"]] == ["call_1", "call_2"]
    assert told[0]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"a":  1}'}  # as it was written
    assert told[1] == {"role": "tool", "tool_call_id": "call_1", "content": "done"}


def test_text_behind_a_call_is_part_of_its_reply():
    (told,) = messages(assistant("a"), CALL, assistant("b"))
    assert told["content"] == "ab"
    assert len(told["tool_calls"]) == 1


def test_replies_one_after_another_stay_apart():
    assert [m["content"] for m in messages(assistant("a"), assistant("b"))] == ["a", "b"]
    told = messages(assistant("a"), reasoning("so"), assistant("b"))
    assert [m.get("reasoning_content") for m in told] == [None, "so"]


def test_a_call_without_text_has_no_content():
    (told,) = messages(CALL)
    assert told["content"] is None


def test_roles_and_kinds_of_text():
    told = messages(
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
        {**RESULT, "output": [{"type": "input_text", "text": "d"}]},
    )
    assert [(m["role"], m["content"]) for m in told] == [
        ("developer", "be brief"), ("user", "ab"), ("assistant", "c"), ("tool", "d"),
    ]  # fmt: skip


def test_custom_calls_and_namespaces_reach_the_model_as_functions():
    custom = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "*** ü\n"}
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "applied"}
    told = messages({**CALL, "namespace": "agents"}, RESULT, custom, output)
    assert told[0]["tool_calls"][0]["function"]["name"] == "agents__read"
    assert told[2]["tool_calls"][0]["function"] == {"name": "patch", "arguments": '{"input": "*** ü\\n"}'}
    assert told[3]["content"] == "applied"


def test_references_stand_for_items_that_are_kept():
    kept = {"fc_1": {**CALL, "id": "fc_1"}}
    turn = read_input([{"type": "item_reference", "id": "fc_1"}, {"id": "fc_1"}], kept.get)
    assert [len(message["tool_calls"]) for message in turn.messages] == [2]
    with pytest.raises(ApiError) as error:
        read_input([{"type": "item_reference", "id": "fc_2"}], kept.get)
    assert (error.value.status, error.value.param) == (404, "input[0].id")


@pytest.mark.parametrize(
    "item, path",
    [
        ("text", "input[1]"),
        ({"type": "web_search_call", "id": "ws_1"}, "input[1].type"),
        ({"type": None}, "input[1].type"),
        ({"role": "tool", "content": "a"}, "input[1].role"),
        ({"role": "user"}, "input[1].content"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}, "input[1].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[1].content[0].text"),
        ({**CALL, "arguments": {"a": 1}}, "input[1].arguments"),
        ({**CALL, "call_id": None}, "input[1].call_id"),
        ({**RESULT, "output": None}, "input[1].output"),
        ({**RESULT, "output": [{"type": "input_file"}]}, "input[1].output[0]"),
        ({"type": "reasoning", "content": [{"type": "reasoning_text"}]}, "input[1].content[0].text"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(item, path):
    error = refused({"role": "user", "content": "a"}, item)
    assert (error.status, error.param) == (400, path)
    assert error.message.startswith(path)
    assert "expected" in error.message


def test_tools_that_run_elsewhere_are_left_out_and_others_are_refused():
    function = {"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}
    box = read_tools([{"type": "web_search", "external_web_access": True}, function, {"type": "web_search_preview"}])
    assert box.offered == [function]
    assert box.chat == [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    assert box.paths == ["tools[1]"]
    for kind in ("file_search", "code_interpreter", "computer", "mcp", "local_shell", "shell", "apply_patch", 7):
        with pytest.raises(ApiError) as error:
            read_tools([function, {"type": kind}])
        assert error.value.param == "tools[1].type"


def test_tools_of_namespaces_are_known_by_both_names():
    group = {"type": "namespace", "name": "agents", "description": "About agents.", "tools": [
        {"type": "function", "name": "spawn", "description": "Spawn one."}, {"type": "custom", "name": "tell"},
    ]}  # fmt: skip
    box = read_tools([group])
    assert [tool["function"]["name"] for tool in box.chat] == ["agents__spawn", "agents__tell"]
    assert box.chat[0]["function"]["description"] == "About agents.\nSpawn one."
    assert (box.known("agents__tell").kind, box.known("agents__tell").name) == ("custom", "tell")
    assert box.paths == ["tools[0].tools[0]", "tools[0].tools[1]"]
    with pytest.raises(ApiError) as error:
        read_tools([group, {"type": "function", "name": "agents__tell"}])
    assert error.value.param == "tools[1].name"


def test_choices_name_functions_as_chat_completions_do():
    named = {"type": "function", "function": {"name": "read"}}
    assert chat_choice("required") == "required"
    assert chat_choice({"type": "function", "name": "read"}) == named
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "read"}]}
    assert chat_choice(allowed) == {
        "type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]},
    }  # fmt: skip
    for wrong in ({"type": "file_search"}, {"type": "function"}, {"type": "allowed_tools", "tools": []}):
        with pytest.raises(ApiError):
            chat_choice(wrong)


def test_errors_of_chat_completions_get_the_names_of_a_response():
    items = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "so"}]},
        {"role": "assistant", "content": "I will."},
        {"type": "function_call", "call_id": "1", "name": "read", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "+"},
        {"type": "function_call_output", "call_id": "1", "output": "ok"},
        {"type": "item_reference", "id": "fco_1"},
    ]
    kept = {"id": "fco_1", "type": "custom_tool_call_output", "call_id": "2", "output": "ok"}
    places = [Place("instructions"), Place("previous_response_id"), *read_input(items, {"fco_1": kept}.get).places]
    fields = Fields(places, ["tools[2]", "tools[3].tools[1]"])
    assert fields.named("messages[0].content") == "instructions"
    assert fields.named("messages[1].content") == "previous_response_id"
    assert fields.named("messages[2].content") == "input[0].content"
    assert fields.named("messages[3]") == "input[1]"
    assert fields.named("messages[3].reasoning_content") == "input[1].content"
    assert fields.named("messages[3].content") == "input[2].content"
    assert fields.named("messages[3].tool_calls") == "input[3].arguments"
    assert fields.named("messages[3].tool_calls[1].function.arguments") == "input[4].input"
    assert fields.named("messages[4].content") == "input[5].output"
    assert fields.named("messages[5].content") == "input[6]"
    assert Fields(read_input("go", {}.get).places).named("messages[0].content") == "input"
    assert fields.named("messages") == "input"
    assert fields.named("tools[1].function.name") == "tools[3].tools[1].name"
    assert fields.named("response_format.json_schema.schema") == "text.format.schema"
    assert fields.named("max_completion_tokens") == "max_output_tokens"
    assert fields.named("temperature") == "temperature"
    error = fields.error(ApiError(400, "messages[2].content: got 1, expected text", param="messages[2].content"))
    assert (error.message, error.param) == ("input[0].content: got 1, expected text", "input[0].content")
