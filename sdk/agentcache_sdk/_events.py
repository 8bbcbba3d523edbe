"""Reading a streamed chat completion: bytes -> events -> text deltas and, at the end, the turn.  No I/O."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any

from agentcache_sdk._replies import Reply, api_error, stream_error, turn_from_body
from agentcache_sdk.errors import AgentCacheError
from agentcache_sdk.types import Turn


class EventDecoder:
    """Server-sent events out of arbitrary pieces of bytes.

    Lines end at CR, LF or CRLF only: splitting decoded text at every line boundary that Unicode knows would cut JSON
    that holds U+2028.  See the WHATWG HTML standard, section 9.2.6.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of every event that ``piece`` completes."""
        text = (self._rest + piece).replace(b"\r\n", b"\n")
        # A CR at the very end may be half of a CRLF: it waits for the next piece.
        held = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = text.removesuffix(held).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest + held
        for line in lines:
            if not line:
                if self._data:
                    yield b"\n".join(self._data).decode("utf-8", "replace")
                self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))


class TurnReader:
    """Adds up the chunks of one stream.

    ``feed`` takes what arrives, ``end`` says that nothing more will, ``poll`` hands out what is ready, in order.
    """

    def __init__(self, url: str, reply: Reply) -> None:
        self._url = url
        self._reply = reply
        self._decoder = EventDecoder()
        self._body: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._ready: deque[str | Turn | AgentCacheError] = deque()
        self._over = False

    def feed(self, piece: bytes) -> None:
        for data in self._decoder.feed(piece):
            if self._over:
                return
            try:
                self._event(data)
            except AgentCacheError as failure:
                self._finish(failure)

    def end(self) -> None:
        if not self._over:
            self._finish(stream_error(None, self._url))

    def poll(self) -> str | Turn | None:
        """The next delta, or the turn after the last one; ``None``: nothing yet.

        Raises:
            AgentCacheError: the stream carried an error, or ended too early.  Deltas before it come first.
        """
        if not self._ready:
            return None
        item = self._ready.popleft()
        if isinstance(item, AgentCacheError):
            raise item
        return item

    def _event(self, data: str) -> None:
        if data.strip() == "[DONE]":
            self._finish(turn_from_body(self._reply, self._whole()))
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            self._reply.unreadable(f"expected a JSON object in the stream, got {data[:120]!r}")
        if error := chunk.get("error"):
            error = error if isinstance(error, dict) else {"message": str(error)}
            raise api_error(error, _status_of(error), self._reply.headers.get("x-request-id"))
        self._add(chunk)

    def _add(self, chunk: dict[str, Any]) -> None:
        for key, value in chunk.items():
            if key != "choices" and value is not None:
                self._body[key] = value
        for piece in chunk.get("choices") or []:
            index = piece.get("index", 0)
            choice = self._choices.setdefault(index, _empty_choice(index, piece))
            _merge_choice(choice, piece)
            text = piece.get("text") if "text" in piece else (piece.get("delta") or {}).get("content")
            if text and index == 0:
                self._ready.append(text)

    def _whole(self) -> dict[str, Any]:
        choices = [self._choices[index] for index in sorted(self._choices)]
        for message in (choice["message"] for choice in choices if "message" in choice):
            # As in a plain answer: a reply of tool calls alone has no text, rather than an empty one.
            if message.get("tool_calls") and not message["content"]:
                message["content"] = None
        whole = str(self._body.get("object", "chat.completion")).removesuffix(".chunk")
        return {**self._body, "object": whole, "choices": choices}

    def _finish(self, item: Turn | AgentCacheError) -> None:
        self._over = True
        self._ready.append(item)


def _status_of(error: dict[str, Any]) -> int:
    """The status that an error would have had as a plain answer; the stream's own is 200."""
    codes = {"shutting_down": 503, "context_length_exceeded": 400}
    return codes.get(str(error.get("code")), 500)


def _empty_choice(index: int, piece: dict[str, Any]) -> dict[str, Any]:
    """Of a raw completion, whose pieces have ``text``, or of a chat completion."""
    return {"index": index} | ({"text": ""} if "text" in piece else {"message": {"role": "assistant", "content": ""}})


def _merge_choice(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    for key, value in piece.items():
        if key == "delta":
            _merge_delta(choice["message"], value or {})
        elif key == "text":
            choice["text"] += value or ""
        elif isinstance(value, list) and isinstance(choice.get(key), list):
            choice[key] = choice[key] + value
        elif key == "logprobs" and isinstance(value, dict) and isinstance(choice.get(key), dict):
            for name, entries in value.items():
                choice[key][name] = (choice[key].get(name) or []) + (entries or [])
        elif value is not None or key not in choice:
            choice[key] = value


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            calls = message.setdefault("tool_calls", [])
            for part in value or []:
                _merge_call(calls, part)
        elif key != "role" and isinstance(value, str):
            message[key] = (message.get(key) or "") + value
        elif value is not None:
            message[key] = value


def _merge_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Calls come in pieces, told apart by ``index``: id and name once, the arguments bit by bit."""
    index = part.get("index", len(calls))
    while len(calls) <= index:
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call, function = calls[index], part.get("function") or {}
    call["id"] = part.get("id") or call["id"]
    call["function"]["name"] = function.get("name") or call["function"]["name"]
    call["function"]["arguments"] += function.get("arguments") or ""
