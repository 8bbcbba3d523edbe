"""A session without its network.  Shared by ``Session`` and ``AsyncSession``, which only run its steps.

::

    client.session(...)     not opened        nothing was sent yet
    first use, or `with`    opened, id        the server holds the transcript; a turn sends what is new
                            opened, no id     the server holds no sessions; a turn sends everything
"""

from __future__ import annotations

import copy
import enum
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agentcache_sdk import _session_calls as calls
from agentcache_sdk._calls import Steps
from agentcache_sdk._durations import parse_ttl
from agentcache_sdk._findings import VOLATILE_ADVICE, volatile_findings
from agentcache_sdk._options import SessionOptions
from agentcache_sdk._transcript import Transcript, transcript_of
from agentcache_sdk.cache_warnings import CallSite, WarningSink
from agentcache_sdk.errors import AgentCacheError, APIError, Busy
from agentcache_sdk.report import SessionReport
from agentcache_sdk.types import Explanation, Pin, SessionInfo, Snapshot


@dataclass
class ServerAbility:
    """What one client has found out about its server.

    Attributes:
        holds_sessions: ``None`` until the first session asked.
    """

    holds_sessions: bool | None = None


@dataclass(frozen=True)
class Wait:
    """A tool that ran between two turns, and for how long (seconds)."""

    tool: str
    expect_s: float | None
    took_s: float


class SessionState(enum.Enum):
    """IDLE <-> IN_TURN (or in a rollback); either -> CLOSED."""

    IDLE = "idle"
    IN_TURN = "in turn"
    CLOSED = "closed"


