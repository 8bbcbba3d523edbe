"""A replica in virtual time: the real cache with its tree and its eviction, and a clock in place of a model.

Prompts are computed one after the other at so many tokens a second; who generates does so beside them, until it has what it
wants.  Everything that the cache decides is decided by ``CacheManager``: what is found, what is evicted, when there is no room.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.residency import watch_residency
from agentcache.cache.tokens import PagedTokens
from agentcache.routing.feed import PageFeed
from agentcache.routing.loads import ReplicaLoad
from bench.sim_scheduler.traces import Texts

Later = Callable[[float, Callable[[], None]], None]
"""Call this at that time."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one replica.

    Attributes:
        prefill: prompt tokens a second.
        token_s: seconds for each token that is drawn.
    """

    prefill: float = 4_000.0
    token_s: float = 0.02


@dataclass(slots=True)
class Job:
    """One turn on its way; ``done`` is told when it is over, with whether it was served."""

    tokens: PagedTokens
    draws: int
    sent_at: float
    started: Callable[[float], None]
    done: Callable[[bool], None]
    cached: int = 0
    first_token_at: float = 0.0
    lease: Lease | None = None

    @property
    def computing(self) -> int:
        """Tokens of its prompt that are not cached, as far as is known."""
        return len(self.tokens) - self.cached


@dataclass(frozen=True, slots=True)
class Size:
    """``pages`` of ``page_size`` tokens."""

    pages: int
    page_size: int
    speed: Speed


class SimReplica:
    """Args:
    now: the clock.
    later: how it has something done at another time.
    """

    def __init__(self, name: str, size: Size, now: Callable[[], float], later: Later) -> None:
        self.name = name
        self.manager = CacheManager(size.pages, size.page_size)
        self.feed = PageFeed()
        watch_residency(self.manager, self.feed.hear)
        self.alive = True
        self.running: set[int] = set()
        self._jobs: dict[int, Job] = {}
        self._speed = size.speed
        self._now = now
        self._later = later
        self._queue: deque[Job] = deque()
        self._computing: Job | None = None
        self._texts = Texts(random.Random(name))

    def load(self) -> ReplicaLoad:
        """What it would report."""
        jobs = [*self._queue, *([] if self._computing is None else [self._computing])]
        return ReplicaLoad(sum(job.computing for job in jobs), len(self.running))

    def submit(self, job: Job) -> None:
        match = self.manager.tree.match(job.tokens, len(job.tokens))
        job.cached = min(len(match.pages) * self.manager.page_size, len(job.tokens) - 1)
        self._jobs[id(job)] = job
        self._queue.append(job)
        self._next()

    def die(self) -> None:
        """Everybody who waits for it is told that it is gone."""
        self.alive = False
        for job in list(self._jobs.values()):
            job.done(False)

    def _next(self) -> None:
        if self._computing is not None or not self._queue or not self.alive:
            return
        job = self._queue[0]
        lease = self.manager.acquire(job.tokens)
        if not isinstance(lease, Lease):
            return  # tried again when somebody ends
        self._queue.popleft()
        lease.take_copies()
        job.lease, job.cached = lease, lease.cached_tokens
        self._computing = job
        self._later(self._now() + job.computing / self._speed.prefill, lambda: self._computed(job))

    def _computed(self, job: Job) -> None:
        if not self.alive:
            return
        assert job.lease is not None
        job.lease.commit(len(job.tokens))
        self._computing = None
        self.running.add(id(job))
        job.first_token_at = self._now() + self._speed.token_s
        job.started(job.first_token_at)
        self._later(self._now() + job.draws * self._speed.token_s, lambda: self._generated(job))
        self._next()

    def _generated(self, job: Job) -> None:
        if not self.alive:
            return
        assert job.lease is not None
        prompt = len(job.tokens)
        job.tokens.extend(self._texts(job.draws))
        if job.lease.extend(len(job.tokens)):
            job.lease.commit(len(job.tokens) - 1, output_from=prompt)
        job.lease.release()
        self.running.discard(id(job))
        del self._jobs[id(job)]
        job.done(True)
        self._next()
