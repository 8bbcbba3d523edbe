"""Everything at once: forks, preemption, aborts, faults, figures of the prompt, equal keys for unequal pages, tiny pools."""

import random
from dataclasses import dataclass

import pytest
from replay import VOCAB, Collected, PlainText, ReplayRunner, continuation, make_request

from agentcache.cache.hashing import xxh3_128_digest
from agentcache.cache.manager import CacheManager
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.errors import QueueFullError, RequestError
from agentcache.request import FinishReason
from agentcache.scheduler.scheduler import Limits, Scheduler

SITES = ("forward", "sampler", "alloc")


@dataclass
class Sent:
    prompt: list[int]
    params: dict
    sink: Collected


class Storm:
    """One engine under random traffic."""

    def __init__(self, seed: int, *, faults: bool = False) -> None:
        self.rng = rng = random.Random(seed)
        self.size = rng.choice([1, 2, 3, 4])
        self.pages = rng.choice([1, 2, 3, 5, 9, 16, 40])
        self.running = rng.choice([1, 2, 3, 8])
        self.faults = faults
        manager = CacheManager(self.pages, self.size, enabled=rng.random() < 0.9)
        self.capacity = min(self.pages * self.size, 64)
        self.engine = EngineCore(
            Scheduler(manager, Limits(rng.choice([1, 2, 3, 7, 32]), self.running, rng.choice([5, 50]))),
            ReplayRunner(self.pages, self.size),
            PlainText,
            frozenset(),
            Bounds(self.capacity, self.capacity, VOCAB, self.running),
            faults=manager.faults,
            seeds=random.Random(seed),
        )
        self.heads = [[rng.randrange(2) for _ in range(rng.randrange(1, 30))] for _ in range(3)]
        self.roots = [b"a", b"b"]
        self.sent: dict[str, Sent] = {}
        self.aborted: set[str] = set()

    def send(self, name: str) -> None:
        rng = self.rng
        prompt = rng.choice(self.heads)[: rng.randrange(1, 31)] + [rng.randrange(3) for _ in range(rng.randrange(4))]
        params = {
            "max_tokens": rng.choice([None, 0, 1, 2, 5, 12, 30]),
            "n": rng.choice([1, 1, 2, min(3, self.running), self.running]),
            "seed": rng.randrange(1000),
            "temperature": rng.choice([0.0, 1.0]),
            "prompt_logprobs": rng.choice([None, None, 0]),
        }
        request, sink = make_request(name, prompt, rng.choice(self.roots), rng.choice([0, 0, 1]), **params)
        try:
            self.engine.add(request)
        except RequestError:
            assert len(prompt) + (params["max_tokens"] != 0) > self.capacity or params["n"] > self.running
        except QueueFullError:
            assert len(self.engine.scheduler.waiting) == self.engine.scheduler.limits.max_waiting
        else:
            self.sent[name] = Sent(prompt, params, sink)

    def turn(self, name: str) -> None:
        rng = self.rng
        for part in range(rng.choice([0, 0, 1, 1, 3])):
            self.send(f"{name}.{part}")
        if rng.random() < 0.1 and self.sent:
            victim = rng.choice(list(self.sent)[-6:])
            self.engine.abort(victim)
            self.aborted.add(victim)
        if rng.random() < 0.03:
            self.engine.manager.flush()
        if self.faults and rng.random() < 0.1:
            self.engine.faults.arm(rng.choice(SITES), rng.randrange(1, 4))
        self.step()

    def step(self) -> None:
        self.engine.step()
        assert self.engine.check() == []

    def finish(self) -> None:
        for _ in range(200 * (len(self.sent) + 1)):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work, "the engine does not come to an end"
        for name, sent in self.sent.items():
            for index in range(sent.params["n"]):
                self.verify(name, sent, index)
        manager = self.engine.manager
        assert manager.num_leases == 0 and not list(manager.announced())
        assert self.engine._requests == {}
        manager.flush()
        assert manager.counts().free == self.pages and not list(manager.tree.roots())

    def verify(self, name: str, sent: Sent, index: int) -> None:
        room = self.capacity - len(sent.prompt)
        asked = room if sent.params["max_tokens"] is None else min(room, sent.params["max_tokens"])
        expected = continuation(sent.prompt, asked, sent.params["seed"] + index, not sent.params["temperature"])
        final, got = sent.sink.finished(index), sent.sink.tokens(index)
        assert final is not None, f"sequence {index} of {name} never ended"
        figures = [o.prompt_logprobs for o in sent.sink.outputs if o.index == index and o.prompt_logprobs is not None]
        if final.finish_reason is FinishReason.LENGTH:
            assert got == expected
            assert final.report.completion_tokens == asked
            assert final.report.cached_tokens < len(sent.prompt)
            assert len(figures) == (sent.params["prompt_logprobs"] is not None)
        else:
            assert final.finish_reason is FinishReason.ERROR if name not in self.aborted else FinishReason.ABORT
            assert self.faults or name in self.aborted
            assert got == expected[: len(got)]
        for one in figures:
            assert one[0] is None and [entry.token for entry in one[1:]] == sent.prompt[1:]


def blow(seed: int, turns: int, **options) -> Storm:
    storm = Storm(seed, **options)
    for turn in range(turns):
        storm.turn(str(turn))
    storm.finish()
    return storm


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_at_once_each_request_is_answered_as_if_it_were_alone(seed):
    blow(seed, 60)


@pytest.mark.parametrize("seed", range(40))
def test_faults_in_a_storm_end_only_what_they_hit(seed):
    blow(seed, 60, faults=True)


@pytest.mark.parametrize("seed", range(40))
def test_keys_that_collide_all_the_time_cost_hits_and_nothing_else(seed, monkeypatch):
    def weak(data: bytes) -> bytes:
        return bytes([xxh3_128_digest(data)[0] % 4]) * 16

    monkeypatch.setattr("agentcache.cache.tokens.page_digest", weak)
    monkeypatch.setattr("agentcache.cache.hashing.page_digest", weak)
    blow(seed, 60, faults=seed % 2 == 0)


def test_the_storms_reach_what_they_are_for():
    preempted = forked = shared = 0
    for seed in range(30):
        engine = blow(seed, 40).engine
        preempted += engine.scheduler.num_preemptions
        forked += engine.manager.events.counts["Forked"]
        shared += engine.metrics.counters["cached_tokens"]
    assert preempted > 50 and forked > 50 and shared > 200
