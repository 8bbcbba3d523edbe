"""What client libraries send, and what a server recorded of it: predictions are what was measured, and nothing fires."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from saying import Saying, saying_server

from agentcache.lint.cli import main

INSTRUCTIONS = "You are a careful engineer. Read a file before you change it, and run the tests after each change. " * 4
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {"q": {}}}}}
TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Writes arguments in its own way: without escapes, and with a blank behind each comma and colon."""
ESCAPED = (
    '<tool_call>\n{"name": "search", "arguments": {"q":"caf\\u00e9 \\u00fcber \\u00e9t\\u00e9 \\u00e0"}}\n</tool_call>'
)
PLAIN = '<tool_call>\n{"name": "search", "arguments": {"q": "cafe"}}\n</tool_call>'


def talk(saying: Saying, first: str, **asked: Any) -> list[dict[str, Any]]:
    """A conversation with a call in it, by OpenAI's client; each request with its answer."""
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": "Find the cafe."}]
    told = []
    with openai.OpenAI(base_url=f"{saying.server.url}/v1", api_key="any", max_retries=0) as client:
        for reply in (first, "It is in the second file.", "Done, and the tests pass.", "You are welcome."):
            saying.says(reply)
            body = {"model": "smollm2", "messages": list(messages), "tools": [TOOL], **asked}
            answer = client.chat.completions.create(**body)
            told.append({"body": body, "response": answer.model_dump()})
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            calls = message.tool_calls or []
            results = [{"role": "tool", "tool_call_id": call.id, "content": "cafe.py " * 30} for call in calls]
            messages += results or [{"role": "user", "content": "Go on."}]
    return told


def linted(file: Path, folder: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    capsys.readouterr()
    main([str(file), "--tokenizer", str(folder), "--isolated", "--output-format", "json", "--statistics", *flags])
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def predicted(told: dict[str, Any]) -> list[int]:
    return [each["cached_tokens"] for each in told["statistics"]["predictions"]]


def measured(lines: list[dict[str, Any]]) -> list[int]:
    return [each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in lines]


def trace_of(path: Path, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 10
    while (data := path.read_bytes()).count(b"\n") < count:
        assert time.monotonic() < deadline, data
        time.sleep(0.01)
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize(
    ("first", "asked"),
    [(PLAIN, {}), (ESCAPED, {}), (PLAIN, {"stop": ["</tool"]}), (PLAIN, {"max_tokens": 5})],
    ids=["as the template", "escaped", "stopped by a word", "cut"],
)
def test_a_trace_of_replies_that_the_template_writes_otherwise_is_clean_and_exact(
    first: str, asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    with saying_server(tmp_path, TEMPLATE, trace=path) as saying:
        count = len(talk(saying, first, **asked))
        lines = trace_of(path, count)
    told = linted(path, tmp_path, capsys, "--ignore", "AC5")
    assert told["findings"] == []
    assert predicted(told) == measured(lines)
    assert measured(lines)[-1] > 100


def test_what_is_predicted_of_bodies_and_answers_is_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with saying_server(tmp_path, TEMPLATE) as saying:
        lines = talk(saying, PLAIN)
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    told = linted(path, tmp_path, capsys, "--ignore", "AC5")
    assert told["findings"] == []
    assert predicted(told) == measured([line["response"] for line in lines])
