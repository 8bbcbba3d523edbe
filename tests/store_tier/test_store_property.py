"""Random traffic on two engines that share a store which fails in every way: each request is answered as if it were alone, and
everything that must hold is checked after every operation."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore, engine_on, tier_on, work
from replay import Collected, continuation, make_request

from agentcache.engine.core import EngineCore
from agentcache.request import FinishReason

ROOTS = [b"tenant a", b"tenant b"]
HEADS = [[n % 3] * 2 + list(range(n, n + 14)) for n in range(4)]


@dataclass
class Sent:
    engine: EngineCore
    prompt: list[int]
    count: int
    sink: Collected


class World:
    """Two engines and their store."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.store = MemoryStore()
        self.engines = [self._engine(), self._engine()]
        self.sent: dict[str, Sent] = {}
        self.seen: Counter[str] = Counter()

    def _engine(self) -> EngineCore:
        rng = self.rng
        tier = tier_on(
            self.store,
            staging_bytes=rng.choice([2**20, 300]),
            queue_bytes=rng.choice([2**20, 300]),
        )
        return engine_on(
            tier,
            pages=rng.choice([9, 12, 20]),
            host_pages=rng.choice([0, 0, 3, 12]),
            max_overtakes=rng.choice([0, 1, 12]),
            look_ahead=rng.choice([1, 2, 64]),
        )

    def send(self, name: str) -> None:
        rng = self.rng
        engine = rng.choice(self.engines)
        prompt = rng.choice(HEADS)[: rng.randrange(1, 17)] + [rng.randrange(2) for _ in range(rng.randrange(8))]
        count = rng.choice([1, 2, 6, 12])
        request, sink = make_request(
            name, prompt, rng.choice(ROOTS), rng.choice([0, 0, 1]), max_tokens=count,
            prompt_logprobs=rng.choice([None] * 9 + [0]),
        )  # fmt: skip
        engine.add(request)
        self.sent[name] = Sent(engine, prompt, count, sink)

    def act(self, name: str) -> None:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.3:
            self.send(name)
        elif kind < 0.36 and self.sent:
            victim = rng.choice(list(self.sent)[-5:])
            engine = self.sent[victim].engine
            self.seen["abort"] += 1
            self.seen["abort while fetching"] += any(
                s.request.request_id == victim and s.errand is not None and s.errand.pending
                for s in engine.scheduler.waiting
            )
            engine.abort(victim)
        elif kind < 0.40:
            rng.choice(self.engines).manager.flush()
        elif kind < 0.46:
            self.strike()
        elif kind < 0.50:
            self.store.clock.pass_by(rng.choice([0.01, 1.0, 40.0]))
        elif kind < 0.72:
            self.seen["work"] += rng.choice(self.engines).far.work()
        else:
            rng.choice(self.engines).step()

    def strike(self) -> None:
        """Something happens to the store, or all is well again."""
        rng, store = self.rng, self.store
        what = rng.choice(["well", "well", "down", "slow", "late", "lose", "damage", "cut", "cut", "swap"])
        self.seen[what] += 1
        store.down = what == "down"
        store.delay_s = {"slow": 0.02, "late": 100.0}.get(what, 0.0)
        store.spoil = lambda value: value
        if what == "well":
            for engine in self.engines:
                engine.far.reach()
        elif what == "lose" and store.values:
            for key in rng.sample(sorted(store.values), len(store.values) // 2):
                del store.values[key]
        elif what == "damage":
            store.spoil = lambda value: value[:-9] + bytes([value[-9] ^ 1]) + value[-8:]
        elif what == "cut":
            store.spoil = lambda value: rng.choice([value, None, value[: rng.randrange(200)], value[:-1]])
        elif what == "swap" and store.values:
            keys = sorted(store.values)
            store.values.update(zip(keys, [store.values[key] for key in keys[1:]], strict=False))

    def check(self) -> None:
        for engine in self.engines:
            assert engine.check() == []

    def finish(self) -> None:
        for _ in range(4000):
            if not any(engine.has_work for engine in self.engines):
                break
            for engine in self.engines:
                if engine.has_work and not engine.step():
                    work(engine)
            self.check()
        assert not any(engine.has_work for engine in self.engines), "the engines do not come to an end"
        for sent in self.sent.values():
            expected = continuation(sent.prompt, sent.count)
            final = sent.sink.finished()
            assert final is not None
            if final.finish_reason is FinishReason.ABORT:
                assert sent.sink.tokens() == expected[: len(sent.sink.tokens())]
                continue
            assert sent.sink.tokens() == expected
            self.seen["from the store"] += final.report.tier_tokens.get("store", 0) > 0
            self.seen["preempted"] += final.report.preemptions > 0
        for engine in self.engines:
            work(engine)
            figures = engine.stats().far
            self.seen.update({f"fetch {name}": count for name, count in figures.fetches.items()})
            self.seen.update({f"rejected {name}": count for name, count in figures.rejected.items()})
            assert engine.far.stats().pages == engine.far.stats().used == 0
            assert engine.manager.counts().live == 0


def live(seed: int, operations: int) -> Counter[str]:
    world = World(random.Random(seed))
    for number in range(operations):
        world.act(str(number))
        world.check()
    world.finish()
    return world.seen


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_the_store_does_each_request_is_answered_as_if_it_were_alone(seed):
    live(seed, 150)


@pytest.mark.long
def test_the_random_lives_reach_what_they_are_for():
    seen: Counter[str] = Counter()
    for seed in range(8):
        seen += live(seed, 300)
    for what in (
        "from the store", "preempted", "abort", "abort while fetching", "fetch fetched", "fetch nothing", "fetch late",
        "fetch failed", "rejected short", "rejected damaged", "rejected foreign",
    ):  # fmt: skip
        assert seen[what] >= 1, f"{what} happened only {seen[what]} times of {seen}"
