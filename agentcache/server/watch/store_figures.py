"""Figures of the shared store, where there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from agentcache.cache.fetching import FarStats


def store_figures(stats: FarStats) -> Iterator[Metric]:
    """What this server asked of the store and gave to it, and what it thinks of the way there."""
    yield _counters("fetches", "Attempts to fetch pages for a request, by how they ended", "outcome", stats.fetches)
    yield _counters("pages", "Pages by what became of them on their way from or to the store", "what", stats.pages)
    yield _counters("bytes", "The same in bytes", "what", stats.bytes)
    yield _counters(
        "rejected_pages", "Values that were not the page that was asked for, by reason", "reason", stats.rejected
    )
    yield GaugeMetricFamily(
        "agentcache_store_latency_seconds", "Estimate: seconds to answer at all, of late", value=stats.latency_s or 0
    )
    yield GaugeMetricFamily(
        "agentcache_store_bandwidth_bytes_per_second",
        "Estimate: bytes a second beyond that, of late; 0 before the first transfer",
        value=stats.bandwidth or 0,
    )
    yield GaugeMetricFamily(
        "agentcache_store_gate_open",
        "Whether fetching costs less than computing, for any prompt",
        value=stats.gate_open,
    )
    yield GaugeMetricFamily("agentcache_store_up", "Whether the store answers", value=stats.up)


def _counters(name: str, meaning: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"agentcache_store_{name}", meaning, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
