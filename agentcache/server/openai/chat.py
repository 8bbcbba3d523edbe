"""``POST /v1/chat/completions`` and what it would send to the model: ``/render``."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from agentcache.server.bodies import ChatBody, ChatTurnBody, RenderBody, check
from agentcache.server.chat_jobs import chat_job
from agentcache.server.context import Context
from agentcache.server.conversations import converse
from agentcache.server.gate.auth import api_key
from agentcache.server.gate.json_body import parse_object, read_body
from agentcache.server.job import Job
from agentcache.server.openai.chat_writer import ChatWriter
from agentcache.server.openapi import json_request
from agentcache.server.reply import answer
from agentcache.server.sessions.turns import chat_turn, named_session
from agentcache.sessions.transcript import Mark
from agentcache.sessions.transcript import Prompt as Conversation

if TYPE_CHECKING:
    from agentcache.chat.tokenizer import Tokenizer


def token_spans(tokenizer: Tokenizer, prompt: Conversation) -> list[tuple[int, int]]:
    """Characters ``[start, end)`` of the prompt's text that each token stands for.

    Tokens that share a character share its span.  A control token that was drawn and is not part of the text stands for
    nothing; where a known reply begins or ends, text and tokens are known to meet.
    """
    ids, text = prompt.ids, prompt.transcript.text
    marks = [mark for reply in prompt.transcript.replies for mark in (reply.start, reply.end)]
    borders = sorted({Mark(0, 0), *marks, prompt.kept, prompt.transcript.mark})
    spans: list[tuple[int, int]] = []
    for begin, end in pairwise(borders):
        piece = text[begin.characters : end.characters]
        place = begin.characters
        spans += [
            (place + first, place + last) for first, last in _spans(tokenizer, ids[begin.tokens : end.tokens], piece)
        ]
    return spans


def _spans(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    spans: list[tuple[int, int]] = []
    waiting = 0
    place = 0
    for token in ids:
        waiting += 1
        spelled = tokenizer.token_bytes(token)
        characters = decoder.decode(spelled)
        if spelled and not characters:
            continue
        shown = not tokenizer.is_special(token) or text.startswith(characters, place)
        end = min(place + len(characters), len(text)) if shown else place
        spans += [(place, end)] * waiting
        waiting = 0
        place = end
    return spans + [(place, len(text))] * waiting


def chat_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["generate"])
    engine = context.engine

    def prepare(raw: bytes, key: str | None, session: str | None) -> Job | ChatTurnBody:
        fields = parse_object(raw)
        session = session if fields.get("session") is None else fields["session"]
        if session is not None:
            return check(ChatTurnBody, {**fields, "session": session})
        return chat_job(context, check(ChatBody, fields), key)

    def writer(job: Job) -> ChatWriter:
        return ChatWriter(job, context)

    @router.post("/v1/chat/completions", summary="Reply to a conversation", openapi_extra=json_request(ChatBody))
    async def chat_completions(request: Request) -> Response:
        """OpenAI's chat completions; ``agentcache`` in the answer says how much of the prompt was cached."""
        raw = await read_body(request, context.settings.max_body)
        # Parsing, rendering and tokenising a long conversation takes a while: not on the event loop.
        session = await named_session(context, request)
        job = await run_in_threadpool(prepare, raw, api_key(request), session)
        if isinstance(job, ChatTurnBody):
            return await chat_turn(context, request, job, writer)
        return await answer(context, request, job, writer(job))

    @router.post(
        "/v1/chat/completions/render",
        summary="The prompt of a conversation, without running it",
        openapi_extra=json_request(RenderBody),
    )
    async def render_chat(request: Request) -> Response:
        """Text, token ids, and the span of characters ``[start, end)`` of each token in the text."""
        raw = await read_body(request, context.settings.max_body)

        def prepare_render() -> tuple[Conversation, list[tuple[int, int]]]:
            body = check(RenderBody, parse_object(raw))
            context.check_model(body.model)
            prompt = converse(context, body, context.root(api_key(request), body.cache_salt))
            return prompt, token_spans(engine.tokenizer, prompt)

        prompt, offsets = await run_in_threadpool(prepare_render)
        return JSONResponse(
            {
                "object": "chat.completion.prompt",
                "model": engine.info.model_name,
                "source": "transcript" if prompt.kept.tokens else "template",
                "text": prompt.transcript.text,
                "token_ids": prompt.ids,
                "offsets": offsets,
                "count": len(prompt.transcript),
                "page_size": engine.info.page_size,
                "max_model_len": engine.info.max_model_len,
            }
        )

    return router
