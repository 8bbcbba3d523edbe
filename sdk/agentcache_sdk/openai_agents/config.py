"""Runs on an agentcache server, without a word to anybody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agents import Model, ModelProvider, ModelSettings, RunConfig
from agents.run import CallModelData, ModelInputData

from agentcache_sdk.async_client import AsyncClient
from agentcache_sdk.client import Client
from agentcache_sdk.openai_agents._bond import bond_of
from agentcache_sdk.openai_agents._hearing import Api, hearing_client
from agentcache_sdk.openai_agents.models import CachedChatModel, CachedResponsesModel

_MODELS: dict[Api, type[CachedChatModel | CachedResponsesModel]] = {
    "chat": CachedChatModel,
    "responses": CachedResponsesModel,
}


def model(
    client: Client | AsyncClient, name: str | None = None, api: Api = "chat"
) -> CachedChatModel | CachedResponsesModel:
    """A model on ``client``'s server, with its key, timeout and retries, for ``Agent(model=...)``.

    Tracing belongs to the run: give ``Runner.run`` a ``RunConfig(tracing_disabled=True)`` or ``run_config(client)``, or
    openai-agents sends traces to OpenAI whenever it finds a key of theirs.

    Args:
        name: default: the model that the server serves.

    Raises:
        TypeError, ValueError: ``client`` is not one of the SDK's, or there is no such API.
    """
    return _made(api)(name or "", hearing_client(client))


def _made(api: Api) -> type[CachedChatModel | CachedResponsesModel]:
    if api not in _MODELS:
        raise ValueError(f'api: got {api!r}, expected "chat" or "responses"')
    return _MODELS[api]


@dataclass
class CachedProvider(ModelProvider):
    """Models by name, for ``RunConfig(model_provider=...)``; all of them share one connection pool."""

    client: Client | AsyncClient
    api: Api = "chat"
    models: dict[str, Model] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._make = _made(self.api)
        self._hearing = hearing_client(self.client)

    def get_model(self, model_name: str | None) -> Model:
        """The model of that name; ``None``: the one that the server serves."""
        name = model_name or ""
        if name not in self.models:
            self.models[name] = self._make(name, self._hearing)
        return self.models[name]

    async def aclose(self) -> None:
        """Close the connections that were made in the running event loop; more are made when they are needed."""
        await self._hearing.disconnect()


def run_config(
    client: Client | AsyncClient | None = None,
    *,
    api: Api = "chat",
    provider: CachedProvider | None = None,
    preamble: str | None = None,
    **fields: Any,
) -> RunConfig:
    """A ``RunConfig`` for ``Runner.run(..., run_config=...)`` that sends everything to ``client``'s server, and no traces.

    Make it once and use it again: it holds the connections.

    Args:
        api: ``"chat"`` or ``"responses"``.
        provider: in place of ``client`` and ``api``, to share connections.
        preamble: what every agent's prompt begins with.  The agents' own instructions follow as items of the session, each
            where its agent takes over; see ``heads``.
        fields: any others of ``RunConfig``.

    Raises:
        TypeError: neither ``client`` nor ``provider``, or both.
        ValueError: there is no such API.
    """
    if (client is None) == (provider is None):
        raise TypeError("run_config: give a client or a provider")
    if client is not None:
        provider = CachedProvider(client, api)
    fields.setdefault("model_provider", provider)
    fields.setdefault("tracing_disabled", True)
    # Streams of chat completions have usage figures only when they are asked for.
    fields["model_settings"] = ModelSettings(include_usage=True).resolve(fields.get("model_settings"))
    if preamble is not None:
        fields["call_model_input_filter"] = _shared_beginning(preamble, fields.get("call_model_input_filter"))
    return RunConfig(**fields)


_Filter = Callable[[CallModelData[Any]], ModelInputData | Awaitable[ModelInputData]]


def _shared_beginning(preamble: str, users_own: _Filter | None) -> _Filter:
    async def filtered(data: CallModelData[Any]) -> ModelInputData:
        made = data.model_data
        if users_own is not None:
            outcome = users_own(data)
            made = outcome if isinstance(outcome, ModelInputData) else await outcome
        bond = bond_of(made.input)
        text = made.instructions or f"You are {data.agent.name}."
        if bond is None:  # nothing would remember where an agent took over
            return ModelInputData(input=made.input, instructions=f"{preamble}\n\n{text}")
        items = bond.conversation.announced(data.agent.name, text, made.input, bond.cut)
        bond.woven = len(items) - len(made.input)
        return ModelInputData(input=items, instructions=preamble)

    return filtered
