"""``/metrics``: the engine's figures in Prometheus' text format, with vLLM's names where the meaning is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from agentcache.cache.fetching import FarStats
from agentcache.cache.tiers import TIERS
from agentcache.engine.stats import EngineStats, Histogram
from agentcache.server.context import Context
from agentcache.server.watch.http_figures import HttpFigures

_HISTOGRAMS = {
    "time_to_first_token_seconds": "From arrival to the first token",
    "inter_token_latency_seconds": "Between two tokens of a sequence",
    "queue_time_seconds": "From arrival to admission",
    "step_time_seconds": "One step of the engine",
    "request_prompt_tokens": "Prompt tokens of a request",
    "request_generation_tokens": "Generated tokens of a sequence",
}
_MISSES = (
    "cold",
    "below_page",
    "diverged",
    "evicted",
    "expired",
    "salt",
    "model",
    "in_flight",
    "template",
    "disabled",
)
_EVICTIONS = ("room", "quota", "flush", "superseded")
_FINISHED = ("stop", "length", "abort", "error")
"""Counters begin at zero, not when they first count: what comes first would otherwise not show as an increase."""
_VLLM_HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
)
_VLLM_RENAMED = {"queue_time_seconds": "request_queue_time_seconds"}


class EngineCollector(Collector):
    """Turns one snapshot of the engine into metrics at every scrape; keeps nothing itself."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        stats = self._context.engine.stats()
        yield GaugeMetricFamily("agentcache_sessions", "Sessions that are kept", value=len(self._context.desk.store))
        yield from self._own(stats)
        if stats.far is not None:
            yield from _store_figures(stats.far)
        yield from self._twins(stats)

    def _own(self, stats: EngineStats) -> Iterator[Metric]:
        yield _gauges(
            "agentcache_pages", "Pages by state; they add up to agentcache_pages_total", "state", _pages(stats)
        )
        yield GaugeMetricFamily("agentcache_pages_total", "Pages in the pool", value=stats.total_pages)
        requests = {"running": stats.running, "waiting": stats.waiting}
        yield _gauges("agentcache_requests", "Requests by state", "state", requests)
        counters = stats.counters
        yield _counter(
            "agentcache_prompt_tokens", "Prompt tokens of admitted requests", counters.get("prompt_tokens", 0)
        )
        below = {tier: counters.get(f"cached_tokens_{tier}", 0) for tier in TIERS}
        tiers = {"device": max(0, counters.get("cached_tokens", 0) - sum(below.values())), **below}
        yield _counters("agentcache_cached_tokens", "Prompt tokens that were found cached", "tier", tiers)
        yield _counter(
            "agentcache_saved_prefill_seconds",
            "Estimate: cached prompt tokens of admitted requests, times what a prompt token cost to compute lately",
            counters.get("saved_prefill_seconds", 0),
        )
        yield _counter("agentcache_computed_tokens", "Positions run", counters.get("computed_tokens", 0))
        yield _counter("agentcache_generation_tokens", "Generated tokens", counters.get("generation_tokens", 0))
        meaning = "Answers whose prompt was not cached further, by the one code that the answer gave as its reason"
        yield _counters("agentcache_miss", meaning, "code", _from_zero(_MISSES, self._context.misses))
        evictions = _from_zero(_EVICTIONS, stats.evictions)
        yield _counters("agentcache_evictions", "Pages that left the cache", "reason", evictions)
        yield _counter("agentcache_preemptions", "Sequences put back for want of pages", counters.get("preemptions", 0))
        yield _counter("agentcache_swapped_pages", "Pages of such copied to the host", counters.get("swapped_pages", 0))
        yield _counter("agentcache_steps", "Steps of the engine", counters.get("steps", 0))
        yield _counter("agentcache_failed_steps", "Steps that failed", counters.get("failed_steps", 0))
        yield _counters("agentcache_finished", "Finished sequences", "reason", _from_zero(_FINISHED, stats.finished))
        for name, meaning in _HISTOGRAMS.items():
            yield _histogram(f"agentcache_{name}", meaning, stats.histograms[name], {})
        if vault := self._context.desk.keeper.counts:
            yield _counters("agentcache_session_vault", "Sessions in the store that servers share", "event", vault)

    def _twins(self, stats: EngineStats) -> Iterator[Metric]:
        info = self._context.engine.info
        label = {"model_name": info.model_name}
        usable = max(1, stats.total_pages)
        used = (stats.live_pages + stats.pinned_pages) / usable
        yield _gauge("vllm:num_requests_running", "Requests that run", stats.running, label)
        yield _gauge("vllm:num_requests_waiting", "Requests that wait", stats.waiting, label)
        yield _gauge("vllm:kv_cache_usage_perc", "Share of pages that requests hold, 0 to 1", used, label)
        config = InfoMetricFamily("vllm:cache_config", "Size of the cache", labels=["model_name"])
        config.add_metric(
            [info.model_name],
            {
                "block_size": str(info.page_size),
                "num_gpu_blocks": str(info.num_pages),
                "enable_prefix_caching": str(self._context.settings.prefix_cache),
            },
        )
        yield config
        counters = stats.counters
        yield _counter("vllm:prefix_cache_queries", "Prompt tokens looked up", counters.get("prompt_tokens", 0), label)
        yield _counter("vllm:prefix_cache_hits", "Prompt tokens found", counters.get("cached_tokens", 0), label)
        yield _counter("vllm:prompt_tokens", "Prompt tokens", counters.get("prompt_tokens", 0), label)
        yield _counter("vllm:generation_tokens", "Generated tokens", counters.get("generation_tokens", 0), label)
        yield _counter("vllm:num_preemptions", "Preemptions", counters.get("preemptions", 0), label)
        finished = CounterMetricFamily(
            "vllm:request_success", "Sequences that ended well", labels=["model_name", "finished_reason"]
        )
        for reason in _FINISHED[:3]:
            finished.add_metric([info.model_name, reason], stats.finished.get(reason, 0))
        yield finished
        for name in _VLLM_HISTOGRAMS:
            yield _histogram(f"vllm:{name}", _HISTOGRAMS[name], stats.histograms[name], label)
        for name, renamed in _VLLM_RENAMED.items():
            yield _histogram(f"vllm:{renamed}", _HISTOGRAMS[name], stats.histograms[name], label)


