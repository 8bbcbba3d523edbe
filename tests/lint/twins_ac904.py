"""Answers that do not say what was cached, and answers that do."""

from __future__ import annotations

from typing import Any

from lint_twins import Twin

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Which page of the manual speaks of pages?"}]}
CHOICES = [{"index": 0, "message": {"role": "assistant", "content": "The third."}, "finish_reason": "stop"}]
USAGE = {"prompt_tokens": 20, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0}}
BARE = {"prompt_tokens": 20, "completion_tokens": 4}


def chat(**more: Any) -> list[dict[str, Any]]:
    return [{"request": ASKED, "response": {"choices": CHOICES, **more}}]


def streamed(*last: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"body": ASKED, "response": [{"choices": [{"index": 0, "delta": {"content": "The third."}}]}, *last]}]


def message(**usage: int) -> list[dict[str, Any]]:
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "The third."}],
        "usage": usage,
    }
    return [{"body": {**ASKED, "max_tokens": 9}, "url": "/v1/messages", "response": answer}]


def response(**details: Any) -> list[dict[str, Any]]:
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "The third."}]}]
    answer = {"id": "resp_1", "output": output, "usage": {"input_tokens": 20, **details}}
    return [{"body": {"input": "Which page speaks of pages?"}, "response": answer}]


TWINS = [
    Twin("AC904", "no usage", failing=chat(), clean=chat(usage=USAGE)),
    Twin("AC904", "usage of null", failing=chat(usage=None), clean=chat(usage=USAGE)),
    Twin(
        "AC904", "no cached tokens", failing=chat(usage=BARE), clean=chat(usage={**BARE, "prompt_cache_hit_tokens": 0})
    ),
    Twin("AC904", "stream without its last chunk", failing=streamed(), clean=streamed({"choices": [], "usage": USAGE})),
    Twin(
        "AC904",
        "messages",
        failing=message(input_tokens=20),
        clean=message(input_tokens=20, cache_read_input_tokens=0, cache_creation_input_tokens=0),
    ),
    Twin("AC904", "responses", failing=response(), clean=response(input_tokens_details={"cached_tokens": 0})),
    Twin("AC904", "no answers at all", failing=[*chat(), *chat()], clean=[ASKED, ASKED]),
    Twin(
        "AC904",
        "refused requests",
        failing=[{"request": ASKED, "reply": "The third."}],
        clean=[{"request": ASKED, "response": {"status_code": 429, "body": {"error": {"message": "slow down"}}}}],
    ),
]
