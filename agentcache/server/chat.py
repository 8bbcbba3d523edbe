"""``POST /v1/chat/completions`` and what it would send to the model: ``/render``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from agentcache.server.auth import api_key
from agentcache.server.bodies import ChatBody, ChatPrompt, RenderBody, check
from agentcache.server.context import Context
from agentcache.server.generation import Delta
from agentcache.server.json_body import parse_object, read_body
from agentcache.server.logprobs import chat_logprobs
from agentcache.server.openapi import json_request
from agentcache.server.params import sampling_params
from agentcache.server.reply import Job, Prompt, Shape, answer, finish_fields

if TYPE_CHECKING:
    from agentcache.chat.renderer import ChatRenderer, RenderedPrompt


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


def chat_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["generate"])
    engine = context.engine

    def prepare(raw: bytes, key: str | None) -> Job:
        body = check(ChatBody, parse_object(raw))
        context.check_model(body.model)
        params = sampling_params(body, engine.info.vocab_size)
        rendered = render(engine.renderer, body)
        prompt = Prompt(rendered.token_ids, rendered.text)
        return Job(body, [prompt], params, context.root(key, body.cache_salt))

    @router.post("/v1/chat/completions", summary="Reply to a conversation", openapi_extra=json_request(ChatBody))
    async def chat_completions(request: Request) -> Response:
        """OpenAI's chat completions; ``agentcache`` in the answer says how much of the prompt was cached."""
        raw = await read_body(request, context.settings.max_body)
        # Parsing, rendering and tokenising a long conversation takes a while: not on the event loop.
        job = await run_in_threadpool(prepare, raw, api_key(request))
        return await answer(context, request, job, ChatShape(job, engine.tokenizer))

    @router.post(
        "/v1/chat/completions/render",
        summary="The prompt of a conversation, without running it",
        openapi_extra=json_request(RenderBody),
    )
    async def render_chat(request: Request) -> Response:
        """Text, token ids, and the span of characters ``[start, end)`` of each token in the text."""
        raw = await read_body(request, context.settings.max_body)

        def prepare_render() -> RenderedPrompt:
            body = check(RenderBody, parse_object(raw))
            context.check_model(body.model)
            return render(engine.renderer, body)

        rendered = await run_in_threadpool(prepare_render)
        return JSONResponse(
            {
                "object": "chat.completion.prompt",
                "model": engine.info.model_name,
                "text": rendered.text,
                "token_ids": rendered.token_ids,
                "offsets": rendered.offsets,
                "count": len(rendered.token_ids),
                "page_size": engine.info.page_size,
                "max_model_len": engine.info.max_model_len,
            }
        )

    return router
