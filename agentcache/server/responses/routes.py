"""``/v1/responses`` and what is below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from agentcache.dialects.responses.items import Item
from agentcache.dialects.wording import shown
from agentcache.errors import RequestError
from agentcache.server.bodies import check
from agentcache.server.context import Context
from agentcache.server.conversations import converse
from agentcache.server.errors import ApiError, bad_field
from agentcache.server.gate.auth import api_key
from agentcache.server.gate.json_body import parse_object, read_body
from agentcache.server.generation import Delta, Generation
from agentcache.server.job import Ending
from agentcache.server.openapi import json_request
from agentcache.server.reply import answer
from agentcache.server.responses.ask import Asked, ask, read_conversation
from agentcache.server.responses.bodies import CountBody, ResponseBody
from agentcache.server.responses.store import ResponseStore, chained
from agentcache.server.responses.writer import ResponseWriter
from agentcache.server.usage import Notes


class _KeptEnding:
    """The end of a job whose response is kept: one that is broken off is not left behind as being made."""

    def __init__(self, ending: Ending, writer: ResponseWriter) -> None:
        self._ending = ending
        self._writer = writer

    def started(self, generation: Generation) -> None:
        self._writer.begin()
        self._ending.started(generation)

    async def finish(self, choices: Sequence[Delta]) -> Notes:
        return await self._ending.finish(choices)

    def drop(self) -> None:
        self._writer.abandon()
        self._ending.drop()


def responses_router(context: Context) -> APIRouter:
    router = APIRouter(prefix="/v1/responses", tags=["responses"])
    store = ResponseStore(context.engine.now)

    def owner(request: Request) -> bytes:
        return context.desk.home(api_key(request), None).owner

    @router.post("", summary="Make a response", openapi_extra=json_request(ResponseBody))
    async def create(request: Request) -> Response:
        """OpenAI's responses; ``agentcache`` in the answer says how much of the prompt was cached."""
        raw = await read_body(request, context.settings.max_body)

        def prepare() -> Asked:
            return ask(context, store, check(ResponseBody, parse_object(raw)), api_key(request))

        # Parsing, rendering and tokenising a long conversation takes a while: not on the event loop.
        asked = await run_in_threadpool(prepare)
        writer = ResponseWriter(asked, context, store)
        job = replace(asked.job, ending=_KeptEnding(asked.job.ending, writer))
        writer.job = job
        try:
            return await answer(context, request, job, writer)
        except (ApiError, RequestError) as error:
            raise asked.conversation.fields.error(error) from error

    @router.post(
        "/input_tokens", summary="Count the tokens of an input", openapi_extra=json_request(CountBody)
    )  # before the routes of a response: it is no id
    async def count(request: Request) -> JSONResponse:
        """How long the prompt of a response would be; nothing is run."""
        raw = await read_body(request, context.settings.max_body)

        def count_tokens() -> int:
            body = check(CountBody, parse_object(raw))
            context.check_model(body.model)
            conversation = read_conversation(context, store, body, api_key(request))
            try:
                prompt = converse(context, conversation.chat, context.root(api_key(request), body.cache_salt))
            except RequestError as error:
                raise conversation.fields.error(error) from error
            return len(prompt.transcript)

        return JSONResponse({"object": "response.input_tokens", "input_tokens": await run_in_threadpool(count_tokens)})

    @router.get("/{response_id}", summary="A response that is kept")
    async def retrieve(request: Request, response_id: str, stream: bool = False) -> JSONResponse:
        """As it was answered; ``in_progress`` while it is being made."""
        if stream:
            raise bad_field("stream", "got true, expected false: only responses of the background are streamed again")
        return JSONResponse(dict(store.get(owner(request), response_id).body))

    @router.delete("/{response_id}", summary="Forget a response")
    async def delete(request: Request, response_id: str) -> JSONResponse:
        """Conversations that went on from it keep what was said in it."""
        store.delete(owner(request), response_id)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    @router.post("/{response_id}/cancel", summary="Nothing: responses are not made in the background")
    async def cancel(request: Request, response_id: str) -> JSONResponse:
        """A response is cancelled by hanging up."""
        store.get(owner(request), response_id)
        why = f"response_id: {shown(response_id)} is not made in the background: hang up to cancel it"
        raise ApiError(400, why, param="response_id", code="unsupported_value")

    @router.get("/{response_id}/input_items", summary="What a response was made from")
    async def input_items(
        request: Request,
        response_id: str,
        after: str | None = None,
        limit: int = Query(20, ge=1, le=100),
        order: Literal["asc", "desc"] = "desc",
    ) -> JSONResponse:
        """Items of the whole conversation before its output, the last one first unless ``order`` is ``asc``."""
        kept = store.get(owner(request), response_id)
        turns = list(chained(kept.turn))
        items: list[Any] = [item for turn in turns for item in turn.items]
        if turns and turns[-1].outputs:
            items = items[: -turns[-1].outputs]
        return JSONResponse(_page(items[::-1] if order == "desc" else items, after, limit))

    return router


def _page(items: Sequence[Item], after: str | None, limit: int) -> dict[str, Any]:
    start = 0
    if after is not None:
        place = next((i for i, item in enumerate(items) if item["id"] == after), None)
        if place is None:
            raise bad_field("after", f"got {shown(after)}, expected the id of an item of this list")
        start = place + 1
    shown_items = list(items[start : start + limit])
    return {
        "object": "list",
        "data": shown_items,
        "first_id": shown_items[0]["id"] if shown_items else None,
        "last_id": shown_items[-1]["id"] if shown_items else None,
        "has_more": start + limit < len(items),
    }
