"""The synchronous client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from agentcache_sdk import _calls
from agentcache_sdk._core import ChatFlight, SessionCore, session_options
from agentcache_sdk._retry import RetryPolicy
from agentcache_sdk._transport import Transport
from agentcache_sdk.cache_warnings import CallSite, WarningSink, warning_mode
from agentcache_sdk.errors import AgentCacheError
from agentcache_sdk.session import Session
from agentcache_sdk.streams import ChatStream
from agentcache_sdk.tools import Tool
from agentcache_sdk.types import CacheState, Health, Model, Tokens, Turn, Version

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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        warning_mode()  # a wrong value is the user's mistake at the start, not in the middle of a turn
        self._settings = (api_key, timeout, max_retries)
        self._transport = Transport(base_url, api_key, timeout, RetryPolicy(max_retries), transport)
        self._warnings = WarningSink()

    @property
    def base_url(self) -> str:
        """Root of the server's routes, without ``/v1``."""
        return self._transport.base_url

    def chat(self, messages: Sequence[Mapping[str, Any]], **params: Any) -> Turn:
        """One chat completion.  ``params`` are fields of the request; ``tools`` may hold plain functions.

        Raises:
            AgentCacheError: see ``agentcache_sdk.errors``.
        """
        flight = ChatFlight(_calls.chat(messages, params), self._warnings, CallSite.here())
        with flight as call:
            return flight.finish(self._transport.run(call))

    def stream_chat(self, messages: Sequence[Mapping[str, Any]], **params: Any) -> ChatStream:
        """``chat`` as a stream: a context manager to iterate for text, whose ``result()`` is the turn."""
        flight = ChatFlight(_calls.chat(messages, params), self._warnings, CallSite.here())
        return ChatStream(self._transport, flight)

    def complete(self, prompt: str | Sequence[Any], **params: Any) -> Turn:
        """A completion of a text, of token ids, or of a list of either (then see ``turn.choices``)."""
        return self._transport.run(_calls.complete(prompt, params))

    def session(
        self,
        system: str | None = None,
        tools: Sequence[Tool] | None = None,
        ttl: str | float | None = None,
        model: str | None = None,
        ignore: str | Iterable[str] = (),
    ) -> Session:
        """A conversation that keeps its own messages.

        Args:
            system: text that every turn begins with.  What changes from call to call belongs into ``volatile``.
            tools: functions or OpenAI schemas, in the order in which they are sent.
            ttl: how long the server should keep the session between turns, such as ``"30m"``.  Checked and kept; it
                takes effect with servers that hold sessions.
            model: which model; default: the one that the server serves.
            ignore: warning codes, or beginnings of codes, to be silent about: ``"AC101"``, ``("AC1", "AC801")``.
        """
        options = session_options(system, tools, ttl, model, ignore)
        return Session(self._transport, SessionCore.create(options, CallSite.here()))

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
            base_url=f"{self.base_url}/v1", api_key=key or "none", timeout=timeout, max_retries=retries
        )

    def close(self) -> None:
        """Close the connections.  Idempotent."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
