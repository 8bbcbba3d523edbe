"""Where a prompt parts from an earlier response, and why: ``prompt_cache_options.comparison_response_id``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.cache.explain import Miss
from agentcache.server.bodies import ChatBody
from agentcache.server.context import Context
from agentcache.server.conversations import converse
from agentcache.server.misses import Asked, Places, describe
from agentcache.server.responses.fields import Fields
from agentcache.server.responses.store import KeptResponse, chained

_SHOWN = 16
"""Tokens of either side that a comparison quotes."""


@dataclass(frozen=True)
class Comparison:
    """What a response says of it.

    Attributes:
        diagnostics: ``prompt_cache_diagnostics``, in OpenAI's words.
        detail: ``agentcache.comparison``: the same as a ``miss`` says it, or nothing where all can be reused.
    """

    diagnostics: Mapping[str, Any]
    detail: Mapping[str, Any] | None = None


def compare(context: Context, root: bytes, chat: ChatBody, earlier: KeptResponse | None, fields: Fields) -> Comparison:
    """
    Args:
        root: the namespace of ``chat``.
        earlier: what to compare with, of the same key; ``None`` if it is not kept.
    """
    if earlier is None:
        return Comparison({"type": "comparison_response_not_found"})
    if earlier.turn is None:
        return Comparison({"type": "unavailable"})
    if earlier.basis.salt != chat.cache_salt:
        return _another_salt(context, root, chat, earlier)
    prompt = converse(context, chat, root)
    new, old = prompt.ids, _earlier_ids(context, root, earlier)
    common = common_tokens(old, new)
    if common == len(new) or common >= earlier.basis.prompt_tokens:
        return Comparison({"type": "cache_hit"})
    detail = f"{earlier.id} goes on differently after its first {common} tokens"
    miss = Miss("diverged", common, detail, was_tokens=tuple(old[common : common + _SHOWN]))
    asked = Asked(prompt, chat.messages, chat.tools, chat.chat_template_kwargs)
    told = fields.miss(describe(miss, Places(asked, context.engine.renderer)))
    return Comparison(_parted(earlier, chat, common, len(new)), {"response_id": earlier.id, **(told or {})})


def common_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two sequences begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))


def _earlier_ids(context: Context, root: bytes, earlier: KeptResponse) -> list[int]:
    """Of the earlier prompt and its reply, as it was read and drawn."""
    turns = [message for turn in chained(earlier.turn) for message in turn.messages]
    basis = earlier.basis
    system = [{"role": "system", "content": basis.instructions}] if basis.instructions else []
    replied = earlier.turn is not None and earlier.turn.outputs > 0
    chat = ChatBody.model_construct(
        messages=[*system, *map(dict, turns)],
        tools=[dict(tool) for tool in basis.tools] or None,
        chat_template_kwargs=None if basis.template_kwargs is None else dict(basis.template_kwargs),
        add_generation_prompt=not replied,
    )
    return converse(context, chat, root).ids


def _parted(earlier: KeptResponse, chat: ChatBody, common: int, total: int) -> dict[str, Any]:
    tools = [dict(tool) for tool in earlier.basis.tools]
    before = sum(len(turn.messages) for turn in chained(earlier.turn)) + bool(earlier.basis.instructions)
    before -= bool(earlier.turn is not None and earlier.turn.outputs)  # the reply was not in the prompt
    reason = "input_changed"
    if tools != (chat.tools or []):
        reason = "tools_changed"
    elif len(chat.messages) < before:
        reason = "context_compacted"
    return {
        "type": "cache_miss",
        "reason": reason,
        "cache_missed_tokens": total - common,
        "comparison_reusable_tokens": common,
    }


def _another_salt(context: Context, root: bytes, chat: ChatBody, earlier: KeptResponse) -> Comparison:
    """OpenAI has no word for a salt; its key of the prompt cache is the nearest."""
    total = len(converse(context, chat, root).ids)
    diagnostics = {
        "type": "cache_miss",
        "reason": "prompt_cache_key_changed",
        "cache_missed_tokens": total,
        "comparison_reusable_tokens": 0,
    }
    why = "the earlier response was made under another cache_salt, and salts never share pages"
    return Comparison(diagnostics, {"response_id": earlier.id, **Miss("salt", 0, why).to_json()})
