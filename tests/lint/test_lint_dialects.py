"""Requests of every API: what they become, where their parts stand, and that the server makes the same prompt of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from dialect_bodies import ANTHROPIC, CHAT, RESPONSES, SCHEMA, TEMPLATE
from hypothesis import given, settings
from hypothesis import strategies as st
from live import LiveServer, live_server
from tiny_folder import write_tiny_folder
from tiny_tokenizer import write_tokenizer

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.leaves import string_at
from agentcache.lint.readers import read_records
from agentcache.lint.readers.dialects import to_record
from agentcache.lint.readers.dialects.turns import readings
from agentcache.lint.records import Place, Record, Unreadable


def record(body: dict[str, Any], **about: Any) -> Record:
    found = to_record(body, "x.jsonl", 1, **about)
    assert isinstance(found, Record), found
    return found


def reason(body: dict[str, Any], **about: Any) -> str:
    found = to_record(body, "x.jsonl", 1, **about)
    assert isinstance(found, Unreadable), found
    return found.reason


def read_lines(*values: Any) -> list[Record | Unreadable]:
    return list(read_records([json.dumps(value).encode() for value in values], "x.jsonl"))  # type: ignore[arg-type]


# -- one conversation in three APIs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose template prints everything."""
    folder = tmp_path_factory.mktemp("model")
    write_tiny_folder(folder)
    return write_tokenizer(folder, ["Be brief. Use tools. Compare a.py and b.py"], 512, chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def renderer(folder: Path) -> ChatRenderer:
    return ChatRenderer(Tokenizer.from_folder(folder))


@pytest.fixture(scope="module")
def server(folder: Path):
    with live_server(folder, num_pages=64, access_log="off") as server:
        yield server


def text_of(renderer: ChatRenderer, found: Record) -> str:
    body = found.body
    return renderer.render_text(
        body["messages"], tools=body.get("tools"), template_kwargs=body.get("chat_template_kwargs")
    ).text


def test_one_conversation_is_one_prompt_in_every_api(renderer):
    found = [record(body) for body in (CHAT, ANTHROPIC, RESPONSES)]
    assert [one.dialect for one in found] == ["chat", "anthropic", "responses"]
    chat, anthropic, responses = (text_of(renderer, one) for one in found)
    assert chat == anthropic
    assert responses == chat.replace("tool read", "tool")  # outputs have no names there


ROUTES = {
    "chat": ("/v1/chat/completions/render", "count"),
    "anthropic": ("/v1/messages/count_tokens", "input_tokens"),
    "responses": ("/v1/responses/input_tokens", "input_tokens"),
}


def served_tokens(server: LiveServer, body: dict[str, Any], dialect: str) -> int:
    route, figure = ROUTES[dialect]
    answer = server.http.post(route, json={key: value for key, value in body.items() if key != "model"})
    assert answer.status_code == 200, answer.text
    return answer.json()[figure]


@pytest.mark.parametrize(
    "body",
    [
        CHAT,
        ANTHROPIC,
        RESPONSES,
        {**CHAT, "tool_choice": "none"},
        {**ANTHROPIC, "tool_choice": {"type": "none"}},
        {**RESPONSES, "tool_choice": "none"},
        {**ANTHROPIC, "thinking": {"type": "enabled", "budget_tokens": 1024}},
        {**ANTHROPIC, "thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": True}},
        {**ANTHROPIC, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {**RESPONSES, "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
        {"max_tokens": 5, "system": "A", "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
        {"input": "Compare", "instructions": "Be brief."},
        {"input": [
            {"role": "developer", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "assistant", "content": "c"},
            {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": "*** \"ü\"\n"},
            {"type": "custom_tool_call_output", "call_id": "1", "output": "done"},
        ], "tools": [{"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "a"}},
                     {"type": "namespace", "name": "ns", "description": "D", "tools": [{"type": "function", "name": "f"}]}]},
    ],
)  # fmt: skip
def test_the_server_makes_as_many_tokens_of_it(server, renderer, body):
    found = record(body)
    rendered = renderer.render(
        found.body["messages"], tools=found.body.get("tools"), template_kwargs=found.body.get("chat_template_kwargs")
    )
    assert len(rendered.token_ids) == served_tokens(server, body, found.dialect)


def test_the_beginning_of_a_reply_stands_behind_the_generation_prompt(server, renderer):
    body = {**ANTHROPIC, "messages": [*ANTHROPIC["messages"], {"role": "assistant", "content": "Longer is <|im_end|>"}]}
    found = record(body)
    assert found.body["prefill"] == "Longer is <|im_end|>"
    assert found.places.find(("prefill",), 4) == Place("messages[3].content", 4)
    before = renderer.render(found.body["messages"], tools=found.body["tools"]).token_ids
    prefill = renderer.tokenizer.encode(found.body["prefill"], parse_special=False)
    assert len(before) + len(prefill) == served_tokens(server, body, "anthropic")


def test_a_conversation_is_told_in_turns_where_the_template_wants_them(renderer):
    said = {
        "max_tokens": 1,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "cd"}]},
            {"role": "system", "content": "e"},
            {"role": "assistant", "content": "f"},
            {"role": "user", "content": "g"},
        ],
    }
    plain, turns, without = readings(record(said))
    assert [message["role"] for message in plain.body["messages"]] == [
        "system",
        "user",
        "user",
        "system",
        "assistant",
        "user",
    ]
    assert [message["content"] for message in turns.body["messages"]] == ["Be brief.", "a\n\nbcd\n\ne", "f", "g"]
    assert [message["content"] for message in without.body["messages"]] == ["Be brief.\n\na\n\nbcd\n\ne", "f", "g"]
    content = turns.body["messages"][1]["content"]
    found = [turns.places.find(("messages", 1, "content"), content.index(char))[:2] for char in "abde"]
    assert found == [
        ("messages[0].content", 0), ("messages[1].content[0].text", 0),
        ("messages[1].content[1].text", 1), ("messages[2].content", 0),
    ]  # fmt: skip
    assert without.places.find(("messages", 0, "content"), 3) == Place("system", 3)
    assert len(list(readings(record(CHAT)))) == 1