@dataclass
class SessionCore:
    """Everything a session knows.  Safe to call from several threads.

    Attributes:
        id: the server's name of it, once it is opened there.
        raw: continued with text or token ids as they stand, rather than with messages.
        unsettled: a turn was cut, or its answer lost, and the server may have committed it nevertheless.
        author: what this object calls itself; its turns are named after it, so that it never drops another client's.
    """

    options: SessionOptions
    server: ServerAbility
    transcript: Transcript
    sink: WarningSink
    clock: Callable[[], float] = time.monotonic
    id: str | None = None
    opened: bool = False
    raw: bool = False
    unsettled: bool = False
    author: str = field(default_factory=lambda: secrets.token_hex(8))
    waits: list[Wait] = field(default_factory=list)
    state: SessionState = SessionState.IDLE
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def create(cls, options: SessionOptions, server: ServerAbility, site: CallSite) -> SessionCore:
        """A new session; nothing is sent yet.

        Raises:
            CacheWarning: its system text looks volatile, and warnings are errors.
        """
        for finding in volatile_findings(options.head, whole_history=False):
            options.sink.emit(finding, site, VOLATILE_ADVICE)
        raw = options.prompt is not None
        return cls(options, server, Transcript(options.head), options.sink, raw=raw)

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        with self.lock:
            return tuple(copy.deepcopy(self.transcript.messages))

    def open(self) -> Steps[None]:
        """Find or make the session on the server, unless that is done, or the server holds none.

        Raises:
            NotFound: no such model, session or snapshot.
            AgentCacheError: the server holds no sessions, and this one can live nowhere else.
        """
        with self.lock:
            self._require_open()
            if self.opened:
                return
        info = None if self.server.holds_sessions is False else (yield from self._found_or_made())
        if info is None and (verb := self._only_on_server()):
            raise not_held(verb)
        with self.lock:
            wanted = not self.opened and self.state is not SessionState.CLOSED
            if wanted:
                self.opened = True
                self.id = None if info is None else info.id
                if info is not None and (self.options.session_id or self.options.from_snapshot):
                    self.transcript = transcript_of(info)
                    self.raw = info.kind == "raw"
        if not wanted and info is not None and self.options.session_id is None:
            yield calls.delete(info.id)  # another thread was faster, or closed the session meanwhile
        with self.lock:
            self._require_open()

    def _found_or_made(self) -> Steps[SessionInfo | None]:
        try:
            known = self.options.session_id
            info: SessionInfo = yield calls.create(self.options.fields()) if known is None else calls.info(known)
        except APIError as error:
            if not calls.is_missing_route(error):
                raise
            self.server.holds_sessions = False
            return None
        self.server.holds_sessions = True
        return info

    def _only_on_server(self) -> str | None:
        """What was asked for that a client alone cannot do."""
        options = self.options
        asked = {"resume": options.session_id, "restore": options.from_snapshot, "session(prompt=...)": options.prompt}
        return next((verb for verb, value in asked.items() if value is not None), None)

    def _held(self, verb: str) -> Steps[str]:
        """The id, of a session that the server holds.

        Raises:
            AgentCacheError: it holds none.
        """
        yield from self.open()
        if self.id is None:
            raise not_held(verb)
        return self.id

    @property
    def next_turn(self) -> dict[str, Any]:
        """What tells the server that a turn is this client's, and which one."""
        turns = len(self.transcript.turns)
        return {"if_turns": turns, "turn_id": f"{self.author}.{turns}"}

    def settle(self) -> Steps[None]:
        """After a turn that did not end here: have the server drop it, should it have ended there.

        Raises:
            SessionDiverged: another client has gone on with the session meanwhile; nothing was dropped.
        """
        if self.id is not None and self.unsettled:
            turn = self.next_turn
            yield calls.drop_turn(self.id, turn["if_turns"], turn["turn_id"])
            self.unsettled = False

    def fork(self, n: int, at_turn: int | None) -> Steps[list[SessionCore]]:
        """Works while a turn runs: the copies end at the last committed one."""
        if n < 1:
            raise ValueError(f"fork: got {n}, expected at least 1")
        yield from self.open()
        with self.lock:
            copies = [self.transcript.kept(at_turn) for _ in range(n)]
        ids: list[str | None] = [None] * n
        if self.id is not None:
            # The turn is always named: the server may have committed one that this client has not read yet.
            infos: list[SessionInfo] = yield calls.fork(self.id, n, len(copies[0].turns))
            ids = [info.id for info in infos]
        return [self._twin(transcript, session_id) for transcript, session_id in zip(copies, ids, strict=True)]

    def _twin(self, transcript: Transcript, session_id: str | None) -> SessionCore:
        """Of this session's kind, with nothing shared that changes."""
        fresh = SessionCore(self.options, self.server, transcript, self.sink.copy(), self.clock)
        return replace(fresh, id=session_id, opened=True, raw=self.raw)

    def rollback(self, to_turn: int) -> Steps[None]:
        yield from self.open()
        with self.alone():
            kept = self.transcript.kept(to_turn)
            yield from self.settle()
            known = len(self.transcript.turns)
            if self.id is not None and to_turn < known:
                yield calls.rollback(self.id, to_turn, known)
            with self.lock:
                self.transcript = kept

    def wait(self, tool: str, expect_s: float | None) -> Steps[None]:
        """Tell the server that a tool runs."""
        yield from self.open()
        if self.id is not None:
            yield calls.wait(self.id, tool, expect_s)

    def pin(self, ttl: str | float) -> Steps[Pin]:
        ttl_s = parse_ttl(ttl)
        session_id = yield from self._held("pin")
        pin: Pin = yield calls.pin(session_id, ttl_s)
        return pin

    def unpin(self) -> Steps[None]:
        session_id = yield from self._held("unpin")
        yield calls.unpin(session_id)

    def snapshot(self, name: str) -> Steps[Snapshot]:
        session_id = yield from self._held("snapshot")
        yield from self.settle()
        snapshot: Snapshot = yield calls.snapshot(session_id, name)
        return snapshot

    def explain(self) -> Steps[Explanation]:
        session_id = yield from self._held("explain")
        explanation: Explanation = yield calls.explain(session_id)
        return explanation

    def close(self) -> Steps[None]:
        with self.lock:
            was_closed, self.state = self.state is SessionState.CLOSED, SessionState.CLOSED
        if self.id is None or was_closed:
            return
        try:
            yield calls.delete(self.id)
        except AgentCacheError:
            pass  # it is gone already, or will be when its ttl is over; what the caller is leaving for matters more

    def tool_result(self, call_id: str, content: Any) -> None:
        with self.lock:
            self._require_idle()
            if not self.opened and self._only_on_server():
                raise AgentCacheError(
                    "tool_result: open the session first, by `with` or open(): its calls are not known"
                )
            self.transcript.add_tool_result(call_id, content)

    def mark(self) -> int:
        with self.lock:
            return len(self.transcript.turns)

    def report(self) -> SessionReport:
        with self.lock:
            return self.transcript.report()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No turn and no rollback besides this one.

        Raises:
            Busy: there is one already.
        """
        with self.lock:
            self._require_idle()
            self.state = SessionState.IN_TURN
        try:
            yield
        finally:
            with self.lock:
                if self.state is SessionState.IN_TURN:
                    self.state = SessionState.IDLE

    def _require_open(self) -> None:
        if self.state is SessionState.CLOSED:
            raise AgentCacheError("the session is closed")

    def _require_idle(self) -> None:
        self._require_open()
        if self.state is SessionState.IN_TURN:
            raise Busy("a turn of this session is still running: wait for it, or fork the session", 429, "session_busy")


def not_held(verb: str) -> AgentCacheError:
    return AgentCacheError(
        f"{verb}: this server does not hold sessions; they live in this client, which re-sends their messages"
    )


@dataclass
class WaitClock:
    """How long a tool runs."""

    core: SessionCore
    tool: str
    expect_s: float | None
    began: float = 0.0

    def start(self) -> Steps[None]:
        yield from self.core.wait(self.tool, self.expect_s)
        self.began = self.core.clock()

    def stop(self) -> None:
        self.core.waits.append(Wait(self.tool, self.expect_s, self.core.clock() - self.began))
