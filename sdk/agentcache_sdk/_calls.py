"""Every request the clients can make, as data.  No I/O; the sync and the async client share all of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import httpx

from agentcache_sdk._fields import check_fields, with_extra
from agentcache_sdk._replies import Reply, turn_of
from agentcache_sdk._retry import Repeat
from agentcache_sdk.tools import Tool, tool_schemas
from agentcache_sdk.types import CacheState, Health, Model, Tokens, Turn, Version

T = TypeVar("T")
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request and how to read its answer."""

    method: str
    path: str
    parse: Callable[[Reply], T]
    body: Mapping[str, Any] | None = None
    repeat: Repeat = Repeat.IF_REFUSED
    timeout: float | None = None
    """Seconds of silence for this call; ``None``: the client's own."""

    def content(self) -> bytes | None:
        """The body as JSON, keys in the order given.

        Raises:
            ValueError: something in it is not JSON (NaN, an object of Python, half a surrogate pair).
        """
        if self.body is None:
            return None
        try:
            text = json.dumps(self.body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"the request to {self.path} cannot be written as JSON: {error}") from error

    def build(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        content = self.content()
        headers = {"content-type": "application/json"} if content is not None else None
        timeout = httpx.USE_CLIENT_DEFAULT if self.timeout is None else seconds(self.timeout)
        return http.build_request(self.method, self.path, content=content, headers=headers, timeout=timeout)


def seconds(timeout: float) -> httpx.Timeout:
    """
    Raises:
        ValueError: not a time one can wait.
    """
    if not timeout > 0:
        raise ValueError(f"timeout: got {timeout}, expected seconds above 0, or math.inf to wait for ever")
    return httpx.Timeout(None if timeout == math.inf else timeout)


Steps = Generator[Call[Any], Any, T]
"""Calls to make one after another, each answered by its result or its error; what comes out in the end is a ``T``.

The sync and the async transport run the same steps, so what is decided between two calls is written once.
"""


def within(timeout: float | None, steps: Steps[T]) -> Steps[T]:
    """The same calls, those without a timeout of their own with this one."""
    try:
        call = next(steps)
        while True:
            try:
                answer = yield call if call.timeout is not None else replace(call, timeout=timeout)
            except BaseException as error:  # noqa: BLE001  the steps decide
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


def root_url(base_url: str) -> str:
    """``base_url`` without a trailing ``/`` or ``/v1``, which OpenAI clients need and people paste.

    Raises:
        ValueError: not an http(s) address.
    """
    url = str(base_url).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"base_url: got {base_url!r}, expected an address such as http://127.0.0.1:8100")
    return url.removesuffix("/v1").rstrip("/")


def headers(api_key: str | None) -> dict[str, str]:
    common = {"accept": "application/json, text/event-stream", "user-agent": "agentcache-sdk"}
    return common | ({"authorization": f"Bearer {api_key}"} if api_key else {})


def chat(messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any], timeout: float | None = None) -> Call[Turn]:
    """A chat completion.  Parameters that are ``None`` are left out; ``tools`` may hold functions.

    Raises:
        TypeError: ``messages`` is not a list of mappings, or ``stream`` is among the parameters.
    """
    _no_stream_flag(params)
    body: dict[str, Any] = {"messages": message_list(messages)}
    body |= {key: value for key, value in with_extra(params).items() if value is not None}
    if "tools" in body:
        body["tools"] = tool_schemas(body["tools"])
    return Call("POST", CHAT, turn_of, body, timeout=timeout)