# -- places


def leaves(value: Any, keys: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], str]]:
    if isinstance(value, str):
        return [(keys, value)]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in inner for found in leaves(item, (*keys, key))]


def native(body: Any, path: str) -> Any:
    for step in path.replace("]", "").replace("[", ".").split("."):
        body = body[int(step)] if step.isdigit() else body[step]
    return body


@pytest.mark.parametrize("body", [CHAT, ANTHROPIC, RESPONSES], ids=["chat", "anthropic", "responses"])
def test_every_character_of_a_prompt_is_found_in_the_file(body):
    found = record(body, prefix="body.")
    made = {key: found.body[key] for key in ("messages", "tools")}
    told = 0
    for keys, text in leaves(made):
        for char in range(len(text)):
            place = found.places.find(keys, char)
            if keys[-1] in ("role", "type") or keys[-2:] == ("strict",):
                continue
            value = native({"body": body}, place.path)
            if place.char is not None:
                assert value[place.char] == text[char], (keys, char, place)
                told += 1
    assert told > 150


def test_places_of_joined_texts_calls_and_tools():
    find = record(ANTHROPIC).places.find
    assert find(("messages", 0, "content"), 10) == Place("system[2].text", 0)
    assert find(("messages", 0, "content")) == Place("system[0].text")
    assert find(("messages", 2, "content"), 8) == Place("messages[1].content[2].text", 1)
    assert find(("messages", 2, "reasoning_content"), 4) == Place("messages[1].content[0].thinking", 4)
    arguments = ("messages", 2, "tool_calls", 1, "function", "arguments", "path")
    assert find(arguments, 0) == Place("messages[1].content[4].input.path", 0)
    assert find(("messages", 3, "content"), 6) == Place("messages[2].content[0].content[1].text", 0)
    assert find(("messages", 5)) == Place("messages[2].content[2]")
    schema = ("tools", 0, "function", "parameters", "properties", "path", "description")
    assert find(schema, 1) == Place("tools[0].input_schema.properties.path.description", 1)
    find = record(RESPONSES).places.find
    assert find(("messages", 0, "content"), 3) == Place("instructions", 3)
    assert find(("messages", 1, "content"), 13) == Place("input[0].content[1].text", 1)
    assert find(("messages", 2, "tool_calls", 1, "function", "arguments"), 2) == Place("input[4].arguments", 2)
    assert find(("messages", 2, "tool_calls", 1, "function", "name")) == Place("input[4].name")
    assert find(schema, 1) == Place("tools[1].parameters.properties.path.description", 1)


