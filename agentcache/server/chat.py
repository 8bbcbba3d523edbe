"""``POST /v1/chat/completions`` and what it would send to the model: ``/render``."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from agentcache.server.auth import api_key
from agentcache.server.bodies import ChatBody, ChatPrompt, ChatTurnBody, RenderBody, check
from agentcache.server.context import Context
from agentcache.server.endings import Namespace, PromptEnding
from agentcache.server.generation import Delta
from agentcache.server.json_body import parse_object, read_body
from agentcache.server.logprobs import chat_logprobs
from agentcache.server.misses import Asked
from agentcache.server.openapi import json_request
from agentcache.server.params import sampling_params
from agentcache.server.reply import Job, Prompt, Shape, answer, finish_fields
from agentcache.server.turns import chat_turn, named_session
from agentcache.sessions.transcript import Prompt as Conversation
from agentcache.sessions.transcript import continue_chat, fresh_prompt

if TYPE_CHECKING:
    from agentcache.chat.renderer import ChatRenderer, RenderedPrompt, RenderedText
    from agentcache.chat.tokenizer import Tokenizer


class ChatShape(Shape):
    prompt_field = "messages"
    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, delta: Delta) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def piece(self, delta: Delta) -> dict[str, Any]:
        return {"delta": {"content": delta.text}, "logprobs": self._logprobs(delta), "finish_reason": None}

    def closing(self, delta: Delta) -> dict[str, Any]:
        return {"delta": {}, "logprobs": None, **finish_fields(delta)}

    def whole(self, delta: Delta) -> dict[str, Any]:
        message = {"role": "assistant", "content": delta.text}
        return {"message": message, "logprobs": self._logprobs(delta), **finish_fields(delta)}

    def _logprobs(self, delta: Delta) -> dict[str, Any] | None:
        return None if self.job.params.logprobs is None else chat_logprobs(self.tokenizer, delta.logprobs)


def render(renderer: ChatRenderer, body: ChatPrompt) -> RenderedPrompt:
    """Text, ids and offsets of a conversation.

    Raises:
        ChatTemplateError: the model's template refuses the messages.
    """
    return renderer.render(
        body.messages,
        tools=body.tools,
        add_generation_prompt=body.add_generation_prompt is not False,
        template_kwargs=body.chat_template_kwargs,
    )


def recall(context: Context, rendered: RenderedText, root: bytes) -> Conversation:
    """The prompt of a whole history: what was generated in it has the ids it was generated with."""
    known = None if rendered.spells_controls else context.desk.known.find(root, rendered.text)
    return fresh_prompt(rendered) if known is None else continue_chat(known, rendered)


def token_spans(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
    """Characters ``[start, end)`` of ``text`` that each token stands for; tokens that share a character share its span."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    spans: list[tuple[int, int]] = []
    waiting: list[int] = []
    place = 0
    for index, token in enumerate(ids):
        waiting.append(index)
        characters = len(decoder.decode(tokenizer.token_bytes(token)))
        if characters == 0 and tokenizer.token_bytes(token):
            continue
        end = min(place + characters, len(text))
        spans += [(place, end)] * len(waiting)
        waiting.clear()
        place = end
    return spans + [(place, len(text))] * len(waiting)


def chat_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["generate"])
    engine = context.engine

    def converse(body: ChatPrompt, root: bytes) -> Conversation:
        rendered = engine.renderer.render_text(
            body.messages,
            tools=body.tools,
            add_generation_prompt=body.add_generation_prompt is not False,
            template_kwargs=body.chat_template_kwargs,
        )
        return recall(context, rendered, root)

    def prepare(raw: bytes, key: str | None, session: str | None) -> Job | ChatTurnBody:
        fields = parse_object(raw)
        session = session if fields.get("session") is None else fields["session"]
        if session is not None:
            return check(ChatTurnBody, {**fields, "session": session})
        body = check(ChatBody, fields)
        context.check_model(body.model)
        params = sampling_params(body, engine.info.vocab_size)
        space = Namespace(key, context.root(key, body.cache_salt), body.cache_salt)
        prompt = converse(body, space.root)
        asked = Asked(prompt, body.messages, body.tools, body.chat_template_kwargs)
        ending = PromptEnding(context, space, [asked], "transcript" if prompt.kept.tokens else "template")
        return Job(body, [Prompt(prompt.ids, prompt.transcript.text)], params, space.root, ending)

    def shape(job: Job) -> Shape:
        return ChatShape(job, engine.tokenizer)

    @router.post("/v1/chat/completions", summary="Reply to a conversation", openapi_extra=json_request(ChatBody))
    async def chat_completions(request: Request) -> Response:
        """OpenAI's chat completions; ``agentcache`` in the answer says how much of the prompt was cached."""
        raw = await read_body(request, context.settings.max_body)
        # Parsing, rendering and tokenising a long conversation takes a while: not on the event loop.
        job = await run_in_threadpool(prepare, raw, api_key(request), named_session(context, request))
        if isinstance(job, ChatTurnBody):
            return await chat_turn(context, request, job, shape)
        return await answer(context, request, job, shape(job))

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
            prompt = converse(body, context.root(api_key(request), body.cache_salt))
            if prompt.offsets is not None:
                return prompt, prompt.offsets
            return prompt, token_spans(engine.tokenizer, prompt.ids, prompt.transcript.text)

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
