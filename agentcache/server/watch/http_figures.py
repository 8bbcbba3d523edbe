"""What ``/metrics`` says of HTTP itself: requests by route and status, how long they took, who hung up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agentcache.engine.stats import SECONDS, Histogram
from agentcache.server.watch.exchanges import Exchange, Exchanges


class HttpFigures(Collector):
    """Counts exchanges as they end.  Label values are bounded: patterns of routes, usual methods, statuses that were sent."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._hang_ups: Counter[str] = Counter()
        self._seconds: dict[str, Histogram] = {}
        exchanges.subscribe(self._count)

    def _count(self, exchange: Exchange) -> None:
        self._requests[exchange.route, exchange.method, str(exchange.status)] += 1
        self._hang_ups[exchange.route] += exchange.hung_up
        if exchange.route not in self._seconds:
            self._seconds[exchange.route] = Histogram(SECONDS)
        self._seconds[exchange.route].observe(exchange.total_s)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "agentcache_http_requests",
            "HTTP requests that ended; status 499: the client hung up before the end",
            labels=["route", "method", "status"],
        )
        for labels, count in sorted(self._requests.items()):
            requests.add_metric(labels, count)
        yield requests
        seconds = HistogramMetricFamily(
            "agentcache_http_request_seconds",
            "From the head of a request to the last byte of its answer",
            labels=["route"],
        )
        for route, histogram in sorted(self._seconds.items()):
            seconds.add_metric([route], list(histogram.cumulative()), histogram.sum)
        yield seconds
        hang_ups = CounterMetricFamily(
            "agentcache_http_disconnects", "Clients that hung up before the end of their answer", labels=["route"]
        )
        for route, count in sorted(self._hang_ups.items()):
            hang_ups.add_metric([route], count)
        yield hang_ups
        streams = sum(exchange.streamed for exchange in self._exchanges.open)
        yield GaugeMetricFamily(
            "agentcache_http_requests_in_flight", "HTTP requests that are being answered", len(self._exchanges.open)
        )
        yield GaugeMetricFamily(
            "agentcache_http_streams_in_flight", "Of these, streams of events that have begun", streams
        )
