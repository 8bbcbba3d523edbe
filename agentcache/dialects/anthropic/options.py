"""Options of a request that say something about its prompt or the form of its reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.dialects.wording import got, refuse, shown

_THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}


def template_variables(thinking: Mapping[str, Any] | None) -> dict[str, Any]:
    """Templates of models that can do both call it ``enable_thinking``; nothing said, the model's own default holds.

    Raises:
        RequestError: naming the field.
    """
    if thinking is None:
        return {}
    kind = thinking.get("type")
    if not isinstance(kind, str) or kind not in _THINKING:
        raise refuse("thinking.type", f"got {got(kind)}, expected enabled, adaptive, between_tools or disabled")
    budget = thinking.get("budget_tokens")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < 1):
        raise refuse("thinking.budget_tokens", f"got {shown(budget)}, expected an integer from 1")
    return {"enable_thinking": _THINKING[kind]}


def response_format(
    output_config: Mapping[str, Any] | None, output_format: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The format of the reply, as chat completions spell it.

    Raises:
        RequestError: naming the field.
    """
    configured = (output_config or {}).get("format")
    place, asked = ("output_format", output_format) if configured is None else ("output_config.format", configured)
    if asked is None:
        return None
    if (
        not isinstance(asked, Mapping)
        or asked.get("type") != "json_schema"
        or not isinstance(asked.get("schema"), Mapping)
    ):
        raise refuse(place, f'got {shown(asked)}, expected {{"type": "json_schema", "schema": a JSON schema}}')
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": dict(asked["schema"]), "strict": True}}
