"""Bringing pages from the store to where a step can take them, on threads of its own.

::

    request A   | on the device | ── its job: p4 p5 p6 p7 ──────────── |
    request B   | on the device |    p4 p5 from A's job | own job: q6 q7 |       B is over when both jobs are

    a job       exists? ─► n pages ─► gate: k of them ─► 1 page, 2, 4, 8 ... until one is missing, bad, or the time is over

What has arrived by then is a prefix, and is used.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agentcache.cache.fetching import Fetch
from agentcache.cache.tiers import PageName
from agentcache.store.base import StoreUnavailableError
from agentcache.store.codec import Refusal, StoreKeys, unpack_page
from agentcache.store.fetch_staging import Staging
from agentcache.store.gate import Offer
from agentcache.store.tier_known import KnownKeys
from agentcache.store.tier_link import LateError, StoreLink

logger = logging.getLogger(__name__)

_OUTCOMES = ("fetched", "nothing", "gate", "late", "failed")

_LARGEST_GET = 32 * 2**20
"""Bytes that are asked for at once: what arrives late is lost, and a store must answer others too."""


class Job:
    """Pages that are brought together; several requests may wait for it."""

    __slots__ = ("before", "deadline", "done", "names", "token_s", "waiters")

    def __init__(self, names: Sequence[PageName], before: Sequence[bytes], token_s: float, deadline: float) -> None:
        self.names = names
        self.before = before
        self.token_s = token_s
        self.deadline = deadline
        self.done = False
        self.waiters = 0


class StoreFetch:
    """Implements ``cache.fetching.Fetch``: pages that one request wants, and the jobs that bring them.  Engine's thread only."""

    __slots__ = ("_ended", "_fetcher", "jobs", "keys")

    def __init__(self, fetcher: Fetcher, keys: Sequence[bytes], jobs: Sequence[Job]) -> None:
        self._fetcher = fetcher
        self._ended = False
        self.keys = keys
        self.jobs = jobs
        for job in jobs:
            job.waiters += 1
        fetcher.staging.want(keys)

    @property
    def over(self) -> bool:
        return self._ended or all(job.done or self._fetcher.clock() >= job.deadline for job in self.jobs)

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            for job in self.jobs:
                job.waiters -= 1
            self._fetcher.staging.unwant(self.keys)


@dataclass(slots=True)
class ReadCounts:
    """What was read and what became of it; written by the fetcher's threads under its lock."""

    fetches: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(_OUTCOMES, 0)))
    pages: int = 0
    bytes: int = 0
    rejected: Counter[str] = field(default_factory=lambda: Counter({why.value: 0 for why in Refusal}))


