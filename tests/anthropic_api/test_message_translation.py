"""Anthropic's blocks as chat messages: what is joined, what is kept apart, and what is refused where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.server.anthropic.bodies import MessagesBody
from agentcache.server.anthropic.threads import asked_thread
from agentcache.server.anthropic.translate import chat_body, conversation
from agentcache.server.bodies import check
from agentcache.server.errors import ApiError

CALL = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "print(1)"}
TOOL = {"name": "read", "description": "Reads", "input_schema": {"type": "object"}}


def body_of(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **fields}


def translated(*messages: Any, **fields: Any):
    sent = body_of(*messages, **fields)
    body = check(MessagesBody, sent)
    said = conversation(body)
    return chat_body(body, sent, said), said


def messages_of(*messages: Any, **fields: Any) -> list[dict[str, Any]]:
    return translated(*messages, **fields)[0].messages


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **fields}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=6), min_size=1, max_size=5))
def test_a_text_is_the_same_however_it_is_cut_into_blocks(parts):
    whole = "".join(parts)
    blocks = [text(part, cache_control={"type": "ephemeral"}) for part in parts]
    for make in (
        lambda content: messages_of({"role": "user", "content": content}),
        lambda content: messages_of(user(text("hi")), system=content),
        lambda content: messages_of(
            user(text("hi")), {"role": "assistant", "content": [CALL]}, user({**RESULT, "content": content})
        ),
    ):
        assert make(blocks) == make(whole) == make([text(whole)])


def test_results_are_messages_of_their_own_in_the_order_of_their_blocks():
    second = {**CALL, "id": "toolu_2", "name": "run"}
    told = messages_of(
        user(text("Look.")),
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "so", "signature": "s"}, text("Well."), CALL, second],
        },
        user(
            RESULT,
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True},
            text("<system-reminder>"),
            text("Go on."),
        ),
    )
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "tool", "user"]
    assert told[1]["reasoning_content"] == "so" and told[1]["content"] == "Well."
    assert [call["function"]["name"] for call in told[1]["tool_calls"]] == ["read", "run"]
    assert told[2] == {"role": "tool", "tool_call_id": "toolu_1", "name": "read", "content": "print(1)"}
    assert told[3]["is_error"] is True and told[3]["content"]
    assert told[4]["content"] == "<system-reminder>Go on."


def test_a_longer_history_begins_like_a_shorter_one():
    turns = [
        user(text("a"), text("b")),
        user(text("c")),
        {"role": "system", "content": "d"},
        {"role": "assistant", "content": [text("e"), CALL]},
        user(RESULT, text("f")),
    ]
    whole = messages_of(*turns)
    for count in (1, 2, 3, 5):
        shorter = messages_of(*turns[:count])
        assert whole[: len(shorter)] == shorter


def test_what_claude_code_tells_accounting_is_no_part_of_the_prompt():
    def system(checksum: str) -> list[dict[str, Any]]:
        header = f"x-anthropic-billing-header: cc_version=2.1.1.abc; cc_entrypoint=cli; cch={checksum};"
        return [text(header), text("You are an agent.")]

    told = [messages_of(user(text("hi")), system=system(checksum)) for checksum in ("11111", "22222")]
    assert told[0] == told[1] == messages_of(user(text("hi")), system="You are an agent.")
    mentioned = "Never send x-anthropic-billing-header: it is secret"
    assert messages_of(user(text("hi")), system=mentioned)[0]["content"] == mentioned


def test_templates_that_insist_on_turns_get_turns():
    _, said = translated(
        user(text("a")),
        {"role": "system", "content": "b"},
        user(text("c")),
        {"role": "assistant", "content": [CALL]},
        user(RESULT),
        system="s",
    )
    turns = said.in_turns(system=True)
    assert [(m["role"], m["content"]) for m in turns.messages] == [
        ("system", "s"), ("user", "a\n\nb\n\nc"), ("assistant", ""), ("tool", "print(1)"),
    ]  # fmt: skip
    assert [placed.place for placed in turns.placed] == [
        "system", "messages[0].content[0]", "messages[3].content", "messages[4].content[0]",
    ]  # fmt: skip


def test_templates_without_a_system_get_its_text_from_the_user():
    turns = translated(user(text("a")), system="s")[1].in_turns(system=False)
    assert turns.messages == [{"role": "user", "content": "s\n\na"}]


def test_options_mean_the_same_in_both_apis():
    chat, _ = translated(
        user(text("hi")),
        tools=[{**TOOL, "cache_control": {"type": "ephemeral"}, "defer_loading": True, "strict": True}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        thinking={"type": "enabled", "budget_tokens": 2000},
        stop_sequences=["END"],
        top_k=5,
        stream=True,
        metadata={"user_id": "u"},
        service_tier="auto",
        seed=7,
    )
    function = {"name": "read", "description": "Reads", "parameters": {"type": "object"}, "strict": True}
    assert chat.tools == [{"type": "function", "function": function}]
    assert (chat.tool_choice, chat.parallel_tool_calls) == ("required", False)
    assert chat.chat_template_kwargs == {"enable_thinking": True}
    assert (chat.stop, chat.top_k, chat.max_tokens, chat.stream, chat.seed) == (["END"], 5, 9, True, 7)
    assert translated(user(text("hi")))[0].chat_template_kwargs is None


@pytest.mark.parametrize("where", ["output_config", "output_format"])
def test_a_schema_for_the_reply_is_found_under_its_new_and_its_old_name(where):
    asked = {"type": "json_schema", "schema": {"type": "object"}}
    chat, _ = translated(user(text("hi")), **{where: asked if where == "output_format" else {"format": asked}})
    assert chat.response_format["json_schema"]["schema"] == {"type": "object"}


def test_the_beginning_of_a_reply_is_kept_apart():
    chat, said = translated(user(text("Count.")), {"role": "assistant", "content": [text("1, "), text("2,")]})
    assert said.prefill == "1, 2," and [message["role"] for message in chat.messages] == ["user"]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
ASKED = (user(text("hi")), {"role": "assistant", "content": [CALL]})


@pytest.mark.parametrize(
    ("sent", "place"),
    [
        (body_of(), "messages"),
        ({"messages": [user(text("hi"))]}, "max_tokens"),
        (body_of(user(text("hi")), max_tokens=-1), "max_tokens"),
        (body_of({"role": "tool", "content": "x"}), "messages[0].role"),
        (body_of({"role": "user"}), "messages[0].content"),
        (body_of(user(text("a"), IMAGE)), "messages[0].content[1]"),
        (body_of(user({"type": "document", "source": {}})), "messages[0].content[0]"),
        (body_of(user({"type": "text"})), "messages[0].content[0].text"),
        (body_of(user({"type": "tool_use"})), "messages[0].content[0].type"),
        (body_of(user(text("a", cache_control={"type": "forever"}))), "messages[0].content[0].cache_control"),
        (body_of(user(text("a", cache_control={"type": "ephemeral", "ttl": "9d"}))), "messages[0].content[0].cache_control.ttl"),
        (body_of(user(text("hi")), cache_control={"type": "x"}), "cache_control"),
        (body_of(user(text("hi")), system=[IMAGE]), "system[0]"),
        (body_of(*ASKED, user({**RESULT, "tool_use_id": "toolu_9"})), "messages[2].content[0].tool_use_id"),
        (body_of(*ASKED, user({**RESULT, "content": [text("a"), IMAGE]})), "messages[2].content[0].content[1]"),
        (body_of(user(text("a")), {"role": "assistant", "content": [{**CALL, "input": "{}"}]}), "messages[1].content[0].input"),
        (body_of(*ASKED), "messages[1].content"),
        (body_of(user(text("hi")), tools=[{"type": "web_search_20250305", "name": "web_search"}]), "tools[0].type"),
        (body_of(user(text("hi")), tools=[{"type": "bash_20250124", "name": "bash"}]), "tools[0].type"),
        (body_of(user(text("hi")), tools=[{"name": "read"}]), "tools[0].input_schema"),
        (body_of(user(text("hi")), tools=[TOOL, TOOL]), "tools[1].name"),
        (body_of(user(text("hi")), tools=[TOOL], tool_choice={"type": "required"}), "tool_choice.type"),
        (body_of(user(text("hi")), thinking={"type": "on"}), "thinking.type"),
        (body_of(user(text("hi")), stop_sequences=[""]), "stop_sequences"),
        (body_of(user(text("hi")), output_config={"format": {"type": "regex"}}), "output_config.format"),
        (body_of(user(text("hi")), mcp_servers=[{"url": "x"}]), "mcp_servers"),
        (body_of(user(text("hi")), compaction={"type": "x"}), "compaction"),
        (body_of(user(text("hi")), max_tokens=0, stream=True), "max_tokens"),
        (body_of(user(text("hi")), metadata={"user_id": 5}), "metadata.user_id"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_in_the_names_of_its_client(sent, place):
    with pytest.raises(ApiError) as refused:
        chat_body_of(sent)
    assert refused.value.status == 400
    assert refused.value.message.startswith(f"{place}"), refused.value.message
    assert json.dumps(refused.value.param).startswith(f'"{place.partition("[")[0]}')


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
WHOLE = body_of(
    *ASKED, user({**RESULT, "content": [text("a", cache_control={"type": "ephemeral"})]}, text("b")),
    system=[text("s")], tools=[{**TOOL, "cache_control": {"type": "ephemeral"}}], tool_choice={"type": "tool", "name": "read"},
    thinking={"type": "enabled", "budget_tokens": 9}, output_config={"format": {"type": "json_schema", "schema": {}}},
    metadata={"user_id": "u"}, chat_template_kwargs={"a": 1}, thread={"type": "continue", "previous_message_id": "m"},
    stop_sequences=["a"], priority=1, cache_control={"type": "ephemeral"},
)  # fmt: skip


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places_in(item, (*path, key)))] if path or inner else []


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([path for path in places_in(WHOLE) if path]), odd)
def test_whatever_stands_in_a_place_is_served_or_refused(path, value):
    sent = json.loads(json.dumps(WHOLE))
    holder = sent
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    refusals = []
    for use in (chat_body_of, asked_thread_of):
        try:
            use(sent)
        except ApiError as refused:
            refusals.append(refused)
    assert all(refused.status == 400 and refused.message for refused in refusals)


def chat_body_of(sent: dict[str, Any]) -> None:
    body = check(MessagesBody, sent)
    chat_body(body, sent, conversation(body))


def asked_thread_of(sent: dict[str, Any]) -> None:
    asked_thread(check(MessagesBody, {**sent, "system": None, "tools": None}))


def test_the_body_that_odd_values_are_put_into_is_served_as_it_is():
    chat_body_of(WHOLE)
    asked_thread_of(WHOLE)


def test_places_of_chat_messages_are_told_as_those_of_blocks():
    _, said = translated(*ASKED, user(RESULT, text("hi")), system="s", tools=[TOOL])
    told = said.names.told
    assert told("messages[0].content: x") == "system: x"
    assert told("messages[3].content") == "messages[2].content[0]"
    assert told("messages[4].content") == "messages[2].content[1]"
    assert told("tools[0].function.parameters: x") == "tools[0].input_schema: x"
    assert told("response_format.json_schema.schema: x") == "output_config.format: x"
