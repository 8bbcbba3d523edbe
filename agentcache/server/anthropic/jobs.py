"""From a translated conversation to a job, and to its number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from agentcache.server.anthropic.checks import refuse
from agentcache.server.anthropic.names import TOO_LONG
from agentcache.server.anthropic.translate import Conversation
from agentcache.server.bodies import ChatBody
from agentcache.server.call_input import as_object
from agentcache.server.chat_jobs import chat_job
from agentcache.server.context import Context
from agentcache.server.conversations import begun, converse
from agentcache.server.errors import ApiError
from agentcache.server.job import Job

Made = TypeVar("Made")


def as_taken(run: Callable[[ChatBody, Conversation], Made], chat: ChatBody, said: Conversation) -> Made:
    """What ``run`` makes of a conversation as it was sent or, where the model's template refuses that, in turns.

    Raises:
        ApiError: what is wrong with the request, in its client's names.
    """
    ways = [said, said.in_turns(system=True), said.in_turns(system=False)]
    refused: ApiError | None = None
    for i, way in enumerate(ways):
        if any(way.messages == earlier.messages for earlier in ways[:i]):
            continue
        try:
            with way.names.telling():
                return run(chat if way is said else chat.model_copy(update={"messages": way.messages}), way)
        except ApiError as error:
            if error.code != "chat_template":
                raise
            refused = refused or error
    assert refused is not None, "the first way was tried"
    raise refused


def message_job(context: Context, chat: ChatBody, said: Conversation, key: str | None, *, generate: bool) -> Job:
    """
    Args:
        generate: whether anything is to be generated, or only the cache filled.

    Raises:
        ApiError, RequestError, ChatTemplateError: what is wrong with the request.
    """
    job = chat_job(context, chat, key, beginning=said.prefill or "", arguments=_told)
    if said.prefill is not None:
        _check_prefilled(job)
    if not generate:
        job = replace(job, params=replace(job.params, max_tokens=0, grammar=None))
    return job


def count(context: Context, chat: ChatBody, said: Conversation, key: str | None) -> int:
    """Tokens of the prompt, exactly.

    Raises:
        ApiError, RequestError, ChatTemplateError: as ``message_job``.
    """
    context.check_model(chat.model)
    prompt = converse(context, chat, context.root(key, chat.cache_salt))
    return len((prompt if said.prefill is None else begun(context, prompt, said.prefill)).ids)


def _told(_: str, arguments: str) -> str:
    return as_object(arguments)


def _check_prefilled(job: Job) -> None:
    if job.params.grammar is not None:
        why = "ends with the beginning of the reply, which forced calls and formats of the reply do not allow"
        raise refuse("messages", f"{why}; expected a user's message at the end")
    if job.reading.in_reasoning:
        raise refuse("messages", "ends with the beginning of the reply, and this model's replies begin with thinking")


def too_long(job: Job, context: Context) -> ApiError:
    """A prompt that does not fit, with its exact length, from which coding agents tell how much has to go."""
    tokens, room = len(job.prompts[0].token_ids), context.engine.info.capacity - 1
    return ApiError(400, f"prompt is too long: {tokens} tokens > {room} maximum", param="messages", code=TOO_LONG)
