"""A body of the Messages API as a body of chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentcache.chat.messages import Message
from agentcache.server.anthropic.blocks import Calls, Placed, chat_messages, system_text
from agentcache.server.anthropic.bodies import EXTRAS, MessagesBody, PromptBody
from agentcache.server.anthropic.checks import check_cache_control, refuse
from agentcache.server.anthropic.names import Names
from agentcache.server.anthropic.tools import Tool, chat_tools, choice_fields
from agentcache.server.bodies import ChatBody, check
from agentcache.server.errors import shown

_THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}


@dataclass(frozen=True)
class Conversation:
    """
    Attributes:
        prefill: the beginning of the reply, where the client wrote it.
    """

    placed: Sequence[Placed]
    tools: list[Tool] | None = None
    prefill: str | None = None
    calls: Calls = field(default_factory=Calls)

    @property
    def messages(self) -> list[Message]:
        return [placed.message for placed in self.placed]

    @property
    def names(self) -> Names:
        return Names(self.placed)

    def in_turns(self, *, system: bool) -> Conversation:
        """For templates that insist on turns: what the system says behind the beginning is the user's, and neighbours of one
        role are one message.

        Args:
            system: whether the system may speak at the beginning.
        """
        turns: list[Placed] = []
        for placed in self.placed:
            if placed.message["role"] == "system" and (turns or not system):
                placed = replace(placed, message={**placed.message, "role": "user"})
            before = turns[-1] if turns else None
            if before is None or not _alike(before.message, placed.message):
                turns.append(placed)
                continue
            texts = (before.message["content"], placed.message["content"])
            joined = {**before.message, **placed.message, "content": "\n\n".join(filter(None, texts))}
            turns[-1] = replace(before, message=joined)
        return replace(self, placed=turns)


def _alike(first: Message, second: Message) -> bool:
    return first["role"] == second["role"] != "tool" and "tool_calls" not in first


def conversation(body: PromptBody, before: Conversation | None = None) -> Conversation:
    """What ``body`` says, appended to what was said ``before``.

    Raises:
        ApiError: 400, naming the place.
    """
    check_cache_control({"cache_control": body.cache_control}, "")
    if before is None:
        system = system_text(body.system)
        head = [Placed({"role": "system", "content": system}, "system", None)] if system else []
        before = Conversation(head, chat_tools(body.tools))
    calls = Calls(dict(before.calls.names))
    said = [*before.placed, *chat_messages(body.messages, calls)]
    if all(placed.place == "system" for placed in said):
        raise refuse("messages", "got an empty list, expected at least one message")
    last = said[-1]
    if last.message["role"] != "assistant":
        return Conversation(said, before.tools, None, calls)
    if "tool_calls" in last.message or "reasoning_content" in last.message:
        why = "ends with an assistant message that calls tools or thinks, expected results of the calls, or plain text"
        raise refuse(last.place, why)
    return Conversation(said[:-1], before.tools, last.message["content"] or None, calls)


def chat_body(body: PromptBody, fields: Mapping[str, Any], said: Conversation) -> ChatBody:
    """
    Args:
        fields: the body as it was sent.

    Raises:
        ApiError: 400, naming the field in Anthropic's names.
    """
    chat: dict[str, Any] = {key: fields[key] for key in EXTRAS if fields.get(key) is not None}
    given = chat.get("chat_template_kwargs", {})
    kwargs = _template_variables(body.thinking) | given if isinstance(given, dict) else given
    chat |= {"messages": said.messages, "tools": said.tools, "chat_template_kwargs": kwargs or None}
    chat |= {"model": body.model, "response_format": _response_format(body), **choice_fields(body.tool_choice)}
    if isinstance(body, MessagesBody):
        chat |= {
            "max_tokens": body.max_tokens or 1,
            "stop": body.stop_sequences or None,
            "stream": body.stream,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_k": body.top_k,
        }
        _check_options(body)
    with said.names.telling():
        return check(ChatBody, chat)


def _template_variables(thinking: Mapping[str, Any] | None) -> dict[str, Any]:
    """Templates of models that can do both call it ``enable_thinking``; nothing said, the model's own default holds."""
    if thinking is None:
        return {}
    kind = thinking.get("type")
    if not isinstance(kind, str) or kind not in _THINKING:
        got = "nothing" if kind is None else shown(kind)
        raise refuse("thinking.type", f"got {got}, expected enabled, adaptive, between_tools or disabled")
    budget = thinking.get("budget_tokens")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < 1):
        raise refuse("thinking.budget_tokens", f"got {shown(budget)}, expected an integer from 1")
    return {"enable_thinking": _THINKING[kind]}


def _response_format(body: PromptBody) -> dict[str, Any] | None:
    configured = (body.output_config or {}).get("format")
    place, asked = ("output_format", body.output_format) if configured is None else ("output_config.format", configured)
    if asked is None:
        return None
    if (
        not isinstance(asked, Mapping)
        or asked.get("type") != "json_schema"
        or not isinstance(asked.get("schema"), Mapping)
    ):
        raise refuse(place, f'got {shown(asked)}, expected {{"type": "json_schema", "schema": a JSON schema}}')
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": dict(asked["schema"]), "strict": True}}


def _check_options(body: MessagesBody) -> None:
    if body.max_tokens == 0 and body.stream:
        raise refuse("max_tokens", "got 0 with stream, expected an integer from 1: there is nothing to stream")
    user = (body.metadata or {}).get("user_id")
    if user is not None and not isinstance(user, str):
        raise refuse("metadata.user_id", f"got {shown(user)}, expected text")
