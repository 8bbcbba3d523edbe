"""The synchronous client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from agentcache_sdk import _calls, _session_calls
from agentcache_sdk._core import ServerAbility, SessionCore
from agentcache_sdk._flights import ChatFlight, whole
from agentcache_sdk._lint import LintInput, linted
from agentcache_sdk._look import ClientLook, Watch
from agentcache_sdk._options import SessionArguments
from agentcache_sdk._prewarm import Beginning, Pad, prewarmed
from agentcache_sdk._retry import RetryPolicy
from agentcache_sdk._transport import Transport
from agentcache_sdk.alignment import LintResult, Prewarmed
from agentcache_sdk.cache_warnings import MIN_TOKENS_LOST, CallSite, WarningSink, warning_mode
from agentcache_sdk.errors import AgentCacheError
from agentcache_sdk.session import Session
from agentcache_sdk.streams import ChatStream
from agentcache_sdk.tools import Tool
from agentcache_sdk.types import CacheState, Health, Model, SessionInfo, Tokens, Turn, Version

if TYPE_CHECKING:
    import openai

NO_OPENAI = "client.openai() needs the openai package: pip install openai"


class Client:
    """A connection to one server.  Safe to share between threads; use it in a ``with`` statement, or ``close()`` it.

    Args:
        base_url: address of the server; a trailing ``/v1`` is taken off.
        api_key: sent as a bearer token.
        timeout: seconds of silence after which a request fails; ``None`` waits for ever.
        max_retries: further attempts after a refused connection, 502, 503, or 429 with ``Retry-After``.
        min_tokens_lost: findings that cost fewer tokens are not warned about; sessions may have their own threshold.
        transport: a transport of httpx's in place of the network, for tests.

    >>> from agentcache_sdk import Client
    >>> with Client("http://127.0.0.1:8100") as client:
    ...     turn = client.chat([{"role": "user", "content": "Say hello."}], max_tokens=8)
    ...     print(turn.finish_reason in ("stop", "length"), turn.usage.completion_tokens > 0)
    True True
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: float | None = 120,
        max_retries: int = 2,
        *,
        min_tokens_lost: int = MIN_TOKENS_LOST,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        warning_mode()  # a wrong value is the user's mistake at the start, not in the middle of a turn
        self._settings = (api_key, timeout, max_retries)
        self._transport = Transport(base_url, api_key, timeout, RetryPolicy(max_retries), transport)
        self._watch = Watch(WarningSink(min_tokens_lost=min_tokens_lost, by_site=True), ClientLook())
        self._server = ServerAbility()

    @property
    def base_url(self) -> str:
        """Root of the server's routes, without ``/v1``."""
        return self._transport.base_url

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **params: Any,
    ) -> Turn:
        """One chat completion.  ``params`` are fields of the request; ``tools`` may hold plain functions.

        Args:
            volatile: what changes from call to call, written behind everything else; see ``Session.send``.
            timeout: seconds of silence for this call; default: the client's; ``math.inf`` waits for ever.

        Raises:
            AgentCacheError: see ``agentcache_sdk.errors``.
        """
        flight = ChatFlight(
            _calls.chat(_calls.with_volatile(messages, volatile), params, timeout), self._watch, CallSite.here()
        )
        return self._transport.drive(whole(flight))

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **params: Any,
    ) -> ChatStream:
        """``chat`` as a stream: a context manager to iterate for text, whose ``result()`` is the turn."""
        flight = ChatFlight(
            _calls.chat(_calls.with_volatile(messages, volatile), params, timeout), self._watch, CallSite.here()
        )
        return ChatStream(self._transport, flight)

    def complete(self, prompt: str | Sequence[Any], *, timeout: float | None = None, **params: Any) -> Turn:
        """A completion of a text, of token ids, or of a list of either (then see ``turn.choices``)."""
        return self._transport.run(_calls.complete(prompt, params, timeout))

    def session(
        self,
        system: str | None = None,
        tools: Sequence[Tool] | None = None,
        ttl: str | float | None = None,
        model: str | None = None,
        ignore: str | Iterable[str] = (),
        *,
        messages: Sequence[Mapping[str, Any]] = (),
        prompt: str | Sequence[int] | None = None,
        metadata: Mapping[str, Any] | None = None,
        from_snapshot: str | None = None,
        pad: Pad = "off",
        min_tokens_lost: int | None = None,
    ) -> Session:
        """A conversation, held by the server where it can; opened by ``with``, by ``open()`` or by its first use.

        Args:
            system: text that every turn begins with.  What changes from call to call belongs into ``volatile``.
            tools: functions or OpenAI schemas, in the order in which they are sent.
            ttl: how long the server keeps the session between turns, such as ``"30m"``.
            model: which model; default: the one that the server serves.
            ignore: warning codes, or beginnings of codes, to be silent about: ``"AC101"``, ``("AC1", "AC801")``.
            messages: a conversation to begin with, after ``system``.
            prompt: text or token ids: a raw session without messages, continued as it stands by ``send``.
            metadata: notes of your own, which the server keeps with the session.
            from_snapshot: name of a snapshot to begin with; see ``restore``.
            pad: ``"system"`` fills the system text up, so that what all such sessions share ends with a page; see
                ``Session.padding``.
            min_tokens_lost: findings that cost fewer tokens are not warned about; default: the client's.

        Raises:
            TypeError, ValueError: an argument is wrong, or excludes another.
        """
        given = SessionArguments(
            system, tools, ttl, model, ignore, messages, prompt, metadata, from_snapshot, pad=pad,
            min_tokens_lost=min_tokens_lost,
        )  # fmt: skip
        return self._session(given, CallSite.here())

    def resume(
        self, session_id: str, *, tools: Sequence[Tool] | None = None, ignore: str | Iterable[str] = ()
    ) -> Session:
        """A session that the server holds, by its ``id``: in another process, or after this one was restarted.

        ``tools``: the functions behind the session's tools, for ``run``; those that it does not have are added to it.

        Opened by ``with``, by ``open()`` or by its first use; that raises ``NotFound`` when there is no such session.
        """
        return self._session(SessionArguments(tools=tools, session_id=session_id, ignore=ignore), CallSite.here())

    def restore(
        self,
        name: str,
        *,
        tools: Sequence[Tool] | None = None,
        ttl: str | float | None = None,
        metadata: Mapping[str, Any] | None = None,
        ignore: str | Iterable[str] = (),
    ) -> Session:
        """A new session that begins as the snapshot ``name`` was taken.  ``tools``: see ``resume``.

        Opened by ``with``, by ``open()`` or by its first use; that raises ``NotFound`` when there is no such snapshot.
        """
        given = SessionArguments(tools=tools, ttl=ttl, ignore=ignore, metadata=metadata, from_snapshot=name)
        return self._session(given, CallSite.here())

    def _session(self, given: SessionArguments, site: CallSite) -> Session:
        return Session(
            self._transport,
            SessionCore.create(given.checked(self._watch.sink.min_tokens_lost), self._server, self._watch.look, site),
        )

    def prewarm(
        self,
        system: str | None = None,
        tools: Sequence[Tool] | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] = (),
        model: str | None = None,
        pad: Pad = "off",
    ) -> Prewarmed:
        """Have the server compute what conversations begin with, up to the first user text, before the first one comes.

        Does nothing twice: what is there already is found, not computed.  Sessions that are opened with the same
        arguments find all of it cached.

        Args:
            system, tools, messages, model: as for ``session``.
            pad: the same as the sessions that are to find it.

        Raises:
            AgentCacheError: the server cannot tokenise, or refuses the beginning.

        >>> from agentcache_sdk import Client
        >>> with Client("http://127.0.0.1:8100") as client:
        ...     first = client.prewarm("Answer in one word.")
        ...     again = client.prewarm("Answer in one word.")
        >>> again.tokens == first.tokens == first.cached_tokens + first.computed_tokens, again.computed_tokens
        (True, 1)
        """
        beginning = Beginning(system, tools, messages, model, pad)
        return self._transport.drive(prewarmed(beginning, self._server.paddings))

    def lint(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool] | None = None,
        *,
        ignore: str | Iterable[str] = (),
        **options: Any,
    ) -> LintResult:
        """What this chat request would lose, in the server's own tokens.  Nothing is generated or remembered.

        Args:
            messages, tools, options: as for ``chat``.
            ignore: warning codes, or beginnings of codes, to leave out: ``"AC501"``, ``("AC1", "AC5")``.

        Raises:
            AgentCacheError: the server cannot tokenise, or refuses the request.

        >>> from agentcache_sdk import Client
        >>> with Client("http://127.0.0.1:8100") as client:
        ...     system = {"role": "system", "content": "It is 12:30:00. Answer in one word."}
        ...     result = client.lint([system, {"role": "user", "content": "Who are you?"}])
        >>> result.clean, result.findings[0].code, result.findings[0].tokens_lost_kind
        (False, 'AC101', 'exact')
        """
        return self._transport.drive(linted(LintInput(messages, tools, options, ignore), self._watch.look))

    def sessions(self) -> list[SessionInfo]:
        """The sessions that the server holds for this API key, oldest first."""
        return self._transport.run(_session_calls.sessions())

    def models(self) -> list[Model]:
        """What the server serves."""
        return self._transport.run(_calls.models())

    def health(self) -> Health:
        """Ask once, without retries.

        Raises:
            ServerError: the server says that it is not well.
        """
        return self._transport.run(_calls.health())

    def version(self) -> Version:
        """The server's version."""
        return self._transport.run(_calls.version())

    def tokenize(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Tool] | None = None,
    ) -> Tokens:
        """Token ids of a text, or of messages as the server's chat template renders them."""
        return self._transport.run(_calls.tokenize(prompt, messages, tools))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        return self._transport.run(_calls.detokenize(tokens))

    def cache(self) -> CacheState:
        """The server's pages by state."""
        return self._transport.run(_calls.cache())

    def flush_cache(self) -> int:
        """Drop all cached pages that nobody uses or pins; returns how many."""
        return self._transport.run(_calls.flush_cache())

    def openai(self) -> openai.OpenAI:
        """The official client, configured for this server.

        Raises:
            AgentCacheError: the ``openai`` package is not installed.
        """
        try:
            import openai
        except ImportError as error:
            raise AgentCacheError(NO_OPENAI) from error
        key, timeout, retries = self._settings
        return openai.OpenAI(
            base_url=f"{self.base_url}/v1",
            api_key=key or "none",
            timeout=timeout,
            max_retries=retries,
            http_client=self._official_http(timeout),
        )

    def _official_http(self, timeout: float | None) -> Any:
        """What the official client sends with; ``None``: connections of its own."""
        return None

    def close(self) -> None:
        """Close the connections.  Idempotent."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
