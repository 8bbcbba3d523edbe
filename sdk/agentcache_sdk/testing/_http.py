"""Requests and answers of HTTP, as far as the engine needs them; what a route may refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from agentcache_sdk.testing._tokens import VOCABULARY

_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 500: "server_error"}


class Refusal(Exception):  # noqa: N818  an answer, not a failure
    """What a client is told in place of what it asked for."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None,
        retry_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status = status
        self.code = code
        self.error = {
            "message": message, "type": _KINDS.get(status, "invalid_request_error"), "param": param, "code": code,
        }  # fmt: skip
        self.headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}

    def answer(self) -> Answer:
        return Answer({"error": self.error}, self.status, self.headers)


def bad_field(field: str, message: str, code: str = "invalid_value") -> Refusal:
    return Refusal(400, f"{field}: {message}", param=field, code=code)


def busy(session_id: str) -> Refusal:
    message = f"session {session_id} is generating; one turn at a time"
    return Refusal(429, message, param="session", code="session_busy", retry_after=1)


@dataclass(frozen=True)
class Asked:
    """One request of HTTP.

    Attributes:
        owner: the API key, or what stands in its place.
        patience: seconds of silence after which the client gives up; ``None``: never.
    """

    method: str
    path: str
    query: str
    owner: str
    body: dict[str, Any]
    patience: float | None = None


@dataclass(frozen=True)
class Answer:
    """A whole answer, sent as JSON."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """An answer in events; ``end`` is called when the client has them all, or has hung up."""

    events: Iterator[bytes]
    end: Callable[[], None]


AnyAnswer = Union[Answer, Stream]  # noqa: UP007


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n\n"


DONE = b"data: [DONE]\n\n"


def parse_body(content: bytes) -> dict[str, Any]:
    """
    Raises:
        Refusal: it is no JSON object.
    """
    if not content.strip():
        return {}
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refusal(400, "the body is not a JSON object", param="body", code="invalid_json")
    return {key: value for key, value in body.items() if value is not None}


_NUMBERS: dict[str, tuple[float, float, str]] = {
    "temperature": (0, 1e6, "a number from 0 (greedy) to 1000000; default 1"),
    "top_p": (1e-9, 1, "a number above 0 and up to 1; default 1"),
    "min_p": (0, 1, "a number from 0 to 1; default 0"),
    "top_k": (-1, VOCABULARY, "an integer: 0 or -1 for no filter, or a count from 1"),
    "presence_penalty": (-2, 2, "a number from -2 to 2; default 0"),
    "frequency_penalty": (-2, 2, "a number from -2 to 2; default 0"),
    "n": (1, 128, "an integer from 1 to 128; default 1"),
    "max_tokens": (1, 2**53, "an integer from 1; default: the room left"),
    "max_completion_tokens": (1, 2**53, "an integer from 1; wins over max_tokens"),
    "if_turns": (0, 2**53, "an integer from 0: how many turns the session must have, or the turn is refused"),
}


def check_generation(body: Mapping[str, Any]) -> None:
    """The fields that chat and completions share.

    Raises:
        Refusal: 400, naming the field.
    """
    for name, (least, most, expected) in _NUMBERS.items():
        check_number(body, name, least, most, expected)
    if body.get("stream_options") is not None and not body.get("stream"):
        raise bad_field("stream_options", "only allowed when stream is true")
    if body.get("session") is not None and (body.get("n") or 1) > 1:
        raise bad_field("n", f"got {body['n']} with a session, which goes on with one reply: fork the session for more")


def check_number(body: Mapping[str, Any], name: str, least: float, most: float, expected: str) -> None:
    value = body.get(name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise bad_field(name, f"got {json.dumps(value)}, expected {expected}")


def check_messages(messages: Any, *, least: int = 1) -> list[dict[str, Any]]:
    """
    Raises:
        Refusal: 400, they are no messages.
    """
    if messages is None and least:
        raise bad_field("messages", "missing, expected a list of at least one message object", "missing_field")
    if messages is None:
        return []
    if not isinstance(messages, list) or len(messages) < least or not all(isinstance(m, dict) for m in messages):
        raise bad_field("messages", f"got {str(messages)[:60]}, expected a list of at least one message object")
    roles = ("system", "developer", "user", "assistant", "tool", "function")
    for index, message in enumerate(messages):
        if message.get("role") not in roles:
            expected = f"expected one of {', '.join(roles)}"
            raise bad_field(f"messages[{index}].role", f"got {message.get('role')!r}, {expected}")
    return messages