class Fetcher:
    """Jobs and the threads that do them.

    Args:
        link: the store.
        names: how pages are called there.
        staging: where they are put.
        known: told of what is there.
        timeout_s: what a request waits at most.
    """

    def __init__(
        self,
        link: StoreLink,
        names: StoreKeys,
        staging: Staging,
        known: KnownKeys,
        *,
        timeout_s: float,
    ) -> None:
        self.staging = staging
        self.counts = ReadCounts()
        self.clock = link.clock
        self.wake: Callable[[], None] = _nobody
        self._link = link
        self._names = names
        self._known = known
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pending: dict[bytes, Job] = {}
        """By the keys of the pages that they are to bring."""
        self._jobs: dict[Job, None] = {}
        self._work: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._job_s = 0.0
        """Seconds that a job took, of late."""
        self._last: PageName | None = None
        """What came last, and is likely to be there still."""

    # -- on the engine's thread -----------------------------------------------------------------------------------

    def start(self, threads: int) -> None:
        for number in range(threads):
            thread = threading.Thread(target=self._work_on, name=f"agentcache-store-read-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def fetch(self, names: Sequence[PageName], before: Sequence[bytes], token_s: float) -> Fetch:
        """See ``FarTier.fetch``."""
        with self._lock:
            jobs = list(dict.fromkeys(job for name in names if (job := self._pending.get(name.key)) is not None))
            own = [name for name in names if name.key not in self._pending and name.key not in self.staging]
        mine = self._begin(own, before, token_s) if own and self._link.circuit.trouble is None else None
        fetch = StoreFetch(self, [name.key for name in names], jobs if mine is None else [*jobs, mine])
        if mine is not None:
            self._work.put(mine)  # not before somebody waits for it
        return fetch

    def _begin(self, own: Sequence[PageName], before: Sequence[bytes], token_s: float) -> Job | None:
        """A job for pages that nobody brings yet; ``None`` when computing even all of them is cheaper."""
        now = self.clock()
        gate = self._link.gate
        wait_s = gate.deadline_s(len(own), token_s, self._timeout_s)
        if not gate.worth(Offer(len(own), token_s, wait_s, self._ahead_s())):
            with self._lock:
                self.counts.fetches["gate"] += 1
            if gate.stale:
                self._probe(self._last or own[0])
            return None
        job = Job(own, before, token_s, now + wait_s)
        with self._lock:
            self._jobs[job] = None
            for name in own:
                self._pending[name.key] = job
        return job

    def _ahead_s(self) -> float:
        """Seconds until a job that is begun now is worked on."""
        waiting = self._work.qsize()
        return waiting * self._job_s / max(1, len(self._threads))

    def _probe(self, name: PageName) -> None:
        """Measure what the network is like now, although nobody waits: the next request may be fetched again."""
        self._link.gate.looked()
        self._work.put(Job([name], (), 0.0, self.clock() + self._timeout_s))

    def wait_s(self) -> float | None:
        """See ``FarTier.wait_s``."""
        with self._lock:
            deadlines = [job.deadline for job in self._jobs]
        return max(0.0, min(deadlines) - self.clock()) if deadlines else None

    # -- on threads of its own ------------------------------------------------------------------------------------

    def _work_on(self) -> None:
        while (job := self._work.get()) is not None:
            self._do(job)

    def do_next(self) -> bool:
        """Do one job on the caller's thread; whether there was one."""
        try:
            job = self._work.get_nowait()
        except queue.Empty:
            return False
        if job is not None:
            self._do(job)
        return True

    def _do(self, job: Job) -> None:
        """Bring what can be brought of a job, and say that it is over."""
        began = self.clock()
        real = job in self._jobs
        outcome: str | None = "failed"
        try:
            outcome = self._bring(job) if real else self._measure(job)
        except LateError:
            outcome = "late"
        except StoreUnavailableError as error:
            logger.debug("a fetch failed: %s", error)
        except Exception:
            logger.exception("a fetch from %s failed", self._link.store.name)
        with self._lock:
            if real:
                self._job_s += (self.clock() - began - self._job_s) / 4
                self._jobs.pop(job, None)
                if outcome is not None:
                    self.counts.fetches[outcome] += 1
                for name in job.names:
                    if self._pending.get(name.key) is job:
                        del self._pending[name.key]
            job.done = True
        if real:
            self.wake()
        if outcome == "fetched" and job.before:
            self._use(job.before)

    def _use(self, keys: Sequence[bytes]) -> None:
        """Have the store know that the beginning of a chain is used too, although nobody had to fetch it here."""
        with contextlib.suppress(StoreUnavailableError):
            there = self._link.exists([self._names.key(key) for key in keys], self._timeout_s)
            self._known.saw(keys[:there])

    def _bring(self, job: Job) -> str | None:
        """How it ended; ``None`` when nobody waited for it any more.

        Raises:
            StoreUnavailableError: nothing came, since the store did not answer; later it is an end like any other.
        """
        left = job.deadline - self.clock()
        if not job.waiters:
            return None
        if left <= 0:
            return "late"
        if self._link.circuit.trouble is not None:
            return "failed"
        keys = [self._names.key(name.key) for name in job.names]
        there = self._link.exists(keys, left)
        self._known.saw(name.key for name in job.names[:there])
        if there < len(keys):
            self._known.lost(job.names[there].key)
        if not there:
            return "nothing"
        at, most, gate = 0, 1, self._link.gate
        while at < there and job.waiters:
            left = job.deadline - self.clock()
            worth = gate.worth(Offer(there - at, job.token_s, left))
            if not worth:
                return "fetched" if at else "late" if left <= 0 else "gate"
            count = min(worth, most)
            try:
                came = self._get(job.names[at : at + count], keys[at : at + count], left)
            except StoreUnavailableError:
                if at:
                    return "fetched"
                raise
            at += came
            if came < count:
                break
            most = max(1, min(2 * most, _LARGEST_GET // gate.page_bytes))
        return "fetched" if at else "nothing" if job.waiters else None

    def _get(self, names: Sequence[PageName], keys: Sequence[bytes], timeout_s: float) -> int:
        """How many of the pages came, from the first one on."""
        began = self.clock()
        values = self._link.get(keys, len(keys) * self._link.gate.page_bytes, timeout_s)
        in_time = self.clock() - began < timeout_s / 2
        came = 0
        for name, value in zip(names, values, strict=False):
            if value is None and in_time:
                self._known.refused(name.key)  # it was said to be there; whatever is, is no value
            if value is None or not self._take(name, value):
                break
            came += 1
        return came

    def _take(self, name: PageName, value: bytes) -> bool:
        """Whether a value is the page, and there was room for it."""
        page = unpack_page(value, name.key, name.parent, name.tokens, self._names.fingerprint)
        if isinstance(page, Refusal):
            with self._lock:
                self.counts.rejected[page.value] += 1
            self._known.refused(name.key)  # whoever computes it writes it anew
            logger.warning("a page in %s is not used: %s", self._link.store.name, page.value)
            return False
        with self._lock:
            self.counts.pages += 1
            self.counts.bytes += len(value)
            self._last = name
        return self.staging.put(page)

    def _measure(self, job: Job) -> str:
        """Ask and transfer a little, for the prices alone."""
        keys = [self._names.key(name.key) for name in job.names]
        for _ in range(3):  # what was known before is half forgotten each time
            there = self._link.exists(keys, self._timeout_s)
            if there:
                self._link.get(keys[:there], there * self._link.gate.page_bytes, self._timeout_s)
        return "nothing"

    # -- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Its threads end after the job that they do."""
        for _ in self._threads:
            self._work.put(None)

    def check(self, fetches: Iterable[Fetch]) -> list[str]:
        """See ``FarTier.check``."""
        waiting = [fetch for fetch in fetches if isinstance(fetch, StoreFetch)]
        wanted = Counter(key for fetch in waiting for key in fetch.keys)
        faults = self.staging.check(wanted)
        waiters = Counter(job for fetch in waiting for job in fetch.jobs)
        with self._lock:
            faults += [
                f"{job.waiters} requests are said to wait for a job, {waiters[job]} do"
                for job in {*self._jobs, *waiters}
                if job.waiters != waiters[job]
            ]
            if set(self._pending.values()) - set(self._jobs):
                faults.append("a page is said to be on its way by a job that is done")
        return faults


def _nobody() -> None:
    """Nobody waits to be woken."""
