"""A store that servers share as the last tier below the device.

::

    engine's thread     put ─► line of the writer        fetch ─► jobs            in, get: what has arrived
                                   │ 1 thread                │ 4 threads             ▲
    store               batch_exists, batch_set          batch_exists, batch_get ─► staging (host memory)

Nothing here makes the engine's thread wait for the store.  The writer's thread also pings a store that does not answer, or was
not asked for some time, and drops what nobody came for.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from agentcache.cache.fetching import FarStats, Fetch
from agentcache.cache.residency import Listener, PageArrived
from agentcache.cache.tiers import PageName, StoredPage, TierStats
from agentcache.store.base import PageStore
from agentcache.store.codec import StoreKeys
from agentcache.store.fetch import Fetcher
from agentcache.store.fetch_staging import Staging
from agentcache.store.gate import FetchGate
from agentcache.store.tier_known import BELIEVED_S, KnownKeys
from agentcache.store.tier_link import StoreLink
from agentcache.store.tier_writer import StoreWriter

logger = logging.getLogger(__name__)

_READERS = 4
_TEND_S = 0.25
"""How often the writer's thread looks after other things while there is nothing to write."""
_SILENT_S = 10.0
"""A store that nobody asked for so long is pinged, so that it is known whether it answers."""
_PING_S = 2.0


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """What the tier may use.

    Attributes:
        page_bytes, page_tokens: of one page.
        timeout_s: what a request waits for the store at most.
        staging_bytes: host memory for pages that were fetched and are not used yet.
        queue_bytes: host memory for pages that wait to be written.
    """

    page_bytes: int
    page_tokens: int
    timeout_s: float = 2.0
    staging_bytes: int = 2**30
    queue_bytes: int = 256 * 2**20

    def in_memory_of(self, memory: int) -> StoreLimits:
        """These, on a machine of ``memory`` bytes: an eighth of it at most, but room for some pages anyhow."""
        most, least = memory // 16, 8 * self.page_bytes
        return replace(
            self,
            staging_bytes=max(min(self.staging_bytes, most), least),
            queue_bytes=max(min(self.queue_bytes, most), least),
        )