def test_the_header_that_is_left_out_is_counted():
    header = "x-anthropic-billing-header: v=1;\n"
    find = record({"system": header + "Be brief.", "messages": [{"role": "user", "content": "a"}]}).places.find
    assert find(("messages", 0, "content"), 3) == Place("system", len(header) + 3)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([CHAT, ANTHROPIC, RESPONSES]), st.data())
def test_places_never_fail_whatever_is_asked(body, data):
    step = st.sampled_from(
        ["messages", "tools", "content", "function", "parameters", "tool_calls", "arguments", "id", "x"]
    )
    keys = tuple(data.draw(st.lists(step | st.integers(-2, 9), max_size=7)))
    for one in readings(record(body)):
        place = one.places.find(keys, data.draw(st.none() | st.integers(0, 99)))
        assert isinstance(place.path, str)


# -- what is no text


def test_pictures_are_placeholders_that_differ_where_the_pictures_do():
    def chat(data: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": data}}
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": "See "}, part]}]}

    def anthropic(data: str, **more: Any) -> dict[str, Any]:
        part = {"type": "image", "source": {"type": "base64", "data": data}, **more}
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": "See "}, part]}]}

    def responses(data: str) -> dict[str, Any]:
        parts = [{"type": "input_text", "text": "See "}, {"type": "input_image", "image_url": data}]
        return {"input": [{"role": "user", "content": parts}]}

    for make in (chat, anthropic, responses):
        one, again, other = (record(make(data)) for data in ("A", "A", "B"))
        assert one.body == again.body != other.body
        assert "[i" in json.dumps(one.body["messages"]) and len(json.dumps(other.body)) == len(json.dumps(one.body))
    assert record(anthropic("A", cache_control={"type": "ephemeral"})).body == record(anthropic("A")).body
    assert record(anthropic("A")).places.find(("messages", 0, "content"), 9) == Place("messages[0].content[1]")
    shown = record(chat("A"), prefix="body.").places.find
    assert shown(("messages", 0, "content", 1, "text"), 5) == Place("body.messages[0].content[1]")
    assert shown(("messages", 0, "content", 0, "text"), 2) == Place("body.messages[0].content[0].text", 2)
    untouched = copy.deepcopy(chat("A"))
    record(untouched)
    assert untouched == chat("A")


def test_tools_and_blocks_of_a_provider_are_kept_as_what_they_are_called():
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    said = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
            {"type": "text", "text": "Found."},
        ]},
        {"role": "user", "content": "Good."},
    ]  # fmt: skip
    found = record({"max_tokens": 1, "messages": said, "tools": [search]})
    assert found.body["messages"][1]["content"].startswith("[server_tool_use: ")
    assert found.body["messages"][1]["content"].endswith("]Found.")
    assert found.body["tools"][0]["function"] == {
        "name": "web_search", "description": "web_search_20250305", "parameters": {"max_uses": 5},
    }  # fmt: skip
    assert found.places.find(("tools", 0, "function", "parameters", "max_uses")).path == "tools[0].max_uses"
    found = record({
        "input": [
            {"role": "user", "content": "Look."},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "message", "role": "assistant", "content": "Found."},
            {"type": "local_shell_call_output", "call_id": "l", "output": "ok"},
        ],
        "tools": [{"type": "mcp", "server_label": "s"}, {"type": "web_search"}],
    })  # fmt: skip
    assert [message["role"] for message in found.body["messages"]] == ["user", "assistant", "tool"]
    assert [tool["function"]["name"] for tool in found.body["tools"]] == ["mcp"]


