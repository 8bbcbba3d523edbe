"""A body of the Messages API as a body of chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.dialects.anthropic import conversation as dialect
from agentcache.dialects.anthropic.blocks import system_message
from agentcache.dialects.anthropic.checks import check_cache_control
from agentcache.dialects.anthropic.options import response_format, template_variables
from agentcache.dialects.anthropic.tools import chat_tools, choice_fields
from agentcache.dialects.foreign import RefuseForeign
from agentcache.dialects.wording import shown
from agentcache.server.anthropic.bodies import EXTRAS, MessagesBody, PromptBody
from agentcache.server.anthropic.checks import refuse
from agentcache.server.anthropic.names import Names
from agentcache.server.bodies import ChatBody, check
from agentcache.server.errors import api_refusals


class Conversation(dialect.Conversation):
    """One whose places can be told to its client."""

    @property
    def names(self) -> Names:
        return Names(self.placed)


def conversation(body: PromptBody, before: Conversation | None = None) -> Conversation:
    """What ``body`` says, appended to what was said ``before``.

    Raises:
        ApiError: 400, naming the place.
    """
    foreign = RefuseForeign()
    with api_refusals():
        check_cache_control({"cache_control": body.cache_control}, "")
        if before is None:
            system = system_message(body.system, foreign)
            before = Conversation([] if system is None else [system], chat_tools(body.tools, foreign))
        return before.followed_by(body.messages, foreign)


def chat_body(body: PromptBody, fields: Mapping[str, Any], said: Conversation) -> ChatBody:
    """
    Args:
        fields: the body as it was sent.

    Raises:
        ApiError: 400, naming the field in Anthropic's names.
    """
    chat: dict[str, Any] = {key: fields[key] for key in EXTRAS if fields.get(key) is not None}
    given = chat.get("chat_template_kwargs", {})
    with api_refusals():
        kwargs = template_variables(body.thinking) | given if isinstance(given, dict) else given
        chat |= {"messages": said.messages, "tools": said.tools, "chat_template_kwargs": kwargs or None}
        chat |= {"model": body.model, "response_format": response_format(body.output_config, body.output_format)}
        chat |= choice_fields(body.tool_choice)
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


def _check_options(body: MessagesBody) -> None:
    if body.max_tokens == 0 and body.stream:
        raise refuse("max_tokens", "got 0 with stream, expected an integer from 1: there is nothing to stream")
    user = (body.metadata or {}).get("user_id")
    if user is not None and not isinstance(user, str):
        raise refuse("metadata.user_id", f"got {shown(user)}, expected text")
