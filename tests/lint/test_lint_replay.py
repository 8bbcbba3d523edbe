"""Requests of every API, replayed over HTTP: the server reports the cached tokens that were predicted, each to the token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from clean_traffic import SHAPES
from lint_workloads import INSTRUCTIONS
from live import live_server

from agentcache.lint.cli import main

CHAT, RESPONSES, MESSAGES, COMPLETIONS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/completions",
)
Sent = tuple[str, dict[str, Any]]


def chat_shapes() -> list[Sent]:
    """All clean shapes, and some with defects: a clock, tools in another order, options, salts."""
    bodies = [body for shape in SHAPES.values() for body in shape()]
    clock = [
        {**body, "messages": [{"role": "system", "content": f"It is 10:3{n}. {INSTRUCTIONS}"}, *body["messages"][1:]]}
        for n, body in enumerate(SHAPES["plain"]())
    ]
    turned = [{**body, "tools": body["tools"][::-1]} for body in SHAPES["tool_calls"]()]
    salted = [{**body, "cache_salt": "tenant-a"} for body in SHAPES["plain"]()]
    return [(CHAT, body) for body in (*bodies, *clock, *turned, *salted, *SHAPES["plain"]())]


def responses() -> list[Sent]:
    tool = {"type": "function", "name": "read_file", "description": "Reads a file.", "parameters": {"type": "object"}}
    items: list[dict[str, Any]] = [{"role": "user", "content": "Why does the build fail?"}]
    bodies = [{"instructions": INSTRUCTIONS, "input": "Why does the build fail?", "tools": [tool]}]
    steps: list[list[dict[str, Any]]] = [
        [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Look."}],
            },
            {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": '{"path": "a.py"}'},
            {"type": "function_call", "call_id": "c2", "name": "read_file", "arguments": '{"path":"b.py"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "x = 1"},
            {"type": "function_call_output", "call_id": "c2", "output": "y = 2"},
        ],
        [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It lacks z."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Add it."}]},
        ],
        [
            {"role": "assistant", "content": "Added."},
            {"role": "developer", "content": "Be brief from now on."},
            {"role": "user", "content": "Thanks."},
        ],
    ]
    for step in steps:
        items = [*items, *step]
        bodies.append({"instructions": INSTRUCTIONS, "input": items, "tools": [tool]})
    return [(RESPONSES, body) for body in bodies]


def anthropic() -> list[Sent]:
    tool = {"name": "read_file", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}}
    system = [
        {"type": "text", "text": INSTRUCTIONS, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief."},
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Why does the build fail?"}]
    bodies = [{"system": system, "messages": messages, "tools": [tool]}]
    steps: list[list[dict[str, Any]]] = [
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Look at both.", "signature": ""},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a.py"}},
                    {"type": "tool_use", "id": "t2", "name": "read_file", "input": {"path": "b.py"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"},
                    {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "y = 2"}]},
                    {"type": "text", "text": "What now?"},
                ],
            },
        ],
        [{"role": "assistant", "content": "Add z."}, {"role": "user", "content": [{"type": "text", "text": "Do it."}]}],
        [{"role": "assistant", "content": "The answer is"}],
    ]
    for step in steps:
        messages = [*messages, *step]
        bodies.append({"system": system, "messages": messages, "tools": [tool]})
    bodies.append({"system": INSTRUCTIONS, "messages": messages[:1]})
    return [(MESSAGES, body) for body in bodies]


def completions() -> list[Sent]:
    prompts = (INSTRUCTIONS, f"{INSTRUCTIONS} And on.", INSTRUCTIONS[:90], list(range(40, 90)), list(range(40, 120)))
    return [(COMPLETIONS, {"prompt": prompt}) for prompt in prompts]


WORKLOADS = {"chat": chat_shapes, "responses": responses, "anthropic": anthropic, "completions": completions}


def cached(route: str, answer: dict[str, Any]) -> int:
    usage = answer["usage"]
    if route == MESSAGES:
        return int(usage["cache_read_input_tokens"])
    details = "input_tokens_details" if route == RESPONSES else "prompt_tokens_details"
    return int(usage[details]["cached_tokens"])


def predicted(file: Path, model: Path, page_size: int, capsys: pytest.CaptureFixture[str]) -> list[tuple[int, int]]:
    capsys.readouterr()
    flags = ("--tokenizer", str(model), "--page-size", str(page_size), "--output-format", "json", "--statistics")
    main([str(file), *flags])
    statistics = json.loads(capsys.readouterr().out)["statistics"]
    assert statistics["unreadable"] == 0
    return [(figures["prompt_tokens"], figures["cached_tokens"]) for figures in statistics["predictions"]]


@pytest.mark.parametrize("page_size", [16, 5])
@pytest.mark.parametrize("workload", [*WORKLOADS, "all"])
def test_a_replay_measures_what_was_predicted(printing_model, tmp_path, capsys, workload, page_size):
    made = [sent for name in (WORKLOADS if workload == "all" else [workload]) for sent in WORKLOADS[name]()]
    lines = [{"method": "POST", "url": route, "body": {"model": printing_model.name, **body}} for route, body in made]
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    expected = predicted(file, printing_model, page_size, capsys)
    limits = {RESPONSES: "max_output_tokens"}
    with live_server(printing_model, num_pages=4096, page_size=page_size) as server:
        measured = []
        for line in lines:
            route = line["url"]
            body = {**line["body"], limits.get(route, "max_tokens"): 1, "temperature": 0}
            reply = server.http.post(route, json=body)
            assert reply.status_code == 200, reply.text
            answer = reply.json()
            measured.append((answer["agentcache"]["prompt_tokens"], cached(route, answer)))
    assert measured == expected
    assert max(cached for _, cached in measured) > 100
