"""Replies that must be JSON or calls, from a model whose weights are random: what comes out is valid all the same."""

from __future__ import annotations

import json

import jsonschema
import pytest
from live import drain, live_server, stream
from saying import put_together
from tiny_folder import write_tiny_folder

from agentcache.chat.grammars import GrammarCompiler

HELLO = [{"role": "user", "content": "the cache"}]
ROOM = 400
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["hit", "miss"]},
        "pages": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
        "note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
    },
    "required": ["kind", "pages", "note"],
    "additionalProperties": False,
}
ARGUMENTS = {
    "type": "object",
    "properties": {"page": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["page"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": ARGUMENTS, "strict": True}}
    for name in ("keep", "drop", "look")
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_folder(folder)
    with live_server(folder, num_pages=512) as running:
        yield running
        drain(running)


def schema(body, **fields):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": body, **fields}}}


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_is_kept_at_any_temperature_streamed_or_whole(server, seed):
    fields = {**schema(SCHEMA, strict=True), "temperature": 1.5, "seed": seed, "max_tokens": ROOM, "n": 2}
    whole = server.chat(HELLO, **fields)
    for choice in whole["choices"]:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    streamed = put_together(stream(server, "/v1/chat/completions", {"messages": HELLO, **fields}))
    assert [choice["content"] for choice in streamed] == [c["message"]["content"] for c in whole["choices"]]


def test_a_json_object_is_an_object(server):
    choice = server.chat(HELLO, response_format={"type": "json_object"}, temperature=0.5, seed=3, max_tokens=1000)
    (choice,) = choice["choices"]
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)
    assert choice["message"]["content"].startswith("{")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "choice, names",
    [
        ("required", {"keep", "drop", "look"}),
        ({"type": "function", "function": {"name": "drop"}}, {"drop"}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": n}} for n in ("keep", "look")],
                },
            },
            {"keep", "look"},
        ),
    ],
    ids=["required", "named", "allowed"],
)
def test_forced_calls_are_valid_and_of_the_tools_that_may_be_called(server, choice, names, seed):
    fields = {"tools": TOOLS, "tool_choice": choice, "temperature": 1, "seed": seed, "max_tokens": ROOM}
    (made,) = server.chat(HELLO, **fields, parallel_tool_calls=False)["choices"]
    (call,) = made["message"]["tool_calls"]
    assert made["finish_reason"] == "tool_calls"
    assert made["message"]["content"] is None
    assert call["function"]["name"] in names
    jsonschema.validate(json.loads(call["function"]["arguments"]), ARGUMENTS)
    (put,) = put_together(
        stream(server, "/v1/chat/completions", {"messages": HELLO, **fields, "parallel_tool_calls": False})
    )
    assert [c["function"] for c in put["tool_calls"]] == [call["function"]]


@pytest.mark.parametrize("anything", [True, None, {}])
def test_a_schema_that_anything_fits_asks_for_json(server, anything):
    fields = {**schema(anything), "stop": [","], "max_tokens": 8, "temperature": 1, "seed": 1}
    text = server.chat(HELLO, **fields)["choices"][0]["message"]["content"]
    assert text[0] in '{["-0123456789tfn'


@pytest.mark.parametrize("seed", range(3))
def test_json_or_a_call_where_both_may_be(server, seed):
    fields = {**schema(SCHEMA), "tools": TOOLS, "temperature": 1, "seed": seed, "max_tokens": ROOM}
    (made,) = server.chat(HELLO, **fields)["choices"]
    if made["finish_reason"] == "tool_calls":
        for call in made["message"]["tool_calls"]:
            jsonschema.validate(json.loads(call["function"]["arguments"]), ARGUMENTS)
    else:
        jsonschema.validate(json.loads(made["message"]["content"]), SCHEMA)


@pytest.mark.parametrize("name", ["\u2028", "\x85", "\r\n", "a\x1cb"])
def test_json_or_a_call_of_a_function_whose_name_breaks_lines(server, name):
    tools = [{"type": "function", "function": {"name": name, "parameters": ARGUMENTS}}]
    fields = {**schema(SCHEMA), "tools": tools, "parallel_tool_calls": False, "max_tokens": ROOM}
    (made,) = server.chat(HELLO, **fields)["choices"]
    assert made["finish_reason"] in ("stop", "tool_calls")


def test_free_and_constrained_requests_run_side_by_side_unharmed(server):
    alone = server.chat(HELLO, max_tokens=24)["choices"]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        free = [pool.submit(server.chat, HELLO, max_tokens=24) for _ in range(4)]
        held = [pool.submit(server.chat, HELLO, **schema(SCHEMA), max_tokens=ROOM) for _ in range(4)]
        assert all(future.result()["choices"] == alone for future in free)
        texts = {future.result()["choices"][0]["message"]["content"] for future in held}
    assert len(texts) == 1
    jsonschema.validate(json.loads(texts.pop()), SCHEMA)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "fields, param",
    [
        (schema({"type": "wizard"}), "response_format.json_schema.schema"),
        (schema({"type": "string", "pattern": "(a"}), "response_format.json_schema.schema"),
        (schema(5), "response_format.json_schema.schema"),
        (schema(False), "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools[3].function.name"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": TOOLS, "tool_choice": "required", **schema(SCHEMA)}, "response_format"),
        ({"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(server, fields, param, streamed):
    reply = server.http.post("/v1/chat/completions", json={"messages": HELLO, "stream": streamed, **fields})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


@pytest.mark.parametrize("fields", [schema(SCHEMA), {"tools": TOOLS, "tool_choice": "required"}], ids=["json", "calls"])
def test_a_grammar_is_compiled_for_each_namespace_once(server, fields, monkeypatch):
    compiled: list[str] = []
    get = GrammarCompiler._get

    def noted(self, text: str, param: str, root: bytes = b""):
        compiled.append(root.hex())
        return get(self, text, param, root)

    monkeypatch.setattr(GrammarCompiler, "_get", noted)
    session = server.http.post("/v1/sessions", json={"cache_salt": "a", "tools": fields.get("tools", [])}).json()["id"]
    for more in ({"cache_salt": "a"}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"session": session}):
        server.chat(HELLO, **fields, **more, max_tokens=2)
    assert compiled[0] == compiled[1] == compiled[3] != compiled[2] and all(compiled)


def test_a_bad_schema_of_a_tool_that_must_be_called_is_refused_by_its_place(server):
    bad = {"type": "function", "function": {"name": "bad", "strict": True, "parameters": {"type": "wizard"}}}
    reply = server.http.post(
        "/v1/chat/completions", json={"messages": HELLO, "tools": [TOOLS[0], bad], "tool_choice": "required"}
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith("tools")