def _store_figures(far: FarStats) -> Iterator[Metric]:
    """What this server asked of the shared store and gave to it, and what it thinks of the way there."""
    meaning = "Attempts to fetch pages for a request, by how they ended"
    yield _counters("agentcache_store_fetches", meaning, "outcome", far.fetches)
    meaning = "Pages by what became of them on their way from or to the store"
    yield _counters("agentcache_store_pages", meaning, "what", far.pages)
    yield _counters("agentcache_store_bytes", "The same in bytes", "what", far.bytes)
    meaning = "Values that were not the page that was asked for, by reason"
    yield _counters("agentcache_store_rejected_pages", meaning, "reason", far.rejected)
    yield GaugeMetricFamily(
        "agentcache_store_latency_seconds", "Estimate: seconds to answer at all, of late", value=far.latency_s or 0
    )
    yield GaugeMetricFamily(
        "agentcache_store_bandwidth_bytes_per_second",
        "Estimate: bytes a second beyond that, of late; 0 before the first transfer",
        value=far.bandwidth or 0,
    )
    yield GaugeMetricFamily(
        "agentcache_store_gate_open",
        "Whether fetching costs less than computing, for any prompt",
        value=far.gate_open,
    )
    yield GaugeMetricFamily("agentcache_store_up", "Whether the store answers", value=far.up)


def _pages(stats: EngineStats) -> dict[str, int]:
    return {
        "free": stats.free_pages,
        "live": stats.live_pages,
        "cached": stats.cached_pages,
        "pinned": stats.pinned_pages,
    }


def _from_zero(names: Sequence[str], counts: Mapping[str, int]) -> dict[str, int]:
    return {**dict.fromkeys(names, 0), **counts}


def _gauge(name: str, meaning: str, value: float, labels: Mapping[str, str]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _gauges(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, meaning: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    labels = labels or {}
    family = CounterMetricFamily(name, meaning, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counters(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _histogram(name: str, meaning: str, histogram: Histogram, labels: Mapping[str, str]) -> Metric:
    family = HistogramMetricFamily(name, meaning, labels=list(labels))
    family.add_metric(list(labels.values()), list(histogram.cumulative()), histogram.sum)
    return family


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """How to write metrics for a client, and the content type.

    Unless a client asks for names as they are, ``prometheus_client`` writes ``vllm_x`` for ``vllm:x`` in OpenMetrics, in the
    samples and not in their types.  A colon is allowed in names of both formats, so nothing needs to be escaped.
    """
    encode, content_type = choose_encoder(accept)
    if content_type.startswith("application/openmetrics-text"):
        encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0; escaping=allow-utf-8")
        content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    return encode, content_type


def metrics_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["server"])
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(context))
    registry.register(HttpFigures(context.exchanges))
    # Under the names that every Prometheus client has; the process's are read from /proc, so they are there on Linux only.
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)

    @router.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics(request: Request) -> Response:
        """In OpenMetrics' text format for clients that accept it, else in Prometheus'."""
        encode, content_type = _encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return router
