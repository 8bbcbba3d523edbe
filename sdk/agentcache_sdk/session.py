"""A conversation that only grows, so that every turn finds the turns before it in the server's cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from agentcache_sdk._core import SessionCore, TurnInput, Wait, Waiting
from agentcache_sdk._transport import Transport
from agentcache_sdk.cache_warnings import CallSite
from agentcache_sdk.report import SessionReport
from agentcache_sdk.streams import ChatStream
from agentcache_sdk.types import Turn


class Session:
    """Made by ``client.session(...)``.

    The session keeps its messages and re-sends them, unchanged and in order, with every turn.  A turn that fails, or
    whose stream is left early, leaves the session as it was.  One turn runs at a time: a second one raises ``Busy``.

    >>> from agentcache_sdk import Client
    >>> with Client("http://127.0.0.1:8100") as client:
    ...     with client.session(system="Answer in one word.") as session:
    ...         first = session.send("What is the capital of France?", max_tokens=8)
    ...         second = session.send("And of Italy?", max_tokens=8, volatile={"now": "12:00"})
    >>> second.usage.prompt_tokens > first.usage.prompt_tokens
    True
    """

    def __init__(self, transport: Transport, core: SessionCore) -> None:
        self._transport = transport
        self._core = core

    def send(
        self,
        text: str | None = None,
        *,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Turn:
        """Run one turn; without ``text``, continue after tool results.

        Args:
            text: what the user says.
            max_tokens: longest reply; default: the room left.
            volatile: things that change from turn to turn (the time, a usage counter), by name.  They are written one
                ``name: value`` per line behind everything else: at the end of the newest user message, or, after tool
                results, as a user message of their own.  They stay in the history as sent, because taking them out
                later would change the beginning of the next prompt.
            sampling: any other field of a chat completion: ``temperature``, ``seed``, ``stop``, ``tool_choice`` ...

        Raises:
            AgentCacheError: see ``agentcache_sdk.errors``; the session is then as before.
            ValueError: there is nothing to send.
        """
        flight = self._core.flight(TurnInput(text, max_tokens, volatile, sampling), CallSite.here())
        with flight as call:
            return flight.finish(self._transport.run(call))

    def stream(
        self,
        text: str | None = None,
        *,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> ChatStream:
        """``send`` as a stream: a context manager to iterate for text, whose ``result()`` is the turn."""
        given = TurnInput(text, max_tokens, volatile, sampling)
        return ChatStream(self._transport, self._core.flight(given, CallSite.here()))

    def tool_result(self, call_id: str, content: Any) -> None:
        """Record what a tool returned; the next turn sends it.  ``content`` that is not text is written as JSON.

        Raises:
            ValueError: the last reply has no open tool call of that id.
        """
        self._core.tool_result(call_id, content)

    def waiting(self, tool: str, expect_s: float | None = None) -> Waiting:
        """A context manager around a tool's run.  The server does not hold this session, so it only records the time."""
        return self._core.waiting(tool, expect_s)

    def fork(self, n: int = 1, *, at_turn: int | None = None) -> tuple[Session, ...]:
        """``n`` sessions that go on from here, or from after the first ``at_turn`` turns.

        They share the server's pages of everything they have in common.  Works while a turn runs: the forks then begin
        after the last finished turn.

        Raises:
            ValueError: there are not that many turns.
        """
        return tuple(Session(self._transport, core) for core in self._core.fork(n, at_turn))

    def rollback(self, to_turn: int) -> None:
        """Keep the first ``to_turn`` turns and drop the rest, tool results that were not sent yet included.

        0 keeps only the system text.

        Raises:
            ValueError: there are not that many turns.
        """
        self._core.rollback(to_turn)

    def mark(self) -> int:
        """How many turns are finished; give it to ``rollback`` or ``fork`` later to come back here."""
        return self._core.mark()

    def pin(self, ttl: str | float) -> NoReturn:
        """Needs a server that holds sessions.

        Raises:
            AgentCacheError: always, for now.
        """
        self._core.not_held("pin")

    def snapshot(self, name: str) -> NoReturn:
        """Needs a server that holds sessions.

        Raises:
            AgentCacheError: always, for now.
        """
        self._core.not_held("snapshot")

    def report(self) -> SessionReport:
        """Tokens sent, cached, computed and lost per turn, and why; ``print`` it or give it to ``rich``."""
        return self._core.report()

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The conversation so far, as copies."""
        return self._core.messages

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Tool runs that ``waiting`` recorded."""
        return tuple(self._core.waits)

    def close(self) -> None:
        """End the session; later calls raise.  Idempotent."""
        self._core.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