def message_list(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """
    Raises:
        TypeError: not a list of mappings.
    """
    if isinstance(messages, str | bytes | Mapping) or not all(isinstance(message, Mapping) for message in messages):
        raise TypeError(f'messages: got {messages!r}, expected a list such as [{{"role": "user", "content": "Hi"}}]')
    return [dict(message) for message in messages]


def with_volatile(
    messages: Sequence[Mapping[str, Any]], volatile: Mapping[str, Any] | None
) -> Sequence[Mapping[str, Any]]:
    """``messages`` with what changes from call to call behind everything else.

    At the end of the last message, if that is a user's text; otherwise as a user message of its own.
    """
    if not volatile:
        return messages
    *rest, last = message_list(messages) or [{"role": "system"}]
    content, text = last.get("content"), volatile_text(volatile)
    if last.get("role") != "user":
        return [*messages, {"role": "user", "content": text}]
    if isinstance(content, list):
        return [*rest, {**last, "content": [*content, {"type": "text", "text": f"\n\n{text}"}]}]
    return [*rest, {**last, "content": f"{content}\n\n{text}" if content else text}]


def volatile_text(volatile: Mapping[str, Any] | None) -> str:
    """One ``name: value`` line per entry, in the order given."""
    if not volatile:
        return ""
    return "\n".join(f"{name}: {value}" for name, value in volatile.items())


def streamed(call: Call[Turn]) -> Call[Turn]:
    """The same request as a stream, with the usage figures that a plain answer has."""
    body = dict(call.body or {})
    options = {"include_usage": True, **(body.get("stream_options") or {})}
    return replace(call, body=body | {"stream": True, "stream_options": options})


def complete(prompt: str | Sequence[Any], params: Mapping[str, Any], timeout: float | None = None) -> Call[Turn]:
    """A completion of a text, token ids, or a list of either."""
    _no_stream_flag(params)
    prompt = prompt if isinstance(prompt, str) else list(prompt)
    body = {"prompt": prompt, **{key: value for key, value in with_extra(params).items() if value is not None}}
    return Call("POST", "/v1/completions", turn_of, body, timeout=timeout)


def _no_stream_flag(params: Mapping[str, Any]) -> None:
    check_fields(params, ("volatile", "timeout", "extra_body", "if_turns", "turn_id"))
    if "stream" in params:
        raise TypeError("stream: use stream_chat(...) for a stream; this method returns the whole reply")


def models() -> Call[list[Model]]:
    def parse(reply: Reply) -> list[Model]:
        body = reply.body()
        if not isinstance(body, dict) or not isinstance(body.get("data"), list):
            reply.unreadable(f"expected an object with data, got {str(body)[:120]}")
        return [reply.parse(Model, model) for model in body["data"]]

    return Call("GET", "/v1/models", parse)


def health() -> Call[Health]:
    """Never retried: who asks wants to know how the server is now."""
    return Call(
        "GET", "/health", lambda reply: reply.parse(Health, reply.body() if reply.content else {}), repeat=Repeat.NEVER
    )


def version() -> Call[Version]:
    return Call("GET", "/version", lambda reply: reply.parse(Version, reply.body()))


def tokenize(
    prompt: str | None, messages: Sequence[Mapping[str, Any]] | None, tools: Sequence[Tool] | None
) -> Call[Tokens]:
    """Token ids of a text, or of rendered messages.

    Raises:
        ValueError: both or neither of ``prompt`` and ``messages``.
    """
    if (prompt is None) == (messages is None):
        raise ValueError("tokenize: give either a prompt or messages")
    body: dict[str, Any] = {"prompt": prompt} if messages is None else {"messages": [dict(m) for m in messages]}
    if tools:
        body["tools"] = tool_schemas(tools)
    return Call("POST", "/tokenize", lambda reply: reply.parse(Tokens, reply.body()), body)


def detokenize(tokens: Sequence[int]) -> Call[str]:
    return Call("POST", "/detokenize", lambda reply: str(field_of(reply, "prompt")), {"tokens": list(tokens)})


def cache() -> Call[CacheState]:
    return Call("GET", "/v1/cache", lambda reply: reply.parse(CacheState, reply.body()))


def flush_cache() -> Call[int]:
    return Call("POST", "/v1/cache/flush", lambda reply: int(field_of(reply, "flushed")), {})


def field_of(reply: Reply, name: str) -> Any:
    body = reply.body()
    if not isinstance(body, dict) or name not in body:
        reply.unreadable(f"expected an object with {name}, got {str(body)[:120]}")
    return body[name]
