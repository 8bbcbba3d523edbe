"""OpenTelemetry traces: a span for each request that generates, by the GenAI semantic conventions; no text, ever.

Needs the packages of the extra ``otel``, so nothing imports this module unless traces are asked for.

::

    [ chat MODEL ................................................... ]   parent: the client's traceparent
      [ queue ........ ][ prefill ............ ][ decode ........... ]   only the part that is known
      started           admitted                first token       end

Spans are made when their request is over and go to a queue of bounded length; a thread of the SDK sends them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agentcache import __version__
from agentcache.server.errors import CLIENT_GONE

if TYPE_CHECKING:
    from agentcache.request import SamplingParams
    from agentcache.server.watch.exchanges import Exchange
    from agentcache.server.watch.journal import RequestRecord

logger = logging.getLogger(__name__)

PROVIDER = "agentcache"
STOP_S = 2.0
"""How long the last spans may take to be sent when the server stops."""
_LIBRARY = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class Traces:
    """A reader of exchanges that sends a span for each one that generated.

    Args:
        endpoint: base URL of an OTLP/HTTP collector, or ``default``: the SDK reads the ``OTEL_EXPORTER_OTLP_*`` variables.
            (The SDK reads all of its other ``OTEL_*`` variables as well: name of the service, sampler, headers, batches.)
    """

    def __init__(self, endpoint: str) -> None:
        exporter = OTLPSpanExporter(endpoint=None if endpoint == "default" else traces_url(endpoint))
        self._processor = BatchSpanProcessor(_Quiet(exporter))
        # Without an atexit hook, which would wait for a collector that does not answer.
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("agentcache", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def note(self, exchange: Exchange) -> None:
        """Queue the span of an exchange that is over; one without a record generates nothing and has none."""
        record = exchange.record
        if record is None:
            return
        operation = "text_completion" if record.route == "/v1/completions" else "chat"
        span = self._tracer.start_span(
            f"{operation} {record.model}",
            context=self._propagator.extract(exchange.parent),
            kind=SpanKind.SERVER,
            attributes={
                "gen_ai.operation.name": operation,
                **_of_http(exchange),
                **_of_record(record),
                **_of_params(record.params),
            },
            start_time=_ns(exchange.started),
        )
        error = _error_type(exchange, record)
        if error is not None:
            span.set_attribute("error.type", error)
            if exchange.status >= 500 or (exchange.status < 400 and record.error is not None):
                span.set_status(StatusCode.ERROR, error)  # what a client did wrong is no failure of a server
        self._note_phases(span, exchange, record)
        span.end(_ns(exchange.started + exchange.total_s))

    def _note_phases(self, span: Span, exchange: Exchange, record: RequestRecord) -> None:
        context = set_span_in_context(span)
        for name, start, end in phases(record, exchange.total_s):
            phase = self._tracer.start_span(name, context=context, start_time=_ns(exchange.started + start))
            phase.end(_ns(exchange.started + end))

    async def close(self) -> None:
        """Send what is queued, for at most ``STOP_S`` seconds; a collector that does not answer is left behind."""
        closing = threading.Thread(target=self._provider.shutdown, name="agentcache-traces-end", daemon=True)
        closing.start()
        until = time.monotonic() + STOP_S
        # Polled, not joined on a worker thread: the event loop would wait for that one at its own end.
        while closing.is_alive() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if closing.is_alive():
            logger.warning("the last traces were not taken within %g s; leaving them behind", STOP_S)


def phases(record: RequestRecord, total_s: float) -> Iterator[tuple[str, float, float]]:
    """Name, start and end of the parts of a request, in seconds from its start, as far as they are known."""
    first = record.first_token_s
    if record.queue_s is not None:
        yield "queue", 0.0, record.queue_s
        if first is not None:
            yield "prefill", record.queue_s, max(first, record.queue_s)
    if first is not None:
        yield "decode", first, max(first, total_s)


def traces_url(endpoint: str) -> str:
    """Where spans are posted to: a base URL gets the path that OTLP gives to traces, a full one stays."""
    parts = urlsplit(endpoint)
    return endpoint if parts.path.strip("/") else urlunsplit(parts._replace(path="/v1/traces"))


def _resource() -> Resource:
    found = Resource.create({SERVICE_VERSION: __version__})
    named = not str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
    return found if named else found.merge(Resource({SERVICE_NAME: "agentcache"}))


def _of_http(exchange: Exchange) -> dict[str, Any]:
    found: dict[str, Any] = {
        "http.request.method": exchange.method,
        "http.route": exchange.route,
        "http.response.status_code": exchange.status,
        "agentcache.request_id": exchange.request_id,
    }
    if exchange.server is not None:
        found["server.address"] = exchange.server[0]
        if exchange.server[1] is not None:
            found["server.port"] = exchange.server[1]
    return found


def _of_record(record: RequestRecord) -> dict[str, Any]:
    costs = {
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "agentcache.cached_tokens": record.cached_tokens,
        "agentcache.computed_tokens": record.computed_tokens,
    }
    found = {
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": record.model,
        "gen_ai.request.stream": record.streamed,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": record.answer_id or None,
        "gen_ai.response.finish_reasons": record.finish_reasons or None,
        "gen_ai.response.time_to_first_chunk": record.first_token_s,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.conversation.id": record.session,
        **(costs if record.measured else {}),
        "agentcache.miss.code": None if record.miss is None else record.miss["code"],
        "agentcache.miss.at_token": None if record.miss is None else record.miss["at_token"],
        "agentcache.session": record.session,
    }
    return {name: value for name, value in found.items() if value is not None}


def _of_params(params: SamplingParams | None) -> dict[str, Any]:
    if params is None:
        return {}
    found = {
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": params.top_k or None,
        "gen_ai.request.seed": params.seed,
        "gen_ai.request.frequency_penalty": params.frequency_penalty or None,
        "gen_ai.request.presence_penalty": params.presence_penalty or None,
        "gen_ai.request.stop_sequences": params.stop or None,
        "gen_ai.request.choice.count": params.n if params.n > 1 else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _error_type(exchange: Exchange, record: RequestRecord) -> str | None:
    if exchange.status == CLIENT_GONE:
        return "client_gone"
    return record.error or (str(exchange.status) if exchange.status >= 400 else None)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


class _Quiet(SpanExporter):
    """Says once that a collector does not take spans, and why, and once that it does again; the library would say it at
    every attempt."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False
        self._reason = ""
        logging.getLogger(_LIBRARY).addFilter(self._hear)

    def _hear(self, record: logging.LogRecord) -> bool:
        self._reason = record.getMessage()
        return False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            logger.warning("the collector does not take traces; they are dropped until it does. %s", self._reason)
        elif self._failing and not failed:
            logger.warning("the collector takes traces again")
        self._failing = failed
        return result

    def shutdown(self) -> None:
        logging.getLogger(_LIBRARY).removeFilter(self._hear)
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)
