"""A request for a response, from its body to a job for the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentcache.dialects.responses.items import Item, Turn
from agentcache.dialects.responses.places import Place
from agentcache.errors import RequestError
from agentcache.server.bodies import ChatBody
from agentcache.server.chat_jobs import chat_job
from agentcache.server.context import Context
from agentcache.server.errors import ApiError, bad_field
from agentcache.server.job import Job
from agentcache.server.responses.bodies import PromptBody, ResponseBody, chat_fields, check_served
from agentcache.server.responses.compare import Comparison, compare
from agentcache.server.responses.fields import Fields
from agentcache.server.responses.items import read_input
from agentcache.server.responses.store import Basis, KeptTurn, ResponseStore, chained, size_of
from agentcache.server.responses.tools import Toolbox, chat_choice, read_tools, told_arguments


@dataclass(frozen=True)
class Conversation:
    """What a response goes on from and what it adds.

    Attributes:
        before: the turn that ``previous_response_id`` names.
        turn: what the request adds.
        chat: all of it as a chat completion.
        fields: where its parts stand in the body.
    """

    before: KeptTurn | None
    turn: Turn
    toolbox: Toolbox
    chat: ChatBody
    fields: Fields

    def basis(self, instructions: str | None, prompt_tokens: int) -> Basis:
        chat = self.chat
        return Basis(instructions, self.toolbox.chat, chat.chat_template_kwargs, chat.cache_salt, prompt_tokens)


@dataclass(frozen=True)
class Asked:
    """A response that was asked for, ready to be made.

    Attributes:
        owner: whose responses it belongs to.
    """

    body: ResponseBody
    conversation: Conversation
    job: Job
    owner: bytes
    comparison: Comparison | None = None
    size: int = 0
    """Bytes that what the request adds counts for, if it is kept."""


def read_conversation(context: Context, store: ResponseStore, body: PromptBody, key: str | None) -> Conversation:
    """
    Raises:
        ApiError: 400 or 404, naming the field.
    """
    check_served(body)
    owner = context.desk.home(key, None).owner
    toolbox = read_tools(body.tools or ())
    previous = body.previous_response_id
    before = None if previous is None else store.go_on_from(owner, previous).turn

    def find(item_id: str) -> Item | None:
        found = store.item(owner, item_id)
        return None if found is None else dict(found)

    turn = read_input(body.input, find)
    messages, places = _messages(body, before, turn)
    if not messages:
        raise bad_field("input", "got no items, expected at least one")
    chat = chat_fields(body, messages, toolbox.chat, chat_choice(body.tool_choice))
    return Conversation(before, turn, toolbox, chat, Fields(places, toolbox.paths))


def _messages(
    body: PromptBody, before: KeptTurn | None, turn: Turn
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Place]]:
    """Messages, and where each stands in the body.  Instructions are those of this response alone."""
    messages: list[Mapping[str, Any]] = []
    places: list[Place] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
        places.append(Place("instructions"))
    for kept in chained(before):
        messages += kept.messages
        places += [Place("previous_response_id")] * len(kept.messages)
    return messages + turn.messages, places + turn.places


def ask(context: Context, store: ResponseStore, body: ResponseBody, key: str | None) -> Asked:
    """Read, render and tokenise.  Not on the event loop.

    Raises:
        ApiError, RequestError: what is wrong with the request, in the names of its own fields.
    """
    conversation = read_conversation(context, store, body, key)
    try:
        job = chat_job(context, conversation.chat, key, arguments=partial(told_arguments, conversation.toolbox))
        comparison = _comparison(context, store, body, conversation, key)
    except (ApiError, RequestError) as error:
        raise conversation.fields.error(error) from error
    if body.prewarm:
        # The engine computes and publishes the prompt and draws nothing.
        job = replace(job, params=replace(job.params, max_tokens=0, logprobs=None, grammar=None))
    turn = conversation.turn
    size = size_of(turn.items) + size_of(turn.messages) if body.kept else 0
    return Asked(body, conversation, job, context.desk.home(key, None).owner, comparison, size)


def _comparison(
    context: Context, store: ResponseStore, body: ResponseBody, conversation: Conversation, key: str | None
) -> Comparison | None:
    options = body.prompt_cache_options
    if options is None or options.comparison_response_id is None:
        return None
    home = context.desk.home(key, body.cache_salt)
    earlier = store.find(home.owner, options.comparison_response_id)
    return compare(context, home.root, conversation.chat, earlier, conversation.fields)
