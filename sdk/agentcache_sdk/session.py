"""A conversation that only grows, so that every turn finds the turns before it in the server's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentcache_sdk import _branches, _keeping
from agentcache_sdk._compaction import ASK, CompactInput, Compaction, compact
from agentcache_sdk._core import SessionCore, Wait, WaitClock
from agentcache_sdk._flights import SessionFlight, TurnInput, whole
from agentcache_sdk._tool_drivers import ToolDriver
from agentcache_sdk._tool_loop import BeforeTurn, Callbacks, OnCall, OnDelta, OnResult, OnTurn, RunInput, RunResult
from agentcache_sdk._transport import Transport
from agentcache_sdk.alignment import Padding
from agentcache_sdk.cache_warnings import CallSite
from agentcache_sdk.report import SessionReport
from agentcache_sdk.streams import ChatStream
from agentcache_sdk.tools import Tool, refuse_async
from agentcache_sdk.types import Explanation, Pin, Snapshot, Turn


class Session:
    """Made by ``client.session(...)``, ``client.resume(id)`` and ``client.restore(name)``.

    The server holds the transcript, and a turn sends only what is new.  A server that holds no sessions gets the same
    messages in full with every turn.  A turn that fails, or whose stream is left early, leaves the session as it was.
    One turn runs at a time: a second one raises ``Busy``.  A session that another client has changed meanwhile raises
    ``SessionDiverged`` and stays as that client left it; ``client.resume(session.id)`` goes on from there.

    >>> from agentcache_sdk import Client
    >>> with Client("http://127.0.0.1:8100") as client:
    ...     with client.session(system="Answer in one word.") as session:
    ...         first = session.send("What is the capital of France?", max_tokens=8)
    ...         second = session.send("And of Italy?", max_tokens=8, volatile={"now": "12:00"})
    >>> second.usage.prompt_tokens > first.usage.prompt_tokens
    True
    """

    def __init__(self, transport: Transport, core: SessionCore) -> None:
        refuse_async(core.functions)
        self._transport = transport
        self._core = core

    @property
    def id(self) -> str | None:
        """The server's name of the session, for ``client.resume``; ``None`` before it is opened, or when it holds none."""
        return self._core.id

    def open(self) -> Session:
        """Make the session on the server, or find it there; entering ``with`` does it, and so does the first use.

        Raises:
            NotFound: no such model, session or snapshot.
            BadRequest: the server refuses the session as it was described.
        """
        self._transport.drive(self._core.open())
        return self

    def send(
        self,
        text: str | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **sampling: Any,
    ) -> Turn:
        """Run one turn; without ``text``, continue after tool results.

        Args:
            text: what the user says; in a raw session, text or token ids to go on with.
            max_tokens: longest reply; default: the room left.
            volatile: things that change from turn to turn (the time, a usage counter), by name.  They are written one
                ``name: value`` per line behind everything else: at the end of the newest user message, or, after tool
                results, as a user message of their own.  They stay in the history as sent, because taking them out
                later would change the beginning of the next prompt.
            timeout: seconds of silence after which this turn fails; default: the client's; ``math.inf`` waits for ever.
            sampling: any other field of a chat completion: ``temperature``, ``seed``, ``stop``, ``tool_choice`` ...

        Raises:
            AgentCacheError: see ``agentcache_sdk.errors``; the session is then as before.
            ValueError: there is nothing to send.
        """
        given = TurnInput(text, max_tokens, volatile, sampling, timeout)
        return self._transport.drive(whole(SessionFlight(self._core, given, CallSite.here())))

    def stream(
        self,
        text: str | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **sampling: Any,
    ) -> ChatStream:
        """``send`` as a stream: a context manager to iterate for text, whose ``result()`` is the turn."""
        given = TurnInput(text, max_tokens, volatile, sampling, timeout)
        return ChatStream(self._transport, SessionFlight(self._core, given, CallSite.here()))

    def run(
        self,
        text: str | None = None,
        *,
        max_turns: int = 8,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_turn: OnTurn | None = None,
        on_call: OnCall | None = None,
        on_result: OnResult | None = None,
        on_delta: OnDelta | None = None,
        before_turn: BeforeTurn | None = None,
        on_error: Literal["tell", "raise"] = "tell",
        **sampling: Any,
    ) -> RunResult:
        """Let the model work: send ``text``, run the functions that it calls, and go on until it calls none.

        Without ``text``, go on with the calls that are open.  Arguments are checked against the functions' types; what
        does not fit is told to the model, and so is, by default, what a function raises.  While a tool that may take
        long runs, a lease keeps the session's pages (see ``waiting``).

        Args:
            max_turns: turns of the model in this run, at most.
            on_turn, on_call, on_result: called with each ``Turn``, ``ToolCall`` and ``ToolRun``.  What ``on_call``
                returns, unless ``None``, is told to the model instead of running the tool: a refusal, for instance.
            on_delta: called with each piece of text; the turns are streamed then.
            before_turn: called with the number of the coming turn, from 0; the mapping that it returns, if any, is added
                to that turn's sampling: ``{"tool_choice": "required"}`` for the first one, for instance.
            on_error: ``"tell"`` the model what a function raised, or ``"raise"`` it; its call is open then.
            max_tokens, timeout, sampling: of every turn; ``volatile`` of the first.

        Raises:
            AgentCacheError: a turn failed; the session is as before that turn.

        >>> from agentcache_sdk import Client
        >>> def add(a: int, b: int) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> with Client("http://127.0.0.1:8100") as client, client.session(tools=[add]) as session:
        ...     result = session.run("What is 2 + 3?", max_turns=3, max_tokens=32)
        >>> result.stopped in ("answer", "max_turns")
        True
        """
        first = TurnInput(text, max_tokens, volatile, sampling, timeout)
        callbacks = Callbacks(on_turn, on_call, on_result, on_delta, before_turn)
        refuse_async(vars(callbacks))
        driver = ToolDriver(self._transport, self._core, callbacks, CallSite.here())
        return driver.run(RunInput(first, max_turns, on_error).checked())

    def tool_result(self, call_id: str, content: Any) -> None:
        """Record what a tool returned; the next turn sends it.  ``content`` that is not text is written as JSON.

        Raises:
            ValueError: the last reply has no open tool call of that id.
        """
        self._core.tool_result(call_id, content)

    def waiting(self, tool: str, expect_s: float | None = None) -> Waiting:
        """A context manager around a tool's run: the server keeps the session's pages for about that long (seconds).

        It is a hint, bounded by the server's budget for leases; ``waits`` records how long the tool took.
        """
        return Waiting(self._transport, WaitClock(self._core, tool, expect_s))

    def fork(self, n: int = 1, *, at_turn: int | None = None) -> tuple[Session, ...]:
        """``n`` sessions that go on from here, or from after the first ``at_turn`` turns.

        They share the server's pages of everything they have in common.  Works while a turn runs: the forks then begin
        after the last finished turn.  Each is a session of its own, to be closed for itself.

        Raises:
            ValueError: there are not that many turns.
        """
        cores = self._transport.drive(_branches.fork(self._core, n, at_turn))
        return tuple(Session(self._transport, core) for core in cores)

    def rollback(self, to_turn: int) -> None:
        """Keep the first ``to_turn`` turns and drop the rest, tool results that were not sent yet included.

        0 keeps only what the session began with.

        Raises:
            ValueError: there are not that many turns.
        """
        self._transport.drive(_branches.rollback(self._core, to_turn))

    def adopt(self, fork: Session) -> None:
        """Go on from what a fork came to: its turns become this session's, and the fork is closed.

        The session keeps its id and lease.  Turns that it had and the fork does not have are dropped.

        Raises:
            ValueError: ``fork`` is no fork of this session.
            Busy: a turn of either is running.
            SessionDiverged: another client has changed the session meanwhile; nothing was changed.
        """
        self._transport.drive(_branches.adopt(self._core, fork._core))

    def add_tools(self, *tools: Tool) -> None:
        """Give the model more tools from the next turn on.

        They are announced behind everything that was said, so that nothing before them has to be computed again.  Tools
        that the session has are left alone.

        Raises:
            TypeError: no function, or no schema can be made for it.
            ValueError: the session has another tool of that name.
        """
        refuse_async({getattr(tool, "__name__", "a tool"): tool for tool in tools})
        self._core.add_tools(tools)

    def compact(
        self, summary: str | None = None, *, keep_turns: int = 1, ask: str = ASK, max_tokens: int = 256
    ) -> Compaction:
        """Replace all but the last ``keep_turns`` turns by a summary of them; never done by itself.

        The transcript is not edited: the server makes a new session (so ``id`` changes) that begins as this one did, and
        the old one ends.  Turns count from 0 again.  The last turns are kept whole, more of them where a tool's result
        would lose its call.

        Args:
            summary: what stands for the dropped turns; ``None`` asks the model, in a fork, in at most ``max_tokens``.
            ask: the words in which the model is asked.

        Returns:
            What was dropped and what it costs; ``report()`` tells it too.

        Raises:
            ValueError: tool calls wait for results that would be dropped, or ``keep_turns`` is negative.
            Busy: a turn is running.
        """
        given = CompactInput(summary, keep_turns, ask, max_tokens, CallSite.here())
        return self._transport.drive(compact(self._core, given))

    def mark(self) -> int:
        """How many turns are finished; give it to ``rollback`` or ``fork`` later to come back here."""
        return self._core.mark()

    def pin(self, ttl: str | float = "10m") -> Pin:
        """A lease: the session's pages are not evicted before it ends.

        Over the server's budget fewer pages are granted, and the oldest leases lapse.

        Raises:
            AgentCacheError: the server holds no sessions.
        """
        return self._transport.drive(_keeping.pin(self._core, ttl))

    def unpin(self) -> None:
        """Give the lease back; the pages stay as ordinary cache."""
        self._transport.drive(_keeping.unpin(self._core))

    def snapshot(self, name: str) -> Snapshot:
        """Keep the session as it is under a name, on the server's disk: ``client.restore(name)`` begins from there.

        Args:
            name: 1 to 64 letters, digits, ``.``, ``_`` and ``-``.

        Raises:
            AgentCacheError: the server holds no sessions.
        """
        return self._transport.drive(_keeping.snapshot(self._core, name))

    def explain(self) -> Explanation:
        """What the server knows about the session: its turns, what each found cached, and what happened since.

        Raises:
            AgentCacheError: the server holds no sessions.
        """
        return self._transport.drive(_keeping.explain(self._core))

    def report(self) -> SessionReport:
        """Tokens sent, cached, computed and lost per turn, and why; ``print`` it or give it to ``rich``."""
        return self._core.report()

    @property
    def padding(self) -> Padding | None:
        """What ``pad="system"`` did; ``None`` before the session is opened, and where it was not asked for."""
        return self._core.padding

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The conversation so far, as copies."""
        return self._core.messages

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Tool runs that ``waiting`` recorded."""
        return tuple(self._core.waits)

    def close(self) -> None:
        """End the session, on the server too; later calls raise.  Idempotent.

        A session that is never closed ends on the server when its ``ttl`` is over.
        """
        self._transport.drive(self._core.close())

    def __enter__(self) -> Session:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


class Waiting:
    """A tool at work; see ``Session.waiting``."""

    def __init__(self, transport: Transport, clock: WaitClock) -> None:
        self._transport = transport
        self._clock = clock

    def __enter__(self) -> Waiting:
        self._transport.drive(self._clock.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.stop()
