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
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Protocol, TypeVar

from agentcache_sdk import _session_calls as calls
from agentcache_sdk._calls import Call, Steps
from agentcache_sdk._look import ClientLook
from agentcache_sdk._options import SessionOptions
from agentcache_sdk._padding import PaddingMemory, padded
from agentcache_sdk._revival import Kept, revive
from agentcache_sdk._transcript import Transcript, transcript_of
from agentcache_sdk.alignment import Padding
from agentcache_sdk.cache_warnings import CallSite, WarningSink
from agentcache_sdk.errors import AgentCacheError, APIError, Busy, ConnectionFailed
from agentcache_sdk.report import SessionReport
from agentcache_sdk.tools import Tool, ToolSet
from agentcache_sdk.types import SessionInfo, ToolCall

T = TypeVar("T")


@dataclass
class ServerAbility:
    """What one client has found out about its server.

    Attributes:
        holds_sessions: ``None`` until the first session asked.
        paddings: what static parts were filled up with.
    """

    holds_sessions: bool | None = None
    paddings: PaddingMemory = field(default_factory=PaddingMemory)


@dataclass(frozen=True)
class Wait:
    """A tool that ran between two turns, and for how long (seconds)."""

    tool: str
    expect_s: float | None
    took_s: float


class Change(Protocol):
    """What is done to a transcript on both sides, and may be asked for twice."""

    def make(self) -> Steps[None]: ...

    def again(self) -> Steps[None]:
        """After its answer was lost: nothing more where it was made."""
        ...


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
        doubt: a rollback or an adoption whose answer was lost: the next call makes it again.
        author: what this object calls itself; its turns are named after it, so that it never drops another client's.
        lineage: a mark of each session that it was forked from, oldest first, and its own.
        kept: the newest snapshot of it.
        functions: what runs when the model calls a tool, by name.
        padding: what its static part was filled up with, where that was asked for.
        notes: what happened besides turns, for the report.
        head_tokens: of what every turn begins with, where this client made the session.
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
    doubt: Change | None = None
    author: str = field(default_factory=lambda: secrets.token_hex(8))
    lineage: tuple[object, ...] = field(default_factory=lambda: (object(),))
    kept: Kept | None = None
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    padding: Padding | None = None
    head_tokens: int | None = None
    notes: tuple[str, ...] = ()
    waits: list[Wait] = field(default_factory=list)
    state: SessionState = SessionState.IDLE
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def create(cls, options: SessionOptions, server: ServerAbility, look: ClientLook, site: CallSite) -> SessionCore:
        """A new session; nothing is sent yet.

        Args:
            look: what the client's other sessions begin with.

        Raises:
            CacheWarning: what it begins with looks volatile, or is not what others begin with, and warnings are errors.
        """
        options.sink.emit_all(look.of_head(options.head, options.tools.schemas, options.model), site)
        raw = options.prompt is not None
        transcript = Transcript(options.head, tools=options.tools.schemas)
        return cls(options, server, transcript, options.sink, raw=raw, functions=dict(options.tools.functions))

    @property
    def closed(self) -> bool:
        return self.state is SessionState.CLOSED

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
        if self.options.pad and self.padding is None:
            yield from self._pad()
        info = None if self.server.holds_sessions is False else (yield from self._found_or_made())
        if info is None and (verb := self._only_on_server()):
            raise not_held(verb)
        with self.lock:
            wanted = not self.opened and self.state is not SessionState.CLOSED
            if wanted:
                self.opened = True
                self.id = None if info is None else info.id
                taken_up = self.options.session_id or self.options.from_snapshot
                if info is not None and not taken_up:
                    self.head_tokens = info.tokens
                if info is not None and taken_up:
                    ttl_s, metadata = self.options.ttl_s, self.options.metadata
                    self.options = replace(
                        self.options,
                        ttl_s=ttl_s or info.ttl_s,
                        metadata=info.metadata if metadata is None else metadata,
                    )
                    self.transcript = transcript_of(info)
                    self.raw = info.kind == "raw"
                    self.transcript.add_tools(self.options.tools.schemas)
                if self.options.from_snapshot:
                    turns = self.transcript.turns
                    self.kept = Kept(self.options.from_snapshot, turns[-1] if turns else None)
        if not wanted and info is not None and self.options.session_id is None:
            yield from self.discard(info.id)  # another thread was faster, or closed the session meanwhile
        with self.lock:
            self._require_open()

    def _pad(self) -> Steps[None]:
        options = self.options
        padding = yield from padded(options.head, options.tools.schemas, options.model, self.server.paddings)
        with self.lock:
            self.padding = padding
            self.transcript.head = tuple(padding.head)
            self.notes += (str(padding),)

    def fields(self) -> dict[str, Any]:
        """The body that makes this session on the server."""
        return self.options.fields() | {"messages": list(self.transcript.head) or None}

    def _found_or_made(self) -> Steps[SessionInfo | None]:
        try:
            known = self.options.session_id
            info: SessionInfo = yield calls.create(self.fields()) if known is None else calls.info(known)
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

    @property
    def next_turn(self) -> dict[str, Any]:
        """What tells the server that a turn is this client's, and which one."""
        turns = len(self.transcript.turns)
        return {"if_turns": turns, "turn_id": f"{self.author}.{turns}"}

    def settle(self) -> Steps[None]:
        """After a turn that did not end here: have the server drop it, should it have ended there.

        A rollback or an adoption whose answer was lost is made again.  To be called by whoever is ``alone``.

        Raises:
            SessionDiverged: another client has gone on with the session meanwhile; nothing was dropped.
        """
        if self.doubt is not None:
            yield from self.doubt.again()
            self.doubt = None
        if self.id is not None and self.unsettled:
            turn = self.next_turn
            yield from self.on_server(lambda known: calls.drop_turn(known, turn["if_turns"], turn["turn_id"]))
            self.unsettled = False

    def settle_alone(self) -> Steps[None]:
        """The same for what may be done beside a turn, which has settled everything before it began."""
        if self.unsettled or self.doubt is not None:
            with self.alone():
                yield from self.settle()

    def change(self, change: Change) -> Steps[None]:
        """Change the transcript on both sides; whoever comes next does it again where the answer is lost."""
        self.doubt = change
        try:
            yield from change.make()
        except AgentCacheError as error:
            if not may_be_done(error):
                self.doubt = None
            raise
        except Exception:  # a fault on this side, before anything went out; a cancelled task is no Exception
            self.doubt = None
            raise
        self.doubt = None

    def on_server(self, make: Callable[[str], Call[T]]) -> Steps[T]:
        """One call about the session, which the server may have lost since the last snapshot.

        Raises:
            NotFound: the session is gone, and no snapshot has all of it.
        """
        assert self.id is not None
        known = self.id
        try:
            answer: T = yield make(known)
        except APIError as error:
            yield from revive(self, known, error)
            answer = yield make(self.id)
        return answer

    def discard(self, session_id: str) -> Steps[None]:
        """End a session of the server's that nobody uses."""
        try:
            yield calls.delete(session_id)
        except AgentCacheError:
            pass  # it is gone already, or will be when its ttl is over

    def wait(self, tool: str, expect_s: float | None) -> Steps[None]:
        """Tell the server that a tool runs."""
        yield from self.open()
        if self.id is not None:
            yield from self.on_server(lambda known: calls.wait(known, tool, expect_s))

    def close(self) -> Steps[None]:
        with self.lock:
            was_closed, self.state = self.state is SessionState.CLOSED, SessionState.CLOSED
        if self.id is None or was_closed:
            return
        yield from self.discard(self.id)  # a failure is no matter: what the caller is leaving for matters more

    def tool_result(self, call_id: str, content: Any) -> None:
        with self.lock:
            self._require_idle()
            if not self.opened and self._only_on_server():
                raise AgentCacheError(
                    "tool_result: open the session first, by `with` or open(): its calls are not known"
                )
            self.transcript.add_tool_result(call_id, content)

    def add_tools(self, tools: Iterable[Tool]) -> None:
        """Have the next turn add tools.

        Raises:
            TypeError, ValueError: no tools, or one whose name another tool has.
        """
        given = ToolSet.of(tools)
        with self.lock:
            self._require_idle()
            if self.raw:
                raise ValueError("add_tools: a raw session has no messages that could announce tools")
            if not self.opened and self._only_on_server():
                raise AgentCacheError("add_tools: open the session first, by `with` or open(): its tools are not known")
            self.transcript.add_tools(given.schemas)
            self.functions.update(given.functions)

    def open_tool_calls(self) -> tuple[ToolCall, ...]:
        """Those of the last reply that have no result yet."""
        with self.lock:
            waiting = set(self.transcript.open_calls() or ())
            last = self.transcript.committed[-1:]
        calls = [call for message in last for call in message.get("tool_calls") or []]
        return tuple(
            ToolCall(id=call["id"], **{key: call["function"].get(key) or "" for key in ("name", "arguments")})
            for call in calls
            if call.get("id") in waiting
        )

    @contextmanager
    def timed(self, tool: str, expect_s: float | None = None) -> Iterator[None]:
        """Record how long a tool takes."""
        began = self.clock()
        try:
            yield
        finally:
            with self.lock:
                self.waits.append(Wait(tool, expect_s, self.clock() - began))

    def usual_wait(self, tool: str) -> float | None:
        """Seconds that a tool took in the middle of its runs so far."""
        with self.lock:
            took = [wait.took_s for wait in self.waits if wait.tool == tool]
        return median(took) if took else None

    def mark(self) -> int:
        with self.lock:
            return len(self.transcript.turns)

    def report(self) -> SessionReport:
        with self.lock:
            return self.transcript.report(self.notes)

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


def may_be_done(error: AgentCacheError) -> bool:
    """Whether the server may have done what it was asked for, although this is what came back."""
    if isinstance(error, ConnectionFailed):
        return error.sent
    return not (isinstance(error, APIError) and (400 <= error.status < 500 or error.status == 503))


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
    running: ExitStack = field(default_factory=ExitStack)

    def start(self) -> Steps[None]:
        yield from self.core.wait(self.tool, self.expect_s)
        self.running.enter_context(self.core.timed(self.tool, self.expect_s))

    def stop(self) -> None:
        self.running.close()
