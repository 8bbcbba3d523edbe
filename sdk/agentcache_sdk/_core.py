"""A session without its network: state, turns in flight, warnings.  Shared by ``Session`` and ``AsyncSession``."""

from __future__ import annotations

import copy
import enum
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn, Protocol

from agentcache_sdk import _calls
from agentcache_sdk._calls import Call
from agentcache_sdk._durations import parse_ttl
from agentcache_sdk._findings import VOLATILE_ADVICE, break_finding, volatile_findings
from agentcache_sdk._transcript import Message, Transcript
from agentcache_sdk.cache_warnings import CallSite, WarningSink
from agentcache_sdk.errors import AgentCacheError, Busy
from agentcache_sdk.report import SessionReport
from agentcache_sdk.tools import Tool, tool_schemas
from agentcache_sdk.types import Turn

_FIXED = {
    "messages": "the session keeps its messages; use send(text) and tool_result(...)",
    "tools": "tools belong to the session: changing them between turns changes the beginning of the prompt",
    "model": "the model belongs to the session",
    "n": "a session continues one reply; fork(n) the session for more",
    "stream": "use session.stream(...)",
}


class Flight(Protocol):
    """One request from before it is sent until after it ended: enter it for the call, finish it with the turn."""

    def __enter__(self) -> Call[Turn]: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def finish(self, turn: Turn) -> Turn:
        """Take in the finished turn; not called for one that failed or was cut."""
        ...


@dataclass
class ChatFlight:
    """A stateless chat request: nothing is kept, only warned about."""

    call: Call[Turn]
    sink: WarningSink
    site: CallSite

    def __enter__(self) -> Call[Turn]:
        messages = (self.call.body or {})["messages"]
        for finding in volatile_findings(messages, whole_history=True):
            self.sink.emit(finding, self.site, VOLATILE_ADVICE)
        return self.call

    def finish(self, turn: Turn) -> Turn:
        self.sink.emit_all(turn.cache.findings, self.site)
        return turn

    def __exit__(self, *_: object) -> None:
        return None


@dataclass(frozen=True)
class SessionOptions:
    """What ``client.session(...)`` was given, checked.  ``ttl_s`` in seconds."""

    system: str | None
    tools: tuple[dict[str, Any], ...]
    ttl_s: float | None
    model: str | None
    sink: WarningSink


def session_options(
    system: str | None,
    tools: Sequence[Tool] | None,
    ttl: str | float | None,
    model: str | None,
    ignore: str | Iterable[str],
) -> SessionOptions:
    """Check the arguments of ``client.session``.

    Raises:
        TypeError: a tool that no schema can be made for.
        ValueError: a ``ttl`` or a code in ``ignore`` that is none.
    """
    codes = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    for code in codes:
        if not re.fullmatch(r"AC\d{0,3}", code):
            raise ValueError(
                f"ignore: got {code!r}, expected a warning code such as AC101, or its beginning, such as AC1"
            )
    return SessionOptions(system, tuple(tool_schemas(tools or ())), parse_ttl(ttl), model, WarningSink(codes))


@dataclass(frozen=True)
class TurnInput:
    """The arguments of ``send`` and ``stream``."""

    text: str | None
    max_tokens: int | None
    volatile: Mapping[str, Any] | None
    sampling: Mapping[str, Any]


@dataclass(frozen=True)
class Wait:
    """A tool that ran between two turns, and for how long (seconds)."""

    tool: str
    expect_s: float | None
    took_s: float


class SessionState(enum.Enum):
    """IDLE <-> IN_TURN; either -> CLOSED."""

    IDLE = "idle"
    IN_TURN = "in turn"
    CLOSED = "closed"


