"""Answers that were recorded as the chunks of a stream, put together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_CHOICE = 0
"""The choice that is read."""


def whole_answer(chunks: Sequence[Any]) -> Mapping[str, Any] | None:
    """The answer that ``chunks`` add up to; ``None`` if they are of no API that is known.

    Args:
        chunks: objects, or events that hold them under ``data``.
    """
    events = [event for chunk in chunks if (event := _event(chunk)) is not None]
    for read in (_responses, _anthropic, _chat):
        if (answer := read(events)) is not None:
            return answer
    return None


def _event(chunk: Any) -> Mapping[str, Any] | None:
    if isinstance(chunk, Mapping) and "data" in chunk and "choices" not in chunk:
        chunk = chunk["data"]
    if isinstance(chunk, str):
        try:
            chunk = json.loads(chunk)
        except (ValueError, RecursionError):
            return None
    return chunk if isinstance(chunk, Mapping) else None


def _responses(events: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The last event holds the response itself."""
    ended = ("response.completed", "response.incomplete", "response.failed")
    return next((event.get("response") for event in events if event.get("type") in ended), None)


def _anthropic(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    started = next((event.get("message") for event in events if event.get("type") == "message_start"), None)
    if not isinstance(started, Mapping):
        return None
    blocks: dict[Any, dict[str, Any]] = {}
    usage = dict(_object(started.get("usage")))
    for event in events:
        match event.get("type"):
            case "content_block_start":
                blocks[str(event.get("index"))] = {**_object(event.get("content_block")), "partial": ""}
            case "content_block_delta" if str(event.get("index")) in blocks:
                _grow(blocks[str(event.get("index"))], _object(event.get("delta")))
            case "message_delta":
                usage |= {key: value for key, value in _object(event.get("usage")).items() if value is not None}
    return {**started, "content": [_closed(block) for block in blocks.values()], "usage": usage}


def _grow(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key, into in (("text", "text"), ("thinking", "thinking"), ("partial_json", "partial")):
        if isinstance(text := delta.get(key), str):
            block[into] = str(block.get(into) or "") + text


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    partial = block.pop("partial")
    if block.get("type") != "tool_use" or not partial:
        return block
    try:
        value = json.loads(partial)
    except (ValueError, RecursionError):  # cut
        value = {}
    return {**block, "input": value}


def _chat(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    if not any(isinstance(event.get("choices"), list) for event in events):
        return None
    reply = _ChatReply()
    answer: dict[str, Any] = {}
    for event in events:
        for key in ("id", "model", "usage", "prompt_token_ids"):
            if event.get(key) is not None:
                answer[key] = event[key]
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping) and choice.get("index", _CHOICE) == _CHOICE:
                reply.add(choice)
    return {**answer, "choices": [reply.choice()]}


class _ChatReply:
    """The chunks of one choice, of a chat or of a completion."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._calls: dict[Any, dict[str, Any]] = {}
        self._ids: list[Any] = []
        self._text: str | None = None

    def add(self, choice: Mapping[str, Any]) -> None:
        delta = _object(choice.get("delta"))
        for key in ("content", "reasoning_content", "reasoning", "refusal"):
            if isinstance(text := delta.get(key), str):
                self._texts[key] = self._texts.get(key, "") + text
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._call(_object(call))
        if isinstance(text := choice.get("text"), str):
            self._text = (self._text or "") + text
        ids = choice.get("token_ids")
        self._ids += ids if isinstance(ids, list) else []

    def _call(self, delta: Mapping[str, Any]) -> None:
        index = delta.get("index")
        call = self._calls.setdefault(index if isinstance(index, int) else len(self._calls), {"arguments": ""})
        function = _object(delta.get("function"))
        for key, value in (("id", delta.get("id")), ("name", function.get("name"))):
            if isinstance(value, str) and value:
                call[key] = value
        if isinstance(text := function.get("arguments"), str):
            call["arguments"] += text

    def choice(self) -> dict[str, Any]:
        ids = {"token_ids": self._ids} if self._ids else {}
        if self._text is not None:
            return {"text": self._text, **ids}
        message: dict[str, Any] = {"role": "assistant", "content": None, **self._texts}
        if self._calls:
            message["tool_calls"] = [_tool_call(call) for call in self._calls.values()]
        return {"message": message, **ids}


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call.get("name", ""), "arguments": call["arguments"]}
    return {"id": call.get("id", ""), "type": "function", "function": function}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
