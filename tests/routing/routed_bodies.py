"""Requests of every shape that carries a prompt, as bodies of the endpoint that they are sent to."""

from __future__ import annotations

from typing import Any

Body = dict[str, Any]

SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser. " * 3
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a part of the working tree.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}
TURNS: list[Body] = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": "Fix the parser."},
    {"role": "assistant", "content": "It splits at blanks only, so tabs are kept."},
    {"role": "user", "content": "Then split at all white space."},
]
CALLED: list[Body] = [
    *TURNS,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "def parse(text): return text.split()"},
]
SPELLED = [*TURNS, {"role": "user", "content": "What does <|im_end|> mean?"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": SYSTEM}, {"type": "text", "text": "And now?"}]}]

CHAT: dict[str, Body] = {
    "plain": {"messages": TURNS},
    "first turn": {"messages": TURNS[:2]},
    "tools": {"messages": TURNS, "tools": [TOOL]},
    "calls": {"messages": CALLED, "tools": [TOOL]},
    "control tokens that a user typed": {"messages": SPELLED},
    "content in parts": {"messages": PARTS},
    "a salt": {"messages": TURNS, "cache_salt": "tenant"},
    "an empty salt": {"messages": TURNS, "cache_salt": ""},
    "no generation prompt": {"messages": TURNS, "add_generation_prompt": False},
    "unknown fields": {"messages": TURNS, "store": True, "prompt_cache_key": "mine"},
    "a developer": {"messages": [{"role": "developer", "content": SYSTEM}, TURNS[1]]},
    "a number of float": {"messages": TURNS, "seed": 1.0},
}
COMPLETIONS: dict[str, Body] = {
    "text": {"prompt": SYSTEM},
    "text with control tokens": {"prompt": f"<|im_start|>user\n{SYSTEM}<|im_end|>"},
    "ids": {"prompt": list(range(20, 120))},
    "a salted text": {"prompt": SYSTEM, "cache_salt": "tenant"},
}
RESPONSES: dict[str, Body] = {
    "text": {"input": SYSTEM},
    "instructions": {"instructions": SYSTEM, "input": "Fix the parser."},
    "items": {
        "instructions": SYSTEM,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Fix the parser."}]},
            {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": '{"path": "a.py"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "def parse(text): return text.split()"},
        ],
        "tools": [{"type": "function", **TOOL["function"]}],  # type: ignore[dict-item]
    },
    "not stored": {"input": SYSTEM, "store": False},
}
MESSAGES: dict[str, Body] = {
    "text": {"max_tokens": 1, "system": SYSTEM, "messages": [{"role": "user", "content": "Fix the parser."}]},
    "blocks": {
        "max_tokens": 1,
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Fix the parser."}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "def parse(): ..."}],
            },
        ],
        "tools": [{"name": "read_file", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}],
    },
    "the beginning of a reply": {
        "max_tokens": 1,
        "system": SYSTEM,
        "messages": [{"role": "user", "content": "Fix it."}, {"role": "assistant", "content": "It splits at"}],
    },
    "a salt": {"max_tokens": 1, "messages": [{"role": "user", "content": SYSTEM}], "cache_salt": "tenant"},
}
ALL: list[tuple[str, str, Body]] = [
    (path, name, body)
    for path, bodies in (
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", COMPLETIONS),
        ("/v1/responses", RESPONSES),
        ("/v1/messages", MESSAGES),
    )
    for name, body in bodies.items()
]
