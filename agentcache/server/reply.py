"""From a job to its answer: whole, or as a stream of events; and a record of what became of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agentcache.errors import AgentCacheError, RequestError
from agentcache.request import SequenceReport
from agentcache.server.context import Context
from agentcache.server.errors import CLIENT_GONE, ApiError, ClientGoneError, from_runtime, internal_error
from agentcache.server.generation import Delta, Generation
from agentcache.server.job import Job, submit
from agentcache.server.watch.exchanges import Exchange
from agentcache.server.watch.journal import RequestRecord
from agentcache.server.watch.trace_file import Answered, TraceFile, sent_body, told_fields, with_untaken
from agentcache.server.writer import Writer, encode

logger = logging.getLogger(__name__)

STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Of streams of events, which nobody on their way may hold back."""


async def answer(context: Context, request: HttpRequest, job: Job, writer: Writer) -> Response:
    """Run ``job`` and answer it, streamed or whole.

    Raises:
        ApiError, AgentCacheError: nothing was answered yet; they become a status.
    """
    recorder = Recorder(context, request, job, writer)
    try:
        generation = submit(context, job)
    except RequestError as error:
        field = writer.prompt_field if error.param == "prompt" else error.param
        named = RequestError(str(error), field, error.code)
        recorder.refused(named)
        raise named from error
    except (ApiError, AgentCacheError) as error:
        recorder.refused(error)
        raise
    recorder.submitted(generation)
    job.ending.started(generation)
    if job.body.streaming:
        return EventStream(generation, writer, recorder)
    try:
        async with generation.watched(request.receive):
            deltas = await generation.finish()
            await writer.gather(deltas)
        whole = writer.whole()
    except ClientGoneError:
        recorder.over(CLIENT_GONE)
        return Response(status_code=CLIENT_GONE)
    except (ApiError, AgentCacheError) as error:
        recorder.refused(error)
        raise
    finally:
        job.ending.drop()
    recorder.over(200)
    return Response(encode(whole), media_type="application/json")


class Recorder:
    """Writes one record in the journal; the first call that ends it counts."""

    def __init__(self, context: Context, request: HttpRequest, job: Job, writer: Writer) -> None:
        self._context = context
        self._job = job
        self._writer = writer
        self._scope = request.scope
        self._route = request.url.path
        self._exchange: Exchange = request.state.exchange
        self._submitted = time.time()
        self._generation: Generation | None = None
        self._over = False

    def submitted(self, generation: Generation) -> None:
        self._generation = generation

    def refused(self, error: ApiError | AgentCacheError) -> None:
        told = error if isinstance(error, ApiError) else from_runtime(error)
        self.over(told.status, told.code)

    def over(self, status: int, error: str | None = None) -> None:
        if self._over:
            return
        self._over = True
        job, costs = self._job, self._writer.costs()
        usage, notes = costs.usage(), self._writer.notes
        reasons = [choice.finish_reason.value for choice in self._writer.choices if choice.finish_reason is not None]
        first = None if self._generation is None else self._generation.first_token
        started = self._exchange.started
        self._context.journal.note(
            RequestRecord(
                request_id=self._exchange.request_id,
                answer_id=self._writer.answer_id,
                route=self._route,
                model=self._writer.model,
                owner=job.owner,
                session=notes.session or job.body.session,
                streamed=job.body.streaming,
                started=started,
                first_token_s=None if first is None else max(0.0, first - started),
                total_s=max(0.0, time.time() - started),
                status=status,
                error=error,
                finish_reasons=tuple(reasons),
                prompt_tokens=usage["prompt_tokens"] or sum(len(prompt.token_ids) for prompt in job.prompts),
                cached_tokens=costs.cached_tokens,
                computed_tokens=sum(report.computed_tokens for report in costs.reports),
                completion_tokens=usage["completion_tokens"],
                miss=notes.miss,
                findings=tuple(notes.findings),
                foreign_replies=notes.foreign_replies,
                params=job.params,
                queue_s=self._queued(costs.reports, started),
                exchange=self._exchange,
                measured=len(reasons) == job.num_choices,
            )
        )
        if self._context.trace is not None and self._generation is not None:
            self._context.trace.note(self._answered(self._context.trace, self._generation, status, error))

    def _answered(self, trace: TraceFile, generation: Generation, status: int, error: str | None) -> Answered:
        job, writer, body = self._job, self._writer, sent_body(self._scope)
        return Answered(
            request_id=self._exchange.request_id,
            answer_id=writer.answer_id,
            route=self._route,
            session=writer.notes.session or job.body.session,
            started=self._exchange.started,
            status=status,
            error=error,
            model=writer.model,
            page_size=self._context.engine.info.page_size,
            tenant=trace.tenant(job.owner),
            salt=job.salt,
            body=body,
            told=told_fields(self._route, job.body, body),
            prompts=[prompt.token_ids for prompt in job.prompts],
            asked=job.asked,
            n=job.params.n,
            choices=with_untaken(writer.choices, generation.untaken),
            notes=writer.notes,
        )

    def _queued(self, reports: Sequence[SequenceReport], started: float) -> float | None:
        """Seconds from the request's head until its first prompt was admitted."""
        waited = reports[0].queue_s if reports else None
        return None if waited is None else max(0.0, self._submitted - started) + waited


class EventStream(Response):
    """Server-sent events of one generation.

    The status is sent with the first output, so that whatever fails before it is still a status; what fails later is an
    error event.  Where the first output takes long, the stream is opened without it and kept alive.  A client that reads
    slowly delays only its own events: outputs merge while a send waits.
    """

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, writer: Writer, recorder: Recorder) -> None:
        super().__init__(headers=STREAM_HEADERS)
        del self.headers["content-length"]
        self._generation = generation
        self._writer = writer
        self._recorder = recorder
        self._patience = writer.context.settings.keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._generation.watched(receive):
                deltas = await self._generation.take(self._patience)
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                if opening := self._writer.opening():
                    await _send(send, opening)
                await self._send_all(deltas, send)
                await send({"type": "http.response.body", "body": self._writer.ending(), "more_body": False})
        except ClientGoneError:
            self._recorder.over(CLIENT_GONE)
        except (ApiError, AgentCacheError) as error:
            self._recorder.refused(error)
            raise
        finally:
            self._writer.job.ending.drop()
            self._recorder.over(CLIENT_GONE)

    async def _send_all(self, deltas: list[Delta] | None, send: Send) -> None:
        writer = self._writer
        try:
            while deltas is None or deltas:
                if deltas is None:
                    await _send(send, writer.keep_alive)
                else:
                    await writer.gather(deltas)
                    if events := b"".join(writer.events(deltas)):
                        await _send(send, events)
                deltas = await self._generation.take(self._patience)
            self._recorder.over(200)
        except ApiError as error:
            await self._fail(error, send)
        except ClientGoneError:
            raise
        except Exception:
            logger.exception("a stream failed")
            await self._fail(internal_error(), send)

    async def _fail(self, error: ApiError, send: Send) -> None:
        self._recorder.over(self.status_code, error.code)
        await _send(send, self._writer.failed(error))


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
