"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from agentcache.server.anthropic.bodies import CountBody, MessagesBody
from agentcache.server.anthropic.diagnostics import Fingerprint, Fingerprints, fingerprint
from agentcache.server.anthropic.errors import ERROR_SCHEMA, PATH
from agentcache.server.anthropic.jobs import as_taken, count, message_job, too_long
from agentcache.server.anthropic.names import TOO_LONG
from agentcache.server.anthropic.threads import HeldTurn, ThreadEnding, Threads, Turn
from agentcache.server.anthropic.translate import Conversation, chat_body, conversation
from agentcache.server.anthropic.writer import MessagesWriter, Telling, answer_id
from agentcache.server.bodies import ChatBody, check
from agentcache.server.context import Context
from agentcache.server.gate.auth import api_key
from agentcache.server.gate.json_body import parse_object, read_body
from agentcache.server.job import Job
from agentcache.server.reply import answer

_AGENT_SESSION = "x-claude-code-session-id"
"""Names the conversation that a request is a turn of, for the queue."""


@dataclass(frozen=True)
class Prepared:
    """A request that is ready to run."""

    body: MessagesBody
    said: Conversation
    job: Job
    print: Fingerprint | None


def messages_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["generate"])
    threads, fingerprints = Threads(), Fingerprints()

    def prepare(fields: Mapping[str, Any], body: MessagesBody, before: HeldTurn | None, key: str | None) -> Prepared:
        said = conversation(body, None if before is None else before.said)

        def run(chat: ChatBody, said: Conversation) -> Prepared:
            job = message_job(context, chat, said, key, generate=body.max_tokens > 0)
            tokens = len(job.prompts[0].token_ids)
            return Prepared(body, said, job, None if body.diagnostics is None else fingerprint(said, chat, tokens))

        return as_taken(run, chat_body(body, fields, said), said)

    def parse(raw: bytes) -> tuple[dict[str, Any], MessagesBody]:
        fields = parse_object(raw)
        return fields, check(MessagesBody, fields)

    def held(prepared: Prepared, before: HeldTurn | None) -> Job:
        """The job; of a thread, one that holds the conversation when it ends."""
        job, body = prepared.job, prepared.body
        if body.thread is None:
            return job
        threads.find(body, job.owner)  # another turn may have gone on from there meanwhile
        turn = Turn(job.owner, answer_id(job), prepared.said, job.reading if body.max_tokens else None)
        return replace(job, ending=ThreadEnding(job.ending, threads, turn, before))

    def telling(prepared: Prepared, request: Request) -> Telling:
        body, told = prepared.body, None
        if prepared.print is not None and body.diagnostics is not None:
            told = fingerprints.diagnose(body.diagnostics, prepared.job.owner, answer_id(prepared.job), prepared.print)
        return Telling(
            prepared.said.names,
            request_id=str(getattr(request.state, "request_id", "")),
            max_tokens=body.max_tokens,
            stops=tuple(body.stop_sequences or ()),
            show_thinking=(body.thinking or {}).get("display") != "omitted",
            diagnosing=body.diagnostics is not None,
            diagnostics=told,
            edits=body.context_management is not None,
        )

    @router.post(PATH, summary="Reply to a conversation (Anthropic's shape)", openapi_extra=_described(MessagesBody))
    async def create_message(request: Request) -> Response:
        """Anthropic's messages; ``usage`` says how much of the prompt was cached, ``agentcache`` why not more."""
        raw, key = await read_body(request, context.settings.max_body), api_key(request)
        fields, body = await run_in_threadpool(parse, raw)
        if session := request.headers.get(_AGENT_SESSION):
            fields.setdefault("prompt_cache_key", session[:256])
        before = threads.find(body, context.desk.home(key, None).owner)
        prepared = await run_in_threadpool(prepare, fields, body, before, key)
        told = telling(prepared, request)
        job = held(prepared, before)  # from here on the turn before is in flight
        writer = MessagesWriter(job, context, told)
        try:
            with prepared.said.names.telling():
                return await answer(context, request, job, writer)
        except BaseException as error:
            job.ending.drop()
            if getattr(error, "code", None) == TOO_LONG:
                raise too_long(job, context) from error
            raise

    @router.post(
        f"{PATH}/count_tokens", summary="Tokens of a prompt (Anthropic's shape)", openapi_extra=_described(CountBody)
    )
    async def count_tokens(request: Request) -> JSONResponse:
        """``input_tokens`` is what the same request to ``/v1/messages`` reports as its three kinds of input together."""
        raw, key = await read_body(request, context.settings.max_body), api_key(request)

        def counted() -> dict[str, Any]:
            fields = parse_object(raw)
            body = check(CountBody, fields)
            said = conversation(body)
            tokens = as_taken(lambda chat, said: count(context, chat, said, key), chat_body(body, fields, said), said)
            edits = {} if body.context_management is None else {"context_management": {"original_input_tokens": tokens}}
            return {"input_tokens": tokens, **edits}

        return JSONResponse(await run_in_threadpool(counted))

    return router


def _described(model: type[BaseModel]) -> dict[str, Any]:
    """``openapi_extra`` of a route whose body is a ``model``."""
    error = {"content": {"application/json": {"schema": ERROR_SCHEMA}}}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}},
        "responses": {"4XX": {"description": "the request is refused"} | error},
    }
