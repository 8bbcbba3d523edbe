"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from agentcache.server.bodies import ChatPrompt, DetokenizeBody, TokenizeBody, check
from agentcache.server.context import Context
from agentcache.server.errors import bad_field
from agentcache.server.gate.json_body import parse_object, read_body
from agentcache.server.openapi import json_request
from agentcache.server.params import check_tokens


def text_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["text"])
    engine = context.engine

    def ids_of(raw: bytes) -> list[int]:
        fields = parse_object(raw)
        body = check(TokenizeBody, fields)
        context.check_model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise bad_field("prompt", "expected either prompt or messages")
        if body.prompt is not None:
            return context.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False, to_fit=False)
        chat = check(ChatPrompt, fields)
        rendered = engine.renderer.render_text(
            chat.messages,
            tools=chat.tools,
            add_generation_prompt=chat.add_generation_prompt is not False,
            template_kwargs=chat.chat_template_kwargs,
        )
        return rendered.encode()[0]

    def text_of(raw: bytes) -> str:
        body = check(DetokenizeBody, parse_object(raw))
        context.check_model(body.model)
        check_tokens("tokens", body.tokens, engine.info.vocab_size)
        return engine.tokenizer.decode(body.tokens, skip_special_tokens=False)

    @router.post(
        "/tokenize", summary="Token ids of a prompt or a conversation", openapi_extra=json_request(TokenizeBody)
    )
    async def tokenize(request: Request) -> JSONResponse:
        """``{"prompt": text}`` or ``{"messages": […], "tools": […]}``: the ids that the model would be given."""
        raw = await read_body(request, context.settings.max_body)
        ids = await run_in_threadpool(ids_of, raw)
        answer: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": engine.info.max_model_len}
        return JSONResponse(answer)

    @router.post("/detokenize", summary="Text of token ids", openapi_extra=json_request(DetokenizeBody))
    async def detokenize(request: Request) -> JSONResponse:
        """The text of ``tokens``, control tokens spelled out."""
        raw = await read_body(request, context.settings.max_body)
        return JSONResponse({"prompt": await run_in_threadpool(text_of, raw)})

    return router
