"""The asynchronous client."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from agentcache_sdk import _calls
from agentcache_sdk._core import ChatFlight, SessionCore, session_options
from agentcache_sdk._retry import RetryPolicy
from agentcache_sdk._transport import AsyncTransport
from agentcache_sdk.async_session import AsyncSession
from agentcache_sdk.cache_warnings import CallSite, WarningSink, warning_mode
from agentcache_sdk.client import NO_OPENAI
from agentcache_sdk.errors import AgentCacheError
from agentcache_sdk.streams import AsyncChatStream
from agentcache_sdk.tools import Tool
from agentcache_sdk.types import CacheState, Health, Model, Tokens, Turn, Version

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
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        warning_mode()  # a wrong value is the user's mistake at the start, not in the middle of a turn
        self._settings = (api_key, timeout, max_retries)
        self._transport = AsyncTransport(base_url, api_key, timeout, RetryPolicy(max_retries), transport)
        self._warnings = WarningSink()

    @property
    def base_url(self) -> str:
        """Root of the server's routes, without ``/v1``."""
        return self._transport.base_url

    # A plain function that returns a coroutine, so that the user's line is known even when a task runs it.
    def chat(self, messages: Sequence[Mapping[str, Any]], **params: Any) -> Coroutine[Any, Any, Turn]:
        """See ``Client.chat``."""
        return self._run(ChatFlight(_calls.chat(messages, params), self._warnings, CallSite.here()))

    async def _run(self, flight: ChatFlight) -> Turn:
        with flight as call:
            return flight.finish(await self._transport.run(call))

    def stream_chat(self, messages: Sequence[Mapping[str, Any]], **params: Any) -> AsyncChatStream:
        """See ``Client.stream_chat``."""
        flight = ChatFlight(_calls.chat(messages, params), self._warnings, CallSite.here())
        return AsyncChatStream(self._transport, flight)

    async def complete(self, prompt: str | Sequence[Any], **params: Any) -> Turn:
        """See ``Client.complete``."""
        return await self._transport.run(_calls.complete(prompt, params))

    def session(
        self,
        system: str | None = None,
        tools: Sequence[Tool] | None = None,
        ttl: str | float | None = None,
        model: str | None = None,
        ignore: str | Iterable[str] = (),
    ) -> AsyncSession:
        """See ``Client.session``."""
        options = session_options(system, tools, ttl, model, ignore)
        return AsyncSession(self._transport, SessionCore.create(options, CallSite.here()))

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
            base_url=f"{self.base_url}/v1", api_key=key or "none", timeout=timeout, max_retries=retries
        )

    async def close(self) -> None:
        """Close the connections.  Idempotent."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
