"""From outputs to an answer: one JSON object, or a stream of events, in the shape of the endpoint that was asked."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agentcache.cache.tokens import Bookmark
from agentcache.engine.bounds import Bounds, check_request
from agentcache.errors import RequestError
from agentcache.request import Output, Request, SamplingParams, Standing
from agentcache.server.context import Context
from agentcache.server.errors import CLIENT_GONE, ApiError, ClientGoneError, internal_error
from agentcache.server.generation import Delta, Generation
from agentcache.server.usage import Costs, Notes

if TYPE_CHECKING:
    from agentcache.chat.tokenizer import Tokenizer
    from agentcache.engine.streams import OutputStream
    from agentcache.server.bodies import GenerationBody

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prompt:
    token_ids: Sequence[int]
    text: str | None = None
    """As the client sent it, where it sent text."""


class Ending(Protocol):
    """What is left to do when all that was asked for has been generated, and before the client is told so."""

    def started(self, generation: Generation) -> None:
        """The engine has the request."""

    async def finish(self, choices: Sequence[Delta]) -> Notes:
        """Every choice has finished."""

    def drop(self) -> None:
        """The answer is over, finished or not.  Idempotent."""


@dataclass(frozen=True)
class Job:
    """One HTTP request, ready for the engine."""

    body: GenerationBody
    prompts: Sequence[Prompt]
    params: SamplingParams
    root: bytes
    ending: Ending
    bookmark: Bookmark | None = None
    """Of the session that it is a turn of."""
    id: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def prompt_token_ids(self) -> list[int] | list[list[int]]:
        """A list of ids; for several prompts a list of such lists."""
        ids = [list(prompt.token_ids) for prompt in self.prompts]
        return ids[0] if len(ids) == 1 else ids


class Shape(ABC):
    """How one endpoint writes a choice.  Made for one request: it may keep state between the chunks of a choice."""

    prompt_field: str
    """The field of the body that the prompt came in."""
    prefix: str
    whole_object: str
    chunk_object: str

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        self.job = job
        self.tokenizer = tokenizer

    @abstractmethod
    def opening(self, delta: Delta) -> dict[str, Any] | None:
        """The first chunk of a choice, before any text."""

    @abstractmethod
    def piece(self, delta: Delta) -> dict[str, Any]:
        """A chunk with text."""

    @abstractmethod
    def closing(self, delta: Delta) -> dict[str, Any]:
        """The chunk with the finish reason."""

    @abstractmethod
    def whole(self, delta: Delta) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""


def finish_fields(delta: Delta) -> dict[str, Any]:
    reason = delta.finish_reason.value if delta.finish_reason else None
    return {"finish_reason": reason, "stop_reason": delta.stop_reason}


class Writer:
    """Writes the answer to one job."""

    def __init__(self, job: Job, shape: Shape, context: Context) -> None:
        self._job = job
        self._shape = shape
        self._model = context.engine.info.model_name
        self._page_size = context.engine.info.page_size
        self._opened: set[int] = set()
        self._generated: dict[int, Delta] = {}
        self._finished: dict[int, Delta] = {}
        self._notes = Notes()
        self._first_chunk = True

    async def gather(self, deltas: Sequence[Delta]) -> None:
        """Note what was generated; with the last choice that finishes, the job ends."""
        for delta in deltas:
            self._generated.setdefault(delta.choice, Delta(delta.choice)).merge(delta)
        choices = [self._generated[choice] for choice in sorted(self._generated)]
        finished = sum(choice.finish_reason is not None for choice in choices)
        if finished == len(self._job.prompts) * self._job.params.n:
            self._notes = await self._job.ending.finish(choices)

    def whole(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """The answer in one object; ``deltas`` are finished choices in order."""
        costs = self._costs(deltas)
        answer = self._envelope(self._shape.whole_object, [self._choice(d, self._shape.whole(d)) for d in deltas])
        if self._job.body.return_token_ids:
            answer["prompt_token_ids"] = self._job.prompt_token_ids()
        return answer | {"usage": costs.usage(), "agentcache": costs.cache_report(self._notes)}

    def chunks(self, deltas: Sequence[Delta]) -> Iterator[dict[str, Any]]:
        """Chunks for ``deltas``, in order; after the last finish also the usage, where it was asked for."""
        job = self._job
        for delta in deltas:
            if delta.choice not in self._opened:
                self._opened.add(delta.choice)
                if (opening := self._shape.opening(delta)) is not None:
                    yield self._chunk([self._choice(Delta(delta.choice), opening)])
            if delta.pieces or (delta.token_ids and (job.body.return_token_ids or job.params.logprobs is not None)):
                yield self._chunk([self._choice(delta, self._shape.piece(delta))])
            if delta.finish_reason is not None:
                self._finished[delta.choice] = delta
                done = len(self._finished) == len(job.prompts) * job.params.n
                closing = self._chunk([self._choice(Delta(delta.choice), self._shape.closing(delta))])
                yield closing | (self._cache_report() if done and not job.body.include_usage else {})
                if done and job.body.include_usage:
                    usage = self._costs(self._in_order()).usage()
                    yield self._chunk([]) | {"usage": usage} | self._cache_report()

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = self._envelope(self._shape.chunk_object, choices)
        if self._job.body.include_usage:
            chunk["usage"] = None
        if self._first_chunk and self._job.body.return_token_ids:
            chunk["prompt_token_ids"] = self._job.prompt_token_ids()
        self._first_chunk = False
        return chunk

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._shape.prefix + self._job.id,
            "object": kind,
            "created": self._job.created,
            "model": self._model,
            "choices": choices,
        }

    def _choice(self, delta: Delta, content: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": delta.choice} | content
        return choice | {"token_ids": delta.token_ids} if self._job.body.return_token_ids else choice

    def _in_order(self) -> list[Delta]:
        return [self._finished[choice] for choice in sorted(self._finished)]

    def _cache_report(self) -> dict[str, Any]:
        return {"agentcache": self._costs(self._in_order()).cache_report(self._notes)}

    def _costs(self, deltas: Sequence[Delta]) -> Costs:
        reports = [delta.report for delta in deltas if delta.report is not None]
        return Costs(reports, self._job.params.n, self._page_size)


def submit(context: Context, job: Job) -> Generation:
    """Hand every prompt of ``job`` to the engine, or none of them.

    Raises:
        ApiError: 503 while shutting down.
        RequestError: a prompt that can never be served.
        QueueFullError: too many wait.
    """
    context.check_open()
    if len(job.prompts) > 1:
        _check_all(context, job)
    streams: list[OutputStream] = []
    try:
        for i, prompt in enumerate(job.prompts):
            stream = context.engine.submit(
                prompt.token_ids,
                job.params,
                root=job.root,
                request_id=f"{job.id}-{i}",
                standing=Standing(job.body.priority or 0, _program(job.body)),
                bookmark=job.bookmark,
            )
            streams.append(stream)
    except BaseException:
        for stream in streams:
            stream.abort()
        raise
    return Generation(streams, job.params.n, context.lifecycle)


def _program(body: GenerationBody) -> str | None:
    """What the request is a turn of, so that its next turn does not queue behind newcomers."""
    if body.session is not None:
        return f"session {body.session}"
    return None if body.prompt_cache_key is None else f"key {body.prompt_cache_key}"


def _check_all(context: Context, job: Job) -> None:
    """Find the prompt that can never be served before any other of its list has begun."""
    info = context.engine.info
    bounds = Bounds(info.max_model_len, info.capacity, info.vocab_size, info.max_running)
    for i, prompt in enumerate(job.prompts):
        try:
            check_request(Request(job.id, prompt.token_ids, job.params, job.root, sink=_drop), bounds)
        except RequestError as error:
            raise RequestError(f"prompt[{i}]: {error}", error.param, error.code) from error


def _drop(_: Output) -> None:
    """A request that is only checked has no outputs."""


async def answer(context: Context, request: HttpRequest, job: Job, shape: Shape) -> Response:
    """Run ``job`` and answer it, streamed or whole.

    Raises:
        ApiError, AgentCacheError: nothing was answered yet; they become a status.
    """
    try:
        generation = submit(context, job)
    except RequestError as error:
        field = shape.prompt_field if error.param == "prompt" else error.param
        raise RequestError(str(error), field, error.code) from error
    job.ending.started(generation)
    writer = Writer(job, shape, context)
    if job.body.streaming:
        return EventStream(generation, writer, job.ending)
    try:
        async with generation.watched(request.receive):
            deltas = await generation.finish()
            await writer.gather(deltas)
    except ClientGoneError:
        return Response(status_code=CLIENT_GONE)
    finally:
        job.ending.drop()
    return Response(encode(writer.whole(deltas)), media_type="application/json")


class EventStream(Response):
    """Server-sent events of one generation.

    The status is sent with the first output, so that whatever fails before it is still a status; what fails later is an
    error event.  A client that reads slowly delays only its own chunks: outputs merge while a send waits.
    """

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, writer: Writer, ending: Ending) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._generation = generation
        self._writer = writer
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._generation.watched(receive):
                deltas = await self._generation.take()
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await self._send_all(deltas, send)
                await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})
        except ClientGoneError:
            return
        finally:
            self._ending.drop()

    async def _send_all(self, deltas: list[Delta], send: Send) -> None:
        try:
            while deltas:
                await self._writer.gather(deltas)
                events = b"".join(event(chunk) for chunk in self._writer.chunks(deltas))
                if events:
                    await send({"type": "http.response.body", "body": events, "more_body": True})
                deltas = await self._generation.take()
        except ApiError as error:
            await send({"type": "http.response.body", "body": event(error.envelope()), "more_body": True})
        except ClientGoneError:
            raise
        except Exception:
            logger.exception("a stream failed")
            await send({"type": "http.response.body", "body": event(internal_error().envelope()), "more_body": True})


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def event(value: Any) -> bytes:
    """One event.  Many clients split lines wherever Unicode sees an end of line, so those ends are escaped."""
    data = encode(value)
    for end in ("\x85", "\u2028", "\u2029"):
        data = data.replace(end.encode(), f"\\u{ord(end):04x}".encode())
    return b"data: " + data + b"\n\n"