class StoreTier:
    """Implements ``cache.fetching.FarTier`` and ``engine.neighbours.Neighbour``.

    Args:
        store: is closed with the tier.
        names: how pages are called there.
        limits: what the tier may use.
        clock: seconds.
        threads: ``False`` leaves all work to ``work``, for tests.
    """

    name = "store"
    durable = True

    def __init__(
        self,
        store: PageStore,
        names: StoreKeys,
        limits: StoreLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        threads: bool = True,
    ) -> None:
        self.listener: Listener | None = None  # what a store has is told to nobody: it is everybody's
        self._store = store
        self._limits = limits
        self._clock = clock
        self._token_s = 0.0
        self._gate = FetchGate(limits.page_bytes, limits.page_tokens, clock)
        self._link = StoreLink(store, self._gate, clock)
        self._known = KnownKeys(clock)
        self._link.circuit.recovered = self._known.clear  # it may come back empty
        self._staging = Staging(limits.staging_bytes, clock)
        self._fetcher = Fetcher(self._link, names, self._staging, self._known, timeout_s=limits.timeout_s)
        self._writer = StoreWriter(self._link, names, self._known, limits.queue_bytes)
        self._pinged_at = -math.inf
        self._closing = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        if threads:
            self._fetcher.start(_READERS)
            self._thread = threading.Thread(target=self._write_and_tend, name="agentcache-store-write", daemon=True)
            self._thread.start()

    # -- Tier -----------------------------------------------------------------------------------------------------

    def __contains__(self, key: bytes) -> bool:
        return key in self._staging or key in self._writer

    def lacks(self, key: bytes) -> bool:
        """Never while the store does not answer: copies that nobody takes cost steps."""
        return self._link.circuit.trouble is None and key not in self._known and key not in self._writer

    def put(self, page: StoredPage) -> None:
        self._writer.put(page)

    def get(self, key: bytes, parent: bytes, tokens: bytes) -> StoredPage | None:
        page = self._staging.get(key) or self._writer.get(key)
        return page if page is not None and page.follows(parent, tokens) else None

    def touch(self, key: bytes) -> None:
        """What has arrived goes when the request that it came for has it."""

    def seen(self, page: PageArrived) -> None:
        """It tells nobody."""

    @property
    def has_room(self) -> bool:
        return self._link.circuit.trouble is not None or self._writer.bytes <= self._limits.queue_bytes // 2

    def catch_up(self, deadline: float) -> bool:
        if self._link.circuit.trouble is not None:
            return time.monotonic() < deadline  # nothing is lacking, so nothing is put
        return self._writer.empty_by(deadline, self._limits.queue_bytes // 2)

    def close(self, timeout_s: float) -> None:
        """Write what is owed, for at most so long, and let go of the store.  Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._link.circuit.trouble is None and self._thread is not None:
            self._writer.empty_by(time.monotonic() + timeout_s)
        if owed := len(self._writer):
            logger.warning("%d pages were not written to %s before the end", owed, self._store.name)
        self._closing.set()
        self._writer.nudge()
        self._fetcher.close()
        self._store.close()

    def stats(self) -> TierStats:
        written, read = self._writer.pages, self._fetcher.counts
        counts = {
            "read": read.pages,
            **{name: written[name] for name in ("written", "there", "full", "dropped", "failed")},
        }
        counts["rejected"] = read.rejected.total()
        staging = self._staging
        return TierStats(self.name, len(staging), staging.bytes, staging.capacity, "bytes", counts)

    # -- FarTier --------------------------------------------------------------------------------------------------

    @property
    def wake(self) -> Callable[[], None]:
        return self._fetcher.wake

    @wake.setter
    def wake(self, wake: Callable[[], None]) -> None:
        self._fetcher.wake = wake

    @property
    def epoch(self) -> int:
        return self._link.circuit.recoveries + self._writer.refills + int(self._clock() // BELIEVED_S)

    @property
    def most_pages(self) -> int:
        return max(1, self._limits.staging_bytes // self._limits.page_bytes)

    def fetch(self, pages: Sequence[PageName], before: Sequence[bytes], token_s: float) -> Fetch:
        self._token_s = token_s
        return self._fetcher.fetch(pages, before, token_s)

    def knows(self, key: bytes) -> bool:
        return self._link.circuit.trouble is None and key in self._known

    def wait_s(self) -> float | None:
        return self._fetcher.wait_s()

    def far_stats(self) -> FarStats:
        read, written = self._fetcher.counts, self._writer
        how = ("written", "full", "dropped", "failed")
        return FarStats(
            fetches=dict(read.fetches),
            pages={"read": read.pages, **{name: written.pages[name] for name in how}},
            bytes={"read": read.bytes, **{name: written.sizes[name] for name in how}},
            rejected=dict(read.rejected),
            latency_s=self._gate.latency_s,
            bandwidth=self._gate.bandwidth,
            gate_open=self._gate.open_for(self._token_s, self._limits.timeout_s),
            up=self._link.circuit.trouble is None,
        )

    def check(self, fetches: Iterable[Fetch]) -> list[str]:
        return self._fetcher.check(fetches) + self._writer.check()

    # -- Neighbour ------------------------------------------------------------------------------------------------

    def trouble(self) -> str | None:
        return self._link.circuit.trouble

    # -- its thread -----------------------------------------------------------------------------------------------

    def reach(self) -> str | None:
        """Ping the store now; why it cannot be used, or ``None``."""
        self._link.ping(_PING_S)
        return self._link.circuit.trouble

    def work(self) -> bool:
        """Do one piece of what its threads do, on the caller's thread; whether there was any."""
        return self._fetcher.do_next() or self._write_one()

    def _write_one(self) -> bool:
        return self._link.circuit.trouble is None and self._writer.write_next()

    def _write_and_tend(self) -> None:
        while not self._closing.is_set():
            try:
                if not self._write_one():
                    self._tend()
                    self._pause()
            except Exception:
                logger.exception("the thread that writes to %s goes on", self._store.name)
                self._closing.wait(_TEND_S)

    def _pause(self) -> None:
        if self._link.circuit.trouble is None:
            self._writer.wait(_TEND_S)
        else:
            self._closing.wait(_TEND_S)

    def _tend(self) -> None:
        """Ping where that is due, and drop what nobody came for."""
        self._staging.sweep()
        circuit, now = self._link.circuit, self._clock()
        down = circuit.trouble is not None
        if now - (self._pinged_at if down else self._link.used_at) >= (circuit.pause_s if down else _SILENT_S):
            self._link.ping(_PING_S)
            self._pinged_at = self._clock()
