"""The fake engine: a scripted model behind the server's own HTTP, with a real prefix cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentcache_sdk._retry import RetryPolicy
from agentcache_sdk.async_client import AsyncClient
from agentcache_sdk.client import Client
from agentcache_sdk.testing._audit import append_only_report, misses_report
from agentcache_sdk.testing._page_cache import PageCache
from agentcache_sdk.testing._state import HttpCall, Setup, State
from agentcache_sdk.testing.requests import Request
from agentcache_sdk.testing.script import Lines, Route, Scripts, matcher
from agentcache_sdk.testing.transport import FakeTransport

if TYPE_CHECKING:
    from agentcache_sdk.testing.replies import Script

URL = "http://agentcache.test"
"""Where clients of the engine believe that they are connected to; the name is reserved for tests and never resolves."""


class FakeEngine:
    """An engine for tests of agents: no server, no model, no sockets.

    Clients speak to it through httpx, and it answers as the server would: sessions, streams, errors, and exact figures
    of what was cached, by a tokenizer of its own.  Only what the model says is scripted.

    Args:
        script: a list of replies, each given once, in order; or a function of the ``Request`` (called one at a time), or one
            reply, for all requests.  A reply is a text, an object (sent as JSON text), ``call(...)``, a list of calls,
            ``reply(...)`` or a fault such as ``error(503)``; in a list also a function that makes one.  Without a script
            every request is answered by "Reply 1.", "Reply 2." and so on.
        model: its name.
        page_size: tokens of a page.
        pages: how many pages there are; fewer make room for each other by eviction.
        max_model_len: tokens of prompt and reply together.
        sessions: ``False`` makes it a server that holds no sessions, as other OpenAI-compatible ones do.

    >>> from agentcache_sdk.testing import FakeEngine, call
    >>> engine = FakeEngine([call("read_file", path="a.py"), "The bug is in line 3."])
    >>> with engine.client() as client, client.session(system="Fix bugs.") as session:
    ...     turn = session.send("Why does it crash?")
    ...     session.tool_result(turn.tool_calls[0].id, "1 / 0")
    ...     print(session.send().text)
    The bug is in line 3.
    >>> engine.requests[1].messages[-1]["content"]
    '1 / 0'
    >>> engine.assert_append_only()
    >>> engine.requests[1].cached_tokens > 0
    True
    """

    def __init__(
        self,
        script: list[Script] | Script | None = None,
        *,
        model: str = "fake",
        page_size: int = 16,
        pages: int = 8192,
        max_model_len: int = 131_072,
        sessions: bool = True,
    ) -> None:
        if page_size < 1 or pages < 1:
            raise ValueError(f"got page_size {page_size} and pages {pages}, expected at least 1 of each")
        lines = _replies(script) if script is not None else _numbered
        self._state = State.of(
            Setup(model, page_size, pages, max_model_len, sessions), Scripts(Lines("the script", lines))
        )

    # -- clients

    @property
    def transport(self) -> FakeTransport:
        """For other clients that are built on httpx: ``openai.OpenAI(http_client=httpx.Client(transport=...))``."""
        return FakeTransport(self._state)

    def client(self, **options: Any) -> Client:
        """A client of this engine; ``options`` are those of ``Client``: ``api_key``, ``timeout``, ``max_retries``.

        Between its retries it waits only where an ``error`` says ``retry_after``.
        """
        client = Client(options.pop("base_url", URL), transport=self.transport, **options)
        client._transport._retries = _at_once(client._transport._retries)
        return client

    def async_client(self, **options: Any) -> AsyncClient:
        """An asynchronous client of this engine."""
        client = AsyncClient(options.pop("base_url", URL), transport=self.transport, **options)
        client._transport._retries = _at_once(client._transport._retries)
        return client

    # -- the script

    def says(self, script: list[Script] | Script) -> None:
        """Replace the script: what the model says from now on, for an engine that a fixture has made.

        >>> from agentcache_sdk.testing import FakeEngine
        >>> engine = FakeEngine()
        >>> engine.says(["Hello."])
        >>> with engine.client() as client:
        ...     client.chat([{"role": "user", "content": "Hi"}]).text
        'Hello.'
        """
        with self._state.lock:
            self._state.scripts.default = Lines("the script", _replies(script))

    def when(self, match: Any, script: list[Script] | Script, *, name: str | None = None) -> None:
        """Give some requests a script of their own: forks that run at once, or agents that share the engine.

        Args:
            match: a text that the system text or the last message contains; a session; or a predicate of the ``Request``.
                Of several that match, the one that was given first has the say.
            script: as for the engine itself.
            name: what errors call it.

        >>> from agentcache_sdk.testing import FakeEngine
        >>> engine = FakeEngine("Hm.")
        >>> engine.when("security", ["No injection found."])
        >>> with engine.client() as client:
        ...     client.chat([{"role": "user", "content": "Review the security of a.py"}]).text
        'No injection found.'
        """
        shown = name or f"the script for {match!r}"
        self._state.scripts.routes.append(Route(matcher(match), Lines(shown, _replies(script))))

    # -- what happened

    @property
    def requests(self) -> list[Request]:
        """Every request for a reply, oldest first."""
        return list(self._state.requests)

    @property
    def calls(self) -> list[HttpCall]:
        """Every call of HTTP, those about sessions included."""
        return list(self._state.calls)

    @property
    def cached_share(self) -> float:
        """Which part of all prompt tokens was cached: 0 to 1."""
        replied = self._replied()
        prompt = sum(request.prompt_tokens for request in replied)
        return sum(request.cached_tokens for request in replied) / prompt if prompt else 0.0

    @property
    def computed_tokens(self) -> int:
        """Tokens that all requests together had to compute."""
        return sum(request.computed_tokens for request in self._replied())

    @property
    def sessions(self) -> list[str]:
        """Ids of the sessions that are open."""
        with self._state.lock:
            self._state.store.sweep()
            return list(self._state.store.sessions)

    # -- what must hold

    def assert_append_only(self) -> None:
        """Every conversation only grew: whoever went on from a reply sent what it had sent before, and the reply, unchanged.

        Raises:
            AssertionError: one did not; it says which request, where, and what was there before.
        """
        _fail(append_only_report(self._replied()))

    def assert_no_misses(self, *, allow: str | Iterable[str] = ()) -> None:
        """``assert_append_only``; and nothing was computed twice, and all system texts and tools begin alike.

        Args:
            allow: miss codes that are no fault: ``"evicted"``, ``"expired"``, ``"salt"``, ``"cold"`` after ``restart`` (what
                was computed before had to be computed again), ``"diverged"`` (system texts that differ, of an application
                with several agents).

        Raises:
            AssertionError: it says which request, where, and why.
        """
        allowed = {allow} if isinstance(allow, str) else set(allow)
        replied = self._replied()
        _fail(append_only_report(replied) + misses_report(replied, allowed))

    def assert_script_done(self) -> None:
        """Every reply of every list was given, and none was missing.

        Raises:
            AssertionError: it says which are left.
        """
        state = self._state
        _fail(
            [str(error) for error in state.exhausted] + [f"never asked for: {left}" for left in state.scripts.unsaid()]
        )

    # -- what happens to servers

    def restart(self) -> None:
        """As if the server were restarted: sessions, leases and pages are gone, snapshots are not."""
        state = self._state
        with state.lock:
            for session in list(state.store.sessions.values()):
                state.store.end(session)
            state.cache = PageCache(state.setup.page_size, state.setup.pages)

    def evict(self) -> int:
        """As if other work needed the room: every page without a lease is gone; how many."""
        with self._state.lock:
            return self._state.cache.evict_all()

    def advance(self, seconds: float) -> None:
        """Move the engine's clock, which nothing else moves but ``delay``: leases and idle sessions end."""
        with self._state.lock:
            self._state.advance(seconds)

    def _replied(self) -> list[Request]:
        return [request for request in self._state.requests if request.outcome == "replied"]

    def __repr__(self) -> str:
        return f"<FakeEngine: {len(self._state.requests)} requests, {self.cached_share:.0%} of prompt tokens cached>"


def _replies(script: Any) -> Any:
    """Lists are copied: who changes theirs later does not change the script."""
    return list(script) if isinstance(script, (list, tuple)) else script


def _at_once(retries: RetryPolicy) -> RetryPolicy:
    return replace(retries, first_wait_s=0.0)


def _numbered(request: Request) -> str:
    return f"Reply {request.number + 1}."


def _fail(problems: list[str]) -> None:
    if problems:
        raise AssertionError("\n".join(problems))