def test_what_cannot_be_read_is_named_in_its_own_words():
    result = {"type": "tool_result", "tool_use_id": "gone", "content": "x"}
    assert reason({"messages": [{"role": "user", "content": [result]}]}, prefix="body.").startswith(
        'body.messages[0].content[0].tool_use_id: got "gone"'
    )
    assert reason({"system": 5, "messages": []}).startswith("system: got 5")
    assert "only its provider can read" in reason({"input": "a", "conversation": "conv_1"})
    assert reason({"input": [], "instructions": None}).startswith("input: got no items")
    assert reason({"previous_response_id": "resp_1", "input": "a"}).startswith('previous_response_id: got "resp_1"')


# -- which API it is


@pytest.mark.parametrize(
    ("body", "about", "dialect"),
    [
        ({"messages": [{"role": "user", "content": "a"}]}, {}, "chat"),
        ({"messages": [{"role": "user", "content": "a"}], "max_tokens": 5}, {}, "chat"),
        ({"messages": [{"role": "user", "content": "a"}]}, {"url": "https://a.example/v1/messages?beta=true"}, "anthropic"),
        ({"messages": [{"role": "user", "content": "a"}]}, {"headers": {"Anthropic-Version": "2023-06-01"}}, "anthropic"),
        ({"messages": [{"role": "user", "content": "a"}], "anthropic_version": "bedrock-2023-05-31"}, {}, "anthropic"),
        ({"messages": [{"role": "user", "content": "a"}], "stop_sequences": []}, {}, "anthropic"),
        ({"system": "s", "messages": [{"role": "user", "content": "a"}]}, {}, "anthropic"),
        ({"system": "s", "messages": [{"role": "user", "content": "a"}]}, {"url": "/v1/chat/completions"}, "chat"),
        ({"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f", "input_schema": {}}]}, {}, "anthropic"),
        ({"input": "a"}, {}, "responses"),
        ({"input": "a"}, {"url": "https://x/openai/v1/responses"}, "responses"),
        ({"prompt": "a"}, {}, "completions"),
        ({"prompt": [1, 2]}, {"url": "/v1/completions"}, "completions"),
    ],
)  # fmt: skip
def test_the_api_is_told_by_url_headers_or_shape(body, about, dialect):
    assert record(body, **about).dialect == dialect


def test_raw_prompts_have_no_messages():
    text, ids = record({"prompt": "Once"}), record({"prompt": [[1, 2, 3]]})
    assert (text.body, text.prompt_ids) == ({"prompt": "Once"}, None)
    assert (ids.body["prompt"], ids.prompt_ids) == ([1, 2, 3], [1, 2, 3])
    assert ids.places.find(("prompt",)) == Place("prompt[0]")
    several = read_lines({"body": {"prompt": ["a", "b"], "max_tokens": 1}})
    assert [(one.line, one.body["prompt"], one.places.find(("prompt",), 0)[:2]) for one in several] == [
        (1, "a", ("body.prompt[0]", 0)), (1, "b", ("body.prompt[1]", 0)),
    ]  # fmt: skip


def test_legacy_fields_do_not_change_what_is_translated():
    assert record({**CHAT, "session": "s", "user": "u"}).body["messages"] == CHAT["messages"]
    assert string_at(record(ANTHROPIC).body, ("messages", 0, "content")) == "Be brief. Use tools."
