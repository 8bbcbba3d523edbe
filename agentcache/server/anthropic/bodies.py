"""Bodies of ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``, in Anthropic's names.

What blocks hold is checked where they are translated (``blocks``, ``tools``), so that a refusal names the very place.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentcache.server.bodies import MAX_STOP_CHARACTERS, MAX_STOPS, Body, Int, Stop

EXTRAS = (
    "cache_salt", "prompt_cache_key", "priority", "seed", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logit_bias", "stop_token_ids", "ignore_eos", "chat_template_kwargs",
)  # fmt: skip
"""Fields of chat completions that Anthropic does not have and that mean the same here (``extra_body`` of its clients)."""


class PromptBody(Body):
    """What the two routes share: all that the prompt is made of."""

    model: str | None = Field(None, description="the name of the served model, as text")
    messages: list[dict[str, Any]] = Field(max_length=100_000, description="a list of messages, user's or assistant's")
    system: str | list[dict[str, Any]] | None = Field(None, description="text, or a list of text blocks")
    tools: list[dict[str, Any]] | None = Field(None, description="a list of tools with name and input_schema")
    tool_choice: dict[str, Any] | None = Field(
        None,
        description='{"type": "auto"}, {"type": "any"}, {"type": "none"}, or {"type": "tool", "name": name of a tool}',
    )
    thinking: dict[str, Any] | None = Field(
        None,
        description='{"type": "enabled", "budget_tokens": count}, or type "adaptive", "between_tools" or "disabled"',
    )
    output_config: dict[str, Any] | None = Field(
        None, description='an object with format: {"type": "json_schema", "schema": {…}}'
    )
    output_format: dict[str, Any] | None = Field(
        None, description='{"type": "json_schema", "schema": {…}}: the older name of output_config.format'
    )
    cache_control: dict[str, Any] | None = Field(None, description='{"type": "ephemeral"}, with ttl "5m" or "1h"')
    mcp_servers: list[dict[str, Any]] | None = Field(
        None, max_length=0, description="an empty list: this server calls no others, so list their tools in tools"
    )
    context_management: dict[str, Any] | None = Field(None, description="an object; nothing is ever edited")


class MessagesBody(PromptBody):
    """``POST /v1/messages``"""

    max_tokens: Int = Field(ge=0, description="an integer from 1, or 0 to fill the cache and generate nothing")
    stream: bool | None = Field(None, description="true or false")
    temperature: float | None = Field(None, ge=0, le=1e6, description="a number from 0 (greedy); default 1")
    top_p: float | None = Field(None, gt=0, le=1, description="a number above 0 and up to 1; default 1")
    top_k: Int | None = Field(None, ge=-1, description="an integer: 0 for no filter, or a count from 1")
    stop_sequences: list[Stop] | None = Field(
        None,
        max_length=MAX_STOPS,
        description=f"a list of up to {MAX_STOPS} texts, each of 1 to {MAX_STOP_CHARACTERS} characters",
    )
    metadata: dict[str, Any] | None = Field(None, description='an object such as {"user_id": text}')
    diagnostics: dict[str, Any] | None = Field(
        None, description='{"previous_message_id": id of the previous answer, or null}'
    )
    compaction: None = Field(None, description="nothing: this server does not summarise conversations")
    thread: dict[str, Any] | None = Field(
        None, description='{"type": "create"}, or {"type": "continue", "previous_message_id": id of an answer}'
    )


class CountBody(PromptBody):
    """``POST /v1/messages/count_tokens``"""
