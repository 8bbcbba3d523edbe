"""What a script is made of: replies, and what can go wrong in place of one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from agentcache_sdk.errors import APIError

if TYPE_CHECKING:
    from agentcache_sdk.testing.requests import Request


@dataclass(frozen=True)
class ScriptedCall:
    """A tool call that the model makes.  ``arguments`` is JSON text, or whatever a model might write there instead."""

    name: str
    arguments: str = "{}"


def call(name: str, /, **arguments: Any) -> ScriptedCall:
    """A call of the tool ``name``.

    >>> from agentcache_sdk.testing import call
    >>> call("read_file", path="a.py", limit=3)
    ScriptedCall(name='read_file', arguments='{"path": "a.py", "limit": 3}')
    """
    return ScriptedCall(name, json.dumps(arguments, ensure_ascii=False))


@dataclass(frozen=True)
class Reply:
    """What the model says; made by ``reply``."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    reasoning: str = ""
    finish_reason: str | None = None
    findings: tuple[Mapping[str, Any], ...] = ()


def reply(
    text: str = "",
    *,
    calls: Sequence[ScriptedCall] = (),
    reasoning: str = "",
    finish_reason: str | None = None,
    findings: Sequence[Mapping[str, Any]] = (),
) -> Reply:
    """A reply with more to it than a text or a call.

    Args:
        text: what it says beside its calls.
        reasoning: what the model thought before.
        finish_reason: default: ``tool_calls`` with calls, else ``stop``, or ``length`` where ``max_tokens`` cuts it.
        findings: what the server finds about this request, such as ``{"code": "AC501", "tokens_lost": 200}``; the SDK
            warns about it.

    >>> from agentcache_sdk.testing import FakeEngine, call, reply
    >>> engine = FakeEngine([reply("Let me look.", calls=[call("read_file", path="a.py")], reasoning="Hm.")])
    >>> with engine.client() as client:
    ...     turn = client.chat([{"role": "user", "content": "Fix it."}])
    >>> turn.text, turn.tool_calls[0].args, turn.finish_reason
    ('Let me look.', {'path': 'a.py'}, 'tool_calls')
    """
    return Reply(text, tuple(calls), reasoning, finish_reason, tuple(findings))


@dataclass(frozen=True)
class Fault:
    """Something other than a whole reply; made by the functions below.

    Attributes:
        then: the reply that is cut, lost or late.
    """

    then: Any = "This reply was cut."


@dataclass(frozen=True)
class ErrorFault(Fault):
    """The server answers with an error; with ``after_chunks`` in the middle of a stream."""

    status: int = 500
    code: str | None = None
    message: str = "the fake engine was told to fail"
    param: str | None = None
    retry_after: float | None = None
    after_chunks: int | None = None


@dataclass(frozen=True)
class HangUp(Fault):
    """The connection is lost before the reply is complete; nothing is committed."""

    after_chunks: int = 0


@dataclass(frozen=True)
class LoseAnswer(Fault):
    """The request is served and committed, and then the connection is lost."""


@dataclass(frozen=True)
class RefuseConnection(Fault):
    """There is no server."""


@dataclass(frozen=True)
class Delay(Fault):
    """Nothing comes for a while; the engine's clock goes on, and nobody sleeps."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Raise(Fault):
    """The transport raises ``error`` (an exception of httpx's, say)."""

    error: BaseException = field(default_factory=RuntimeError)


def error(
    status: int,
    code: str | None = None,
    message: str = "the fake engine was told to fail",
    *,
    param: str | None = None,
    retry_after: float | None = None,
    after_chunks: int | None = None,
) -> Fault:
    """An error answer.  The client retries 503, and a 429 that has ``retry_after``, which then takes the next reply.

    Args:
        status: of HTTP.
        code: default: what the server says with that status, ``queue_full`` for 429 for instance.
        retry_after: seconds; the client really sleeps that long, so keep it near 0.
        after_chunks: of a stream: begin well, and end with the error after so many chunks.

    >>> from agentcache_sdk.testing import FakeEngine, error
    >>> engine = FakeEngine([error(429, retry_after=0.0), "Now."])
    >>> with engine.client() as client:
    ...     client.chat([{"role": "user", "content": "Hello"}]).text
    'Now.'
    """
    code = code if code is not None else _CODES.get(status)
    return ErrorFault(
        status=status, code=code, message=message, param=param, retry_after=retry_after, after_chunks=after_chunks
    )  # fmt: skip


_CODES = {
    400: "invalid_value",
    404: "model_not_found",
    422: "session_diverged",
    429: "queue_full",
    500: "internal_server_error",
    503: "shutting_down",
}


def hang_up(after_chunks: int = 0, then: Any = Fault.then) -> Fault:
    """The connection is lost after so many chunks of a stream with text or calls of the reply ``then``; at once by default.

    The session stays as it was before the turn.
    """
    return HangUp(then, after_chunks)


def lose_answer(then: Any = Fault.then) -> Fault:
    """The server serves the request, and a session's turn is committed, but the answer ``then`` never arrives."""
    return LoseAnswer(then)


def refuse_connection() -> Fault:
    """No connection can be made.  The client tries again, which takes the next reply of the script."""
    return RefuseConnection()


def delay(seconds: float, then: Any = "Sorry, that took a while.") -> Fault:
    """``then``, after ``seconds`` in which nothing comes: ``Timeout`` when that is longer than the client waits.

    Nobody sleeps; the engine's clock goes on instead, so leases and sessions may end meanwhile.
    """
    return Delay(then, seconds)


def silence() -> Fault:
    """Nothing ever comes: ``Timeout``, whatever the client's timeout is, and at once."""
    return Delay(seconds=math.inf)


Scripted = Union[str, Mapping[str, Any], ScriptedCall, Sequence[Any], Reply, Fault, BaseException]  # noqa: UP007
"""A reply: a text, an object (sent as JSON text), a call, a list of calls (with texts between), or a fault."""
Script = Union[Scripted, Callable[["Request"], Scripted]]  # noqa: UP007
"""A reply, or a function that makes one of a request."""


def as_reply(value: Any) -> Reply | Fault:
    """What a script may hold, in one shape.

    Raises:
        TypeError: it is no reply.
    """
    if isinstance(value, (Reply, Fault)):
        return value
    if isinstance(value, str):
        return Reply(value)
    if isinstance(value, ScriptedCall):
        return Reply(calls=(value,))
    if isinstance(value, Mapping):
        return Reply(json.dumps(value, ensure_ascii=False))
    if isinstance(value, APIError):
        return error(value.status, value.code, value.message, param=value.param, retry_after=value.retry_after)
    if isinstance(value, BaseException):
        return Raise(error=value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, (str, ScriptedCall)) for part in value):
        calls = tuple(part for part in value if isinstance(part, ScriptedCall))
        return Reply("".join(part for part in value if isinstance(part, str)), calls)
    raise TypeError(f"script: got {value!r}, expected a text, call(...), a list of calls, reply(...) or a fault")
