"""openai-agents' own models, which listen to what the server says about the cache."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import openai
from agents import ModelResponse, OpenAIChatCompletionsModel, OpenAIResponsesModel
from agents.items import TResponseStreamEvent

from agentcache_sdk.cache_warnings import CacheWarning, CallSite, WarningSink
from agentcache_sdk.errors import AgentCacheError
from agentcache_sdk.openai_agents._bond import bond_of
from agentcache_sdk.openai_agents._hearing import Exchange, HearingClient, heard
from agentcache_sdk.openai_agents._ledger import Heard
from agentcache_sdk.openai_agents._sites import user_site
from agentcache_sdk.openai_agents.heads import Item
from agentcache_sdk.types import CacheReport


@dataclass
class _Call:
    """One call of a model, from its arguments to the warnings about it."""

    items: list[Item]
    site: CallSite
    sink: WarningSink
    exchange: Exchange = field(default_factory=Exchange)
    settled: bool = False

    @classmethod
    async def begun(
        cls, model: CachedChatModel | CachedResponsesModel, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Call:
        """The next call of ``model``, which has the name of what the server serves from then on.

        Args:
            args, kwargs: those of ``get_response``: instructions, input, ...
        """
        given = kwargs["input"] if "input" in kwargs else args[1]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        call = cls(items, user_site(), model._sink)
        model.model = await _named(model._client, str(model.model))
        return call

    async def whole(self, response: Awaitable[ModelResponse]) -> ModelResponse:
        """``response``, heard."""
        with self.answered():
            answer = await response
        self.settle()
        return answer

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Requests in here are the call's.  One whose answer the framework refuses, being cut, has cost what it cost."""
        try:
            with heard(self.exchange):
                yield
        except Exception:
            with suppress(CacheWarning):
                self.settle()
            raise

    def settle(self) -> None:
        """Hand over what was heard, once.

        Raises:
            CacheWarning: the call lost cache, and warnings are errors.
        """
        if self.settled or self.exchange.cache is None:
            return
        self.settled = True
        cache = CacheReport.model_validate(self.exchange.cache)
        bond = bond_of(self.items, self.exchange.body.get("prompt_cache_key"))
        if bond is None:
            self.sink.emit_all(cache.findings, self.site)
            return
        items = len(self.items) - bond.woven + bond.cut
        bond.conversation.hear(Heard(self.exchange.body, cache, items, bond.cut), bond.site)


async def _events(
    call: _Call, stream: AsyncIterator[TResponseStreamEvent]
) -> AsyncGenerator[TResponseStreamEvent, None]:
    """``stream``, heard.  Warnings come before its last event: nobody need ask for more after that."""
    events = cast("AsyncGenerator[TResponseStreamEvent, None]", stream)
    async with aclosing(events):
        while True:
            with call.answered():  # in the context of whoever asks for the event; the first one sends the request
                event = await anext(events, None)
            call.settle()
            if event is None:
                return
            yield event


async def _named(client: openai.AsyncOpenAI, name: str) -> str:
    """``name``, or that of the model that the server serves."""
    if name:
        return name
    models = await client.models.list()
    if not models.data:
        raise AgentCacheError("the server serves no model; give the model's name")
    return models.data[0].id


class CachedChatModel(OpenAIChatCompletionsModel):
    """Over ``/v1/chat/completions``.

    Args:
        model: name of the model; ``""``: the one that the server serves.
        server: whose connections the model uses.
    """

    def __init__(self, model: str, server: HearingClient) -> None:
        super().__init__(model, server.official)
        self._server = server
        self._sink = WarningSink(by_site=True)

    async def close(self) -> None:
        """Close the connections that were made in the running event loop; more are made when they are needed."""
        await self._server.disconnect()

    def _supports_default_prompt_cache_key(self) -> bool:
        return True  # the server takes it; newer runners ask

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """See ``agents.Model``."""
        call = await _Call.begun(self, args, kwargs)
        return await call.whole(super().get_response(*args, **kwargs))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncGenerator[TResponseStreamEvent, None]:
        """See ``agents.Model``."""
        call = await _Call.begun(self, args, kwargs)
        async with aclosing(_events(call, super().stream_response(*args, **kwargs))) as events:
            async for event in events:
                yield event


class CachedResponsesModel(OpenAIResponsesModel):
    """Over ``/v1/responses``.  Arguments as ``CachedChatModel``'s."""

    def __init__(self, model: str, server: HearingClient) -> None:
        super().__init__(model, server.official)
        self._server = server
        self._sink = WarningSink(by_site=True)

    async def close(self) -> None:
        """Close the connections that were made in the running event loop; more are made when they are needed."""
        await self._server.disconnect()

    def _supports_default_prompt_cache_key(self) -> bool:
        return True

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """See ``agents.Model``."""
        call = await _Call.begun(self, args, kwargs)
        return await call.whole(super().get_response(*args, **kwargs))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncGenerator[TResponseStreamEvent, None]:
        """See ``agents.Model``."""
        call = await _Call.begun(self, args, kwargs)
        async with aclosing(_events(call, super().stream_response(*args, **kwargs))) as events:
            async for event in events:
                yield event
