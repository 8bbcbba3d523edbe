"""From a translated conversation to a job, and to its number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.server.anthropic.checks import refuse
from agentcache.server.anthropic.names import TOO_LONG
from agentcache.server.anthropic.translate import Conversation
from agentcache.server.bodies import ChatBody
from agentcache.server.chat_jobs import chat_job
from agentcache.server.context import Context
from agentcache.server.conversations import converse
from agentcache.server.endings import Namespace, PromptEnding
from agentcache.server.errors import ApiError
from agentcache.server.job import Job, Prompt
from agentcache.server.misses import Asked
from agentcache.sessions.transcript import Prompt as Conversed

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
    job = chat_job(context, chat, key)
    if said.prefill is not None:
        job = _prefilled(context, chat, said.prefill, key, job)
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
    return len(prompt.ids if said.prefill is None else _extended(context, prompt, said.prefill).ids)


def _prefilled(context: Context, chat: ChatBody, prefill: str, key: str | None, job: Job) -> Job:
    """``job`` with the beginning of its reply given::

    prompt   [ messages, generation prompt ][ prefill ] -> reply goes on
    """
    if job.params.grammar is not None:
        why = "ends with the beginning of the reply, which forced calls and formats of the reply do not allow"
        raise refuse("messages", f"{why}; expected a user's message at the end")
    if job.reading.in_reasoning:
        raise refuse("messages", "ends with the beginning of the reply, and this model's replies begin with thinking")
    home = context.desk.home(key, chat.cache_salt)
    prompt = _extended(context, converse(context, chat, home.root), prefill)

    def read(choice: int, text: str) -> ReplyMessage:
        """The message as it comes back: with its beginning."""
        reply = job.reading.read(choice, text)
        reply.content = prefill + reply.content
        return reply

    asked = Asked(prompt, chat.messages, chat.tools, chat.chat_template_kwargs, read)
    source = "transcript" if prompt.kept.tokens else "template"
    ending = PromptEnding(context, Namespace(key, home.root, chat.cache_salt), [asked], source)
    return replace(job, prompts=[Prompt(prompt.ids, prompt.transcript.text)], ending=ending)


def _extended(context: Context, prompt: Conversed, prefill: str) -> Conversed:
    tokenizer = context.engine.tokenizer
    ids = tokenizer.encode(prefill, parse_special=False)
    spelled = "\n" + prefill
    return Conversed(
        prompt.transcript.with_text(ids, prefill),
        kept=prompt.kept,
        broken_at=prompt.broken_at,
        spells_controls=prompt.spells_controls or bool(tokenizer.last_control_before(spelled, len(spelled))),
        header=prompt.header + len(prefill),
    )


def too_long(job: Job, context: Context) -> ApiError:
    """A prompt that does not fit, with its exact length, from which coding agents tell how much has to go."""
    tokens, room = len(job.prompts[0].token_ids), context.engine.info.capacity - 1
    return ApiError(400, f"prompt is too long: {tokens} tokens > {room} maximum", param="messages", code=TOO_LONG)