@dataclass
class SessionCore:
    """Everything a session knows.  Safe to call from several threads."""

    options: SessionOptions
    transcript: Transcript
    sink: WarningSink
    clock: Callable[[], float] = time.monotonic
    waits: list[Wait] = field(default_factory=list)
    state: SessionState = SessionState.IDLE
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def create(cls, options: SessionOptions, site: CallSite) -> SessionCore:
        """A new session.

        Raises:
            CacheWarning: its system text looks volatile, and warnings are errors.
        """
        head: tuple[Message, ...] = ({"role": "system", "content": options.system},) if options.system else ()
        for finding in volatile_findings(head, whole_history=False):
            options.sink.emit(finding, site, VOLATILE_ADVICE)
        return cls(options, Transcript(head), options.sink)

    @property
    def messages(self) -> tuple[Message, ...]:
        with self.lock:
            return tuple(copy.deepcopy(self.transcript.messages))

    def flight(self, given: TurnInput, site: CallSite) -> SessionFlight:
        return SessionFlight(self, given, site)

    def tool_result(self, call_id: str, content: Any) -> None:
        with self.lock:
            self.require_idle()
            self.transcript.add_tool_result(call_id, content)

    def mark(self) -> int:
        with self.lock:
            return len(self.transcript.turns)

    def rollback(self, to_turn: int) -> None:
        with self.lock:
            self.require_idle()
            self.transcript = self.transcript.kept(to_turn)

    def fork(self, n: int, at_turn: int | None) -> list[SessionCore]:
        """Works while a turn runs: the copies end at the last committed one."""
        if n < 1:
            raise ValueError(f"fork: got {n}, expected at least 1")
        with self.lock:
            self.require_open()
            copies = [self.transcript.kept(at_turn) for _ in range(n)]
        return [SessionCore(self.options, transcript, self.sink.copy(), self.clock) for transcript in copies]

    def report(self) -> SessionReport:
        with self.lock:
            return self.transcript.report()

    def waiting(self, tool: str, expect_s: float | None) -> Waiting:
        return Waiting(self, tool, expect_s)

    def close(self) -> None:
        with self.lock:
            self.state = SessionState.CLOSED

    def not_held(self, verb: str) -> NoReturn:
        raise AgentCacheError(
            f"{verb}: this server does not hold sessions yet; the session lives in this client, which re-sends its messages"
        )

    def require_open(self) -> None:
        if self.state is SessionState.CLOSED:
            raise AgentCacheError("the session is closed")

    def require_idle(self) -> None:
        self.require_open()
        if self.state is SessionState.IN_TURN:
            raise Busy("a turn of this session is still running: wait for it, or fork the session", 429, "session_busy")


@dataclass
class SessionFlight:
    """One turn of a session.  Unless it is finished, the session stays as it was before."""

    core: SessionCore
    given: TurnInput
    site: CallSite
    sent: list[Message] = field(default_factory=list)
    flying: bool = False

    def __enter__(self) -> Call[Turn]:
        core = self.core
        with core.lock:
            core.require_idle()
            self.sent = core.transcript.new_messages(self.given.text, self.given.volatile)
            call = _calls.chat([*core.transcript.committed, *self.sent], self._params())
            core.state = SessionState.IN_TURN
            self.flying = True
        return call

    def _params(self) -> dict[str, Any]:
        for name in self.given.sampling:
            if name in _FIXED:
                raise TypeError(f"{name}: {_FIXED[name]}")
        options = self.core.options
        fixed = {"model": options.model, "tools": options.tools or None, "max_tokens": self.given.max_tokens}
        return {**fixed, **self.given.sampling}

    def finish(self, turn: Turn) -> Turn:
        core = self.core
        with core.lock:
            if core.state is SessionState.CLOSED:
                raise AgentCacheError("the session was closed while this turn ran; the turn is dropped")
            previous = core.transcript.previous_prompt
            core.transcript.commit(self.sent, turn)
        broken = break_finding(previous, turn.cache)
        if broken:
            core.sink.emit(broken[0], self.site, broken[1])
        core.sink.emit_all(turn.cache.findings, self.site)
        return turn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.core.lock:
            if self.flying and self.core.state is SessionState.IN_TURN:
                self.core.state = SessionState.IDLE
            self.flying = False


@dataclass
class Waiting:
    """A tool at work, as a context manager of either kind; records how long it took."""

    core: SessionCore
    tool: str
    expect_s: float | None
    began: float = 0.0

    def __enter__(self) -> Waiting:
        self.began = self.core.clock()
        return self

    def __exit__(self, *_: object) -> None:
        self.core.waits.append(Wait(self.tool, self.expect_s, self.core.clock() - self.began))

    async def __aenter__(self) -> Waiting:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()
