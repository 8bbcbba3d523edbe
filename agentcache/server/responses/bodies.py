"""Bodies of ``/v1/responses`` and what of them chat completions are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from agentcache.dialects.wording import shown
from agentcache.server.bodies import MAX_ALTERNATIVES, Body, ChatBody, GenerationBody, Int
from agentcache.server.errors import ApiError, bad_field

LOGPROBS = "message.output_text.logprobs"
"""The ``include`` that asks for log-probabilities."""
_FORMATS = '"text", "json_object" or "json_schema"'
_COMMON = frozenset(GenerationBody.model_fields) - {"n", "best_of", "max_tokens", "max_completion_tokens", "session"}
"""Fields that a response and a chat completion share by name."""


class PromptCacheOptions(Body):
    comparison_response_id: str | None = Field(None, description="text: the id of an earlier response")
    prewarm: bool | None = Field(None, description="true or false: prepare the cache and generate nothing")
    mode: str | None = Field(None, description='"implicit" or "explicit"')
    ttl: str | None = Field(None, description='"30m" or "12h"')


class ReasoningOptions(Body):
    effort: str | None = Field(None, description="text")
    summary: str | None = Field(None, description="text")


class TextOptions(Body):
    format: dict[str, Any] | None = Field(None, description=f"an object whose type is {_FORMATS}")
    verbosity: str | None = Field(None, description="text")


class PromptBody(Body):
    """What a response and a count of its input tokens have in common."""

    model: str | None = Field(None, description="the name of the served model, as text")
    input: str | list[Any] | None = Field(None, description="text, or a list of input items")
    instructions: str | None = Field(None, description="text: a system message for this response alone")
    previous_response_id: str | None = Field(None, description="text: the id of the response to go on from")
    conversation: str | dict[str, Any] | None = Field(None, description="nothing: conversations are not served")
    prompt: dict[str, Any] | None = Field(None, description="nothing: prompt templates are not served")
    tools: list[dict[str, Any]] | None = Field(None, description="a list of tool objects")
    tool_choice: str | dict[str, Any] | None = Field(
        None, description='"auto", "none", "required", or an object that names a tool'
    )
    parallel_tool_calls: bool | None = Field(
        None, description="true or false: more than one call a reply; default true"
    )
    text: TextOptions | None = Field(None, description='an object such as {"format": {"type": "text"}}')
    reasoning: ReasoningOptions | None = Field(
        None, description="an object; what a model reasons is its template's matter"
    )
    truncation: str | None = Field(None, description='"auto" or "disabled": nothing is ever cut silently')
    cache_salt: str | None = Field(None, description="text: only requests with the same salt share pages")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="an object of template variables")


class ResponseBody(GenerationBody, PromptBody):
    """``POST /v1/responses``"""

    max_output_tokens: Int | None = Field(None, ge=1, description="an integer from 1; default: the room left")
    top_logprobs: Int | None = Field(
        None, ge=0, le=MAX_ALTERNATIVES, description=f"an integer from 0 to {MAX_ALTERNATIVES}"
    )
    include: list[str] | None = Field(None, description=f'a list of texts, such as ["{LOGPROBS}"]')
    store: bool | None = Field(None, description="true or false: keep the response to go on from; default true")
    background: bool | None = Field(None, description="false: responses are not made in the background")
    metadata: dict[str, str] | None = Field(None, description="an object of texts")
    prompt_cache_options: PromptCacheOptions | None = Field(
        None, description='an object such as {"prewarm": true} or {"comparison_response_id": "resp_…"}'
    )
    user: str | None = Field(None, description="text")
    safety_identifier: str | None = Field(None, description="text")

    @property
    def kept(self) -> bool:
        return self.store is not False

    @property
    def prewarm(self) -> bool:
        return bool(self.prompt_cache_options and self.prompt_cache_options.prewarm)

    @property
    def with_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ()) or bool(self.top_logprobs)


class CountBody(PromptBody):
    """``POST /v1/responses/input_tokens``"""


def check_served(body: PromptBody) -> None:
    """Fields whose meaning cannot be kept are refused, never ignored.

    Raises:
        ApiError: 400, naming the field.
    """
    if body.input is None and body.previous_response_id is None:
        raise bad_field("input", "missing, expected text, or a list of input items", code="missing_field")
    if body.conversation is not None:
        raise _unserved("conversation", body.conversation, "previous_response_id: conversations are not kept apart")
    if body.prompt is not None:
        raise _unserved("prompt", body.prompt, "instructions and input: prompt templates are not kept here")
    if body.truncation not in (None, "auto", "disabled"):
        raise bad_field("truncation", f'got {shown(body.truncation)}, expected "auto" or "disabled"')
    if isinstance(body, ResponseBody):
        _check_generation(body)


def _check_generation(body: ResponseBody) -> None:
    if body.background:
        raise _unserved("background", True, "false: stream the response instead")
    if body.session is not None:
        raise _unserved("session", body.session, "previous_response_id; sessions go on through /v1/chat/completions")
    if (body.n or 1) != 1:
        raise bad_field("n", f"got {body.n}, expected 1: a response is one reply")


def _unserved(field: str, got: Any, expected: str) -> ApiError:
    return bad_field(field, f"got {shown(got)}, expected {expected}", code="unsupported_value")


def response_format(text: TextOptions | None) -> dict[str, Any] | None:
    """``text.format`` as chat completions spell it.

    Raises:
        ApiError: 400.
    """
    asked = None if text is None else text.format
    if asked is None:
        return None
    kind = asked.get("type")
    if kind in ("text", "json_object"):
        return {"type": kind}
    if kind != "json_schema":
        raise bad_field("text.format", f"got {shown(asked)}, expected type {_FORMATS}")
    return {"type": "json_schema", "json_schema": {key: value for key, value in asked.items() if key != "type"}}


def chat_fields(
    body: PromptBody, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], choice: Any
) -> ChatBody:
    """The chat completion that a response is.

    Args:
        messages: of the whole conversation, at least one.
        choice: ``tool_choice`` as chat completions spell it.

    Raises:
        ApiError: 400, naming the field.
    """
    common = {name: getattr(body, name) for name in _COMMON if hasattr(body, name)}
    fields: dict[str, Any] = common | {
        "messages": [dict(message) for message in messages],
        "tools": [dict(tool) for tool in tools] or None,
        "tool_choice": choice,
        "parallel_tool_calls": body.parallel_tool_calls,
        "response_format": response_format(body.text),
        "chat_template_kwargs": body.chat_template_kwargs,
    }
    if isinstance(body, ResponseBody):
        fields |= {
            "max_completion_tokens": body.max_output_tokens,
            "logprobs": body.with_logprobs or None,
            "top_logprobs": body.top_logprobs if body.with_logprobs else None,
        }
    return ChatBody.model_construct(**fields)
