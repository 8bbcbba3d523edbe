"""The response object: what was asked for, what came of it, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.server.errors import ApiError
from agentcache.server.responses.ask import Asked
from agentcache.server.usage import Costs

_TO_BLAME = {429: "rate_limit_exceeded"}
"""Codes of a failed response are a closed list: all that is not in it is the server's."""


def response_json(asked: Asked, name: str, model: str) -> dict[str, Any]:
    """As it stands when nothing was generated yet; every key that a response ever has."""
    body, job = asked.body, asked.job
    return {
        "id": name,
        "object": "response",
        "created_at": int(job.created),
        "status": "in_progress",
        "completed_at": None,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "prompt_cache_options": _cache_options(asked),
        "prompt_cache_diagnostics": None if asked.comparison is None else dict(asked.comparison.diagnostics),
        "reasoning": _reasoning(asked),
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.kept,
        "temperature": job.params.temperature,
        "text": _text(asked),
        "tool_choice": body.tool_choice or "auto",
        "tools": [{"parameters": None, "strict": None, **tool} if _plain(tool) else tool for tool in _tools(asked)],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": job.params.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }


def failed_json(response: Mapping[str, Any], error: ApiError) -> dict[str, Any]:
    """``response`` when it ended with ``error``."""
    code = _TO_BLAME.get(error.status, "server_error")
    return {**response, "status": "failed", "error": {"code": code, "message": error.message}}


def error_json(error: ApiError) -> dict[str, Any]:
    """The event that stands before the last one of a failed response, without its number."""
    return {
        "type": "error", "code": error.code, "message": error.message, "param": error.param, **error.envelope(),
    }  # fmt: skip


def usage_json(costs: Costs, reasoning_tokens: int, *, cached: bool) -> dict[str, Any]:
    """
    Args:
        cached: whether what the prompt had to compute is kept.
    """
    usage = costs.usage()
    found = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": found,
            "cache_write_tokens": usage["prompt_tokens"] - found if cached else 0,
        },
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": usage["total_tokens"],
    }


def _tools(asked: Asked) -> list[dict[str, Any]]:
    return asked.conversation.toolbox.offered


def _plain(tool: dict[str, Any]) -> bool:
    return tool.get("type") == "function"


def _reasoning(asked: Asked) -> dict[str, Any]:
    given = asked.body.reasoning
    return {"effort": None if given is None else given.effort, "summary": None if given is None else given.summary}


def _text(asked: Asked) -> dict[str, Any]:
    given = asked.body.text
    format = None if given is None else given.format
    verbosity = None if given is None else given.verbosity
    return {"format": format or {"type": "text"}, "verbosity": verbosity or "medium"}


def _cache_options(asked: Asked) -> dict[str, Any] | None:
    given = asked.body.prompt_cache_options
    if given is None:
        return None
    return {
        "mode": given.mode or "implicit",
        "ttl": given.ttl or "30m",
        "comparison_response_id": given.comparison_response_id,
        "prewarm": bool(given.prewarm),
    }
