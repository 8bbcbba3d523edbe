"""One conversation in the words of four APIs, with what makes agents' requests hard: reasoning, parallel calls, cut texts."""

from __future__ import annotations

from typing import Any

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string", "description": "Of the file"}}}

CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief. Use tools."},
        {"role": "user", "content": "Compare a.py and b.py"},
        {
            "role": "assistant",
            "content": "I read both.",
            "reasoning_content": "two files",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": {"path": "a.py"}}},
                {"id": "c2", "type": "function", "function": {"name": "read", "arguments": {"path": "b.py"}}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "read", "content": "x = 1\ny = 2\n"},
        {"role": "tool", "tool_call_id": "c2", "name": "read", "content": ""},
        {"role": "user", "content": "<note>Go on.</note> Which is longer?"},
    ],
    "tools": [{"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": SCHEMA}}],
}

ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1f;\n"},
        {"type": "text", "text": "Be brief. "},
        {"type": "text", "text": "Use tools.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": "Compare a.py and b.py"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "two files", "signature": "s"},
                {"type": "text", "text": "I read "},
                {"type": "text", "text": "both."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "b.py"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "x = 1\n"}, {"type": "text", "text": "y = 2\n"}],
                },
                {"type": "tool_result", "tool_use_id": "c2"},
                {"type": "text", "text": "<note>Go on.</note>"},
                {"type": "text", "text": " Which is longer?"},
            ],
        },
    ],
    "tools": [
        {
            "name": "read",
            "description": "Read a file.",
            "input_schema": SCHEMA,
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        }
    ],
}

RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief. Use tools.",
    "input": [
        {"role": "user", "content": [
            {"type": "input_text", "text": "Compare a.py"}, {"type": "input_text", "text": " and b.py"},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "two files"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I read both.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a.py"}'},
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": '{"path": "b.py"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "x = 1\ny = 2\n"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": ""}]},
        {"role": "user", "content": "<note>Go on.</note> Which is longer?"},
    ],
    "tools": [
        {"type": "web_search"},
        {"type": "function", "name": "read", "description": "Read a file.", "parameters": SCHEMA, "strict": False},
    ],
}  # fmt: skip

TEMPLATE = (
    "{% if tools %}<|im_start|>tools\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for call in m.tool_calls %}<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>{% endfor %}"
    "{% if m.is_error %}!{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>{% endif %}{% endif %}"
)
"""Prints all that a request can say, so that whatever is translated otherwise gives another prompt."""
