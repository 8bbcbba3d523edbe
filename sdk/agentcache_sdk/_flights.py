"""One request from before it is sent until after it ended.  No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol

from agentcache_sdk import _calls
from agentcache_sdk._calls import Call, Steps, within
from agentcache_sdk._core import SessionCore, SessionState
from agentcache_sdk._findings import break_finding
from agentcache_sdk._look import Glance, Watch
from agentcache_sdk._options import Message
from agentcache_sdk._retry import Repeat
from agentcache_sdk._revival import revive
from agentcache_sdk._tool_text import announced
from agentcache_sdk.cache_warnings import CallSite
from agentcache_sdk.errors import AgentCacheError, APIError
from agentcache_sdk.types import Turn

_FIXED = {
    "messages": "the session keeps its messages; use send(text) and tool_result(...)",
    "prompt": "a raw session is continued by send(text or ids)",
    "session": "the session names itself",
    "if_turns": "the session says itself how many turns it has seen",
    "turn_id": "the session names its turns itself",
    "tools": "tools belong to the session, and changing them changes the beginning of the prompt; add_tools(...) appends some",
    "model": "the model belongs to the session",
    "n": "a session continues one reply; fork(n) the session for more",
    "stream": "use session.stream(...)",
}


class Flight(Protocol):
    """A context: enter it, prepare the call, make it, and finish with the turn."""

    def __enter__(self) -> Flight: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def prepare(self) -> Steps[Call[Turn]]:
        """What has to be asked first; then the call itself, to be made by the caller."""
        ...

    def recover(self, error: AgentCacheError) -> Steps[Call[Turn]]:
        """What to make in place of a call that failed with ``error`` before it had an answer.

        Raises:
            AgentCacheError: ``error``; nothing else can be done.
        """
        ...

    def finish(self, turn: Turn) -> Turn:
        """Take in the finished turn; not called for one that failed or was cut."""
        ...


def whole(flight: Flight) -> Steps[Turn]:
    """A flight whose reply comes in one piece."""
    with flight:
        call = yield from flight.prepare()
        try:
            turn: Turn = yield call
        except AgentCacheError as error:
            turn = yield (yield from flight.recover(error))
        return flight.finish(turn)


@dataclass
class ChatFlight:
    """A stateless chat request: nothing is kept but what the next one is compared with."""

    call: Call[Turn]
    watch: Watch
    site: CallSite
    glance: Glance | None = None
    """The request as the client looked at it, from when it is sent until it is answered."""

    def __enter__(self) -> ChatFlight:
        return self

    def prepare(self) -> Steps[Call[Turn]]:
        glance = self.watch.glance(self.call.body or {}, self.site)
        glance.sending()
        self.glance = glance
        yield from ()
        return self.call

    def recover(self, error: AgentCacheError) -> Steps[Call[Turn]]:
        yield from ()
        raise error

    def finish(self, turn: Turn) -> Turn:
        glance, self.glance = self.glance, None
        if glance is not None:
            self.watch.answered(glance, turn, self.site)
        return turn

    def __exit__(self, *_: object) -> None:
        if self.glance is not None:
            self.glance.failed()
            self.glance = None


@dataclass(frozen=True)
class TurnInput:
    """The arguments of ``send`` and ``stream``."""

    text: str | Sequence[int] | None
    max_tokens: int | None
    volatile: Mapping[str, Any] | None
    sampling: Mapping[str, Any]
    timeout: float | None = None


@dataclass
class SessionFlight:
    """One turn of a session.  Unless it is finished, the session stays as it was before."""

    core: SessionCore
    given: TurnInput
    site: CallSite
    sent: list[Message] = field(default_factory=list)
    asked: bool = False
    """The call was handed out, so the server may have seen it."""
    known_as: str | None = None
    """The session that it asked."""
    alone: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> SessionFlight:
        for name in self.given.sampling:
            if name in _FIXED:
                raise TypeError(f"{name}: {_FIXED[name]}")
        self.alone.enter_context(self.core.alone())
        return self

    def prepare(self) -> Steps[Call[Turn]]:
        return within(self.given.timeout, self._prepared())

    def _prepared(self) -> Steps[Call[Turn]]:
        core = self.core
        yield from core.open()
        # A cut turn that the server has not begun to look at when it is told to drop it can still keep it busy.
        repeat = Repeat.SETTLING if core.unsettled else Repeat.APPENDING
        yield from core.settle()
        self.known_as = core.id
        call = replace(self._raw_call() if core.raw else self._chat_call(), timeout=self.given.timeout)
        self.asked = True
        return call if core.id is None else replace(call, repeat=repeat)

    def recover(self, error: AgentCacheError) -> Steps[Call[Turn]]:
        if not isinstance(error, APIError) or self.known_as is None:
            raise error
        yield from within(self.given.timeout, revive(self.core, self.known_as, error))
        return (yield from self.prepare())

    def _chat_call(self) -> Call[Turn]:
        core, given = self.core, self.given
        if given.text is not None and not isinstance(given.text, str):
            raise TypeError(f"text: got {type(given.text).__name__}, expected str: only a raw session takes token ids")
        self.sent = core.transcript.new_messages(given.text, given.volatile)
        params = {"max_tokens": given.max_tokens, **given.sampling}
        if core.id is not None:
            fixed = {"session": core.id, **core.next_turn, "tools": core.transcript.new_tools or None}
            return _calls.chat(self.sent, {**fixed, **params})
        self.sent = announced(self.sent, core.transcript.new_tools)
        fixed = {"model": core.options.model, "tools": core.transcript.tools or None}
        return _calls.chat([*core.transcript.committed, *self.sent], {**fixed, **params})

    def _raw_call(self) -> Call[Turn]:
        given = self.given
        if given.volatile:
            raise ValueError("volatile: a raw session has no messages to write it in; make it part of the text")
        text = given.text if given.text is not None else ""
        fixed = {"session": self.core.id, **self.core.next_turn, "max_tokens": given.max_tokens}
        return _calls.complete(text, {**fixed, **given.sampling})

    def finish(self, turn: Turn) -> Turn:
        core = self.core
        with core.lock:
            self.asked = False
            if core.state is SessionState.CLOSED:
                raise AgentCacheError("the session was closed while this turn ran; the turn is dropped")
            previous = core.transcript.previous_prompt
            compacted = core.transcript.beginning is not None and not core.transcript.turns
            core.transcript.commit(self.sent, turn)
        broken = break_finding(previous, turn.cache)
        if broken:
            core.sink.emit(broken[0], self.site, broken[1])
        # That the text is another one after a compaction was asked for, and its price is told.
        findings = (f for f in turn.cache.findings if not (compacted and f.code.startswith(("AC1", "AC4"))))
        core.sink.emit_all(findings, self.site)
        return turn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An answer of 400 to 499 says that there is no turn; a lost connection or a gateway's 502 leaves it open.
        refused = isinstance(error, APIError) and 400 <= error.status < 500
        if self.asked and not refused:
            self.core.unsettled = True
        self.asked = False
        self.alone.close()
