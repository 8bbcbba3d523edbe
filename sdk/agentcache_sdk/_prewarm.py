"""``client.prewarm``: the static part's pages, before anybody asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentcache_sdk import _calls
from agentcache_sdk._calls import Steps
from agentcache_sdk._padding import PaddingMemory, padded
from agentcache_sdk._session_calls import is_missing_route
from agentcache_sdk._static import Prompt, beside, static_part
from agentcache_sdk.alignment import Padding, Prewarmed
from agentcache_sdk.errors import AgentCacheError, APIError
from agentcache_sdk.tools import Tool, tool_schemas
from agentcache_sdk.types import Turn

Pad = Literal["off", "system"]


@dataclass(frozen=True)
class Beginning:
    """What conversations begin with, as the user gave it."""

    system: str | None = None
    tools: Sequence[Tool] | None = None
    messages: Sequence[Mapping[str, Any]] = ()
    model: str | None = None
    pad: Pad = "off"

    def head(self) -> tuple[dict[str, Any], ...]:
        """
        Raises:
            TypeError: ``messages`` are none.
            ValueError: ``pad`` is neither of the two words.
        """
        if self.pad not in ("off", "system"):
            raise ValueError(f'pad: got {self.pad!r}, expected "off" or "system"')
        system = ({"role": "system", "content": self.system},) if self.system else ()
        return (*system, *_calls.message_list(self.messages))


def prewarmed(beginning: Beginning, memory: PaddingMemory) -> Steps[Prewarmed]:
    """Have the server compute what every conversation of ``beginning`` starts with.

    The prompt that is sent is the static part's ids and nothing else, and the one token that has to be drawn is never
    computed, so what is cached afterwards ends exactly where the first user text begins.

    Raises:
        AgentCacheError: the server cannot tokenise, cannot be reached, or refuses the beginning.
    """
    head, tools = beginning.head(), tool_schemas(beginning.tools or ())
    padding: Padding | None = None
    if beginning.pad == "system":
        padding = yield from padded(head, tools, beginning.model, memory)
        head = padding.head
    try:
        ids = yield from _beginning_ids(Prompt(head, beside(tools, beginning.model)))
    except APIError as error:
        if not is_missing_route(error):
            raise
        raise AgentCacheError("prewarm: this server does not tokenise (it has no /tokenize)") from error
    if not ids:
        return Prewarmed(0, 0, 0, 0, 0, None, padding)
    turn: Turn = yield _calls.complete(ids, {"model": beginning.model, "max_tokens": 1, "temperature": 0})
    return _result(turn, len(ids), padding)


def _beginning_ids(head: Prompt) -> Steps[list[int]]:
    """Up to where the next user text begins, or the whole prompt where the model is to answer next."""
    if head.messages and head.messages[-1].get("role") in ("user", "tool", "function"):
        return (yield from head.rendered())
    part = yield from static_part(head, replies=any(m.get("role") == "assistant" for m in head.messages))
    return list(part.ids)


def _result(turn: Turn, tokens: int, padding: Padding | None) -> Prewarmed:
    cached, page_size = turn.usage.cached_tokens, turn.cache.page_size
    computed = tokens - cached if turn.cache.computed_tokens is None else turn.cache.computed_tokens
    pages, tail = divmod(tokens, page_size) if page_size else (0, 0)
    return Prewarmed(tokens, cached, computed, pages, tail, page_size, padding)
