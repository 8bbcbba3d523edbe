"""The asynchronous client."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
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
from agentcache_sdk._transport import AsyncTransport
from agentcache_sdk.alignment import LintResult, Prewarmed
from agentcache_sdk.async_session import AsyncSession
from agentcache_sdk.cache_warnings import MIN_TOKENS_LOST, CallSite, WarningSink, warning_mode
from agentcache_sdk.client import NO_OPENAI
from agentcache_sdk.errors import AgentCacheError
from agentcache_sdk.streams import AsyncChatStream
from agentcache_sdk.tools import Tool
from agentcache_sdk.types import CacheState, Health, Model, SessionInfo, Tokens, Turn, Version

if TYPE_CHECKING:
    import openai


class AsyncClient:
    """``Client`` with ``await``; same arguments, results and errors.

    >>> import asyncio
    >>> from agentcache_sdk import AsyncClient
    >>> async def main() -> str:
    ...     async with AsyncClient("http://127.0.0.1:8100") as client:
    ...         async with client.stream_chat([{"role": "user", "content": "Hello"}], max_tokens=8) as stream:
    ...             text = "".join([delta async for delta in stream])
    ...         return text if text == (await stream.result()).text else "different"
    >>> asyncio.run(main()) != "different"
    True
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: float | None = 120,
        max_retries: int = 2,
        *,
        min_tokens_lost: int = MIN_TOKENS_LOST,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        warning_mode()  # a wrong value is the user's mistake at the start, not in the middle of a turn
        self._settings = (api_key, timeout, max_retries)
        self._transport = AsyncTransport(base_url, api_key, timeout, RetryPolicy(max_retries), transport)
        self._watch = Watch(WarningSink(min_tokens_lost=min_tokens_lost, by_site=True), ClientLook())
        self._server = ServerAbility()

    @property
    def base_url(self) -> str:
        """Root of the server's routes, without ``/v1``."""
        return self._transport.base_url

    # A plain function that returns a coroutine, so that the user's line is known even when a task runs it.
    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **params: Any,
    ) -> Coroutine[Any, Any, Turn]:
        """See ``Client.chat``."""
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
    ) -> AsyncChatStream:
        """See ``Client.stream_chat``."""
        flight = ChatFlight(
            _calls.chat(_calls.with_volatile(messages, volatile), params, timeout), self._watch, CallSite.here()
        )
        return AsyncChatStream(self._transport, flight)

    async def complete(self, prompt: str | Sequence[Any], *, timeout: float | None = None, **params: Any) -> Turn:
        """See ``Client.complete``."""
        return await self._transport.run(_calls.complete(prompt, params, timeout))

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
    ) -> AsyncSession:
        """See ``Client.session``."""
        given = SessionArguments(
            system, tools, ttl, model, ignore, messages, prompt, metadata, from_snapshot, pad=pad,
            min_tokens_lost=min_tokens_lost,
        )  # fmt: skip
        return self._session(given, CallSite.here())

    def resume(
        self, session_id: str, *, tools: Sequence[Tool] | None = None, ignore: str | Iterable[str] = ()
    ) -> AsyncSession:
        """See ``Client.resume``."""
        return self._session(SessionArguments(tools=tools, session_id=session_id, ignore=ignore), CallSite.here())

    def restore(
        self,
        name: str,
        *,
        tools: Sequence[Tool] | None = None,
        ttl: str | float | None = None,
        metadata: Mapping[str, Any] | None = None,
        ignore: str | Iterable[str] = (),
    ) -> AsyncSession:
        """See ``Client.restore``."""
        given = SessionArguments(tools=tools, ttl=ttl, ignore=ignore, metadata=metadata, from_snapshot=name)
        return self._session(given, CallSite.here())

    def _session(self, given: SessionArguments, site: CallSite) -> AsyncSession:
        return AsyncSession(
            self._transport,
            SessionCore.create(given.checked(self._watch.sink.min_tokens_lost), self._server, self._watch.look, site),
        )

    async def prewarm(
        self,
        system: str | None = None,
        tools: Sequence[Tool] | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] = (),
        model: str | None = None,
        pad: Pad = "off",
    ) -> Prewarmed:
        """See ``Client.prewarm``."""
        beginning = Beginning(system, tools, messages, model, pad)
        return await self._transport.drive(prewarmed(beginning, self._server.paddings))

    async def lint(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool] | None = None,
        *,
        ignore: str | Iterable[str] = (),
        **options: Any,
    ) -> LintResult:
        """See ``Client.lint``."""
        return await self._transport.drive(linted(LintInput(messages, tools, options, ignore), self._watch.look))

    async def sessions(self) -> list[SessionInfo]:
        """See ``Client.sessions``."""
        return await self._transport.run(_session_calls.sessions())

    async def models(self) -> list[Model]:
        """See ``Client.models``."""
        return await self._transport.run(_calls.models())

    async def health(self) -> Health:
        """See ``Client.health``."""
        return await self._transport.run(_calls.health())

    async def version(self) -> Version:
        """See ``Client.version``."""
        return await self._transport.run(_calls.version())

    async def tokenize(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Tool] | None = None,
    ) -> Tokens:
        """See ``Client.tokenize``."""
        return await self._transport.run(_calls.tokenize(prompt, messages, tools))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """See ``Client.detokenize``."""
        return await self._transport.run(_calls.detokenize(tokens))

    async def cache(self) -> CacheState:
        """See ``Client.cache``."""
        return await self._transport.run(_calls.cache())

    async def flush_cache(self) -> int:
        """See ``Client.flush_cache``."""
        return await self._transport.run(_calls.flush_cache())

    def openai(self) -> openai.AsyncOpenAI:
        """The official asynchronous client, configured for this server.

        Raises:
            AgentCacheError: the ``openai`` package is not installed.
        """
        try:
            import openai
        except ImportError as error:
            raise AgentCacheError(NO_OPENAI) from error
        key, timeout, retries = self._settings
        return openai.AsyncOpenAI(
            base_url=f"{self.base_url}/v1",
            api_key=key or "none",
            timeout=timeout,
            max_retries=retries,
            http_client=self._official_http(timeout),
        )

    def _official_http(self, timeout: float | None) -> Any:
        """What the official client sends with; ``None``: connections of its own."""
        return None

    async def close(self) -> None:
        """Close the connections.  Idempotent."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
