"""A page store in memory that tests can make slow, forgetful, wrong or dead, and engines that share it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from replay import VOCAB, Collected, PlainText, ReplayRunner, make_request

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lower import LowerTiers
from agentcache.cache.manager import CacheManager
from agentcache.cache.tiers import HostTier, Tier, TierStats
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.scheduler.preemption import Costs
from agentcache.scheduler.scheduler import Limits, Scheduler
from agentcache.store.base import StoreItem, StoreUnavailableError
from agentcache.store.codec import StoreKeys
from agentcache.store.tier import StoreLimits, StoreTier

ROOT = namespace_root("model")
PAGE_BYTES = 64


class Ticker:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


class Dear:
    """In place of ``engine.stats.PrefillCost``: computing here costs next to nothing, and nothing would be fetched."""

    seconds_per_token = 0.02

    def observe(self, prompt_tokens: int, rows: int, seconds: float) -> None:
        """Dear it stays."""


class MemoryStore:
    """Implements ``store.base.PageStore`` but for records.

    ``spoil`` is applied to each value that is given out; ``down`` makes every call fail; ``delay_s`` is what a call takes, or
    the error that its time is over; it takes new pages up to ``room`` of them in all.
    """

    name = "memory://test"

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.clock = Ticker()
        self.down = False
        self.room = 10**9
        self.delay_s = 0.0
        self.spoil: Callable[[bytes], bytes | None] = lambda value: value
        self.calls: list[tuple[str, int]] = []
        self.threads: set[int] = set()

    def _call(self, what: str, count: int, timeout_s: float) -> None:
        self.calls.append((what, count))
        self.threads.add(threading.get_ident())
        if self.down:
            raise StoreUnavailableError(f"{self.name} does not answer")
        if self.delay_s:
            self.clock.pass_by(min(self.delay_s, max(0.0, timeout_s)))
            if self.delay_s > timeout_s:
                raise StoreUnavailableError(f"{self.name} did not answer in time")

    def ping(self, timeout_s: float) -> None:
        self._call("ping", 1, timeout_s)

    def batch_exists(self, keys: Sequence[bytes], timeout_s: float) -> int:
        self._call("exists", len(keys), timeout_s)
        return next((n for n, key in enumerate(keys) if key not in self.values), len(keys))

    def batch_get(self, keys: Sequence[bytes], timeout_s: float) -> list[bytes | None]:
        self._call("get", len(keys), timeout_s)
        return [None if (value := self.values.get(key)) is None else self.spoil(value) for key in keys]

    def batch_set(self, items: Sequence[StoreItem], timeout_s: float) -> set[bytes]:
        self._call("set", len(items), timeout_s)
        taken = set()
        for key, value in items:
            if key in self.values or len(self.values) < self.room:
                self.values[key] = value
                taken.add(key)
        return taken

    def stats(self) -> TierStats:
        return TierStats("memory", len(self.values), 0, 0, "bytes", {})

    def close(self) -> None:
        """Others use it too."""

    def count(self, what: str) -> int:
        return sum(call == what for call, _ in self.calls)


def tier_on(
    store: MemoryStore, *, size: int = 4, threads: bool = False, fingerprint: str = "model", **limits
) -> StoreTier:
    """A tier whose work is done by ``tier.work()``, unless it has threads."""
    names = StoreKeys(fingerprint, "float32", size)
    return StoreTier(store, names, StoreLimits(PAGE_BYTES, size, **limits), clock=store.clock, threads=threads)


def engine_on(tier: StoreTier | None, pages: int = 16, size: int = 4, host_pages: int = 0, **limits) -> EngineCore:
    """An engine without a model, with the tier below it."""
    runner = ReplayRunner(pages, size)
    tiers: list[Tier] = [HostTier(host_pages)] if host_pages else []
    lower = LowerTiers(tiers, runner, far=tier) if tiers or tier is not None else None
    manager = CacheManager(pages, size, lower=lower)
    bounds = Bounds(512, pages * size, VOCAB, 8)
    scheduler = Scheduler(manager, Limits(16, 8, 200, **limits), costs=Costs(page=1.0 if host_pages else None))
    engine = EngineCore(scheduler, runner, PlainText, frozenset(), bounds)
    engine.metrics.prefill = Dear()
    return engine


def prompt_of(length: int, seed: object = 0) -> list[int]:
    return random.Random(f"{length}/{seed}").choices(range(VOCAB), k=length)


def ask(engine: EngineCore, name: str, prompt: list[int], max_tokens: int = 1) -> Collected:
    request, sink = make_request(name, prompt, ROOT, max_tokens=max_tokens)
    engine.add(request)
    return sink


def run(*engines: EngineCore, limit: int = 5000) -> None:
    """Until nothing is left to do; what their tiers owe is done whenever no engine moves."""
    for _ in range(limit):
        moved = [engine.step() for engine in engines if engine.has_work]
        assert all(engine.check() == [] for engine in engines)
        if not moved:
            return
        if not any(moved):
            work(*engines)
    raise AssertionError("the engines do not come to an end")


def work(*engines: EngineCore) -> None:
    for engine in engines:
        while isinstance(engine.far, StoreTier) and engine.far.work():
            pass
