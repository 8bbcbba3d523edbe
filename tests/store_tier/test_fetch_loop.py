"""The engine's thread while pages are on their way: it rests, it never calls the store, and it is woken."""

import asyncio
import threading
from types import SimpleNamespace

from memory_store import MemoryStore, engine_on, run, tier_on, work
from replay import continuation, make_request

from agentcache.engine.core import EngineCore
from agentcache.engine.loop import AsyncEngine
from agentcache.request import SamplingParams

PROMPT = list(range(30))
DEADLINE_S = 20


class HeldStore(MemoryStore):
    """Gives nothing out before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def batch_get(self, keys, timeout_s):
        self.asked.set()
        assert self.go_on.wait(DEADLINE_S)
        return super().batch_get(keys, timeout_s)


def held_store() -> HeldStore:
    store = HeldStore()
    core = engine_on(tier_on(store))
    core.add(make_request("r", PROMPT, b"root")[0])
    run(core)
    core.manager.flush()
    work(core)
    assert store.values
    return store


def async_engine(core: EngineCore) -> AsyncEngine:
    return AsyncEngine(
        core, info=SimpleNamespace(), settings=SimpleNamespace(max_waiting=9), tokenizer=None, renderer=None, root_base=()
    )  # fmt: skip


def test_the_engine_s_thread_rests_until_the_pages_came_and_calls_no_store_itself():
    store = held_store()
    store.threads.clear()
    core = engine_on(tier_on(store, threads=True, timeout_s=DEADLINE_S))
    engine = async_engine(core)
    steps: list[int] = []
    make_step = engine._step

    def step() -> bool:
        steps.append(threading.get_ident())
        return make_step()

    engine._step = step

    async def scene():
        engine.start()
        params = SamplingParams(temperature=0.0, max_tokens=4)
        stream = engine.submit(PROMPT, params, root=b"root", request_id="r")
        while not store.asked.is_set():
            await asyncio.sleep(0.005)
        before = len(steps)
        await asyncio.sleep(0.3)
        assert len(steps) - before < 6  # it would be thirty, if it looked every ten milliseconds
        assert await engine.check() == []
        store.go_on.set()
        said = [token async for output in stream for token in output.token_ids]
        assert said == continuation(PROMPT, 4)
        assert engine.stats().counters["cached_tokens_store"] == 28
        await engine.stop()

    asyncio.run(asyncio.wait_for(scene(), DEADLINE_S))
    assert store.threads and not store.threads & set(steps)


def test_who_waits_is_woken_once_for_each_job_that_is_over():
    core = engine_on(tier_on(held_store()))
    core.far._fetcher._link.store.go_on.set()
    engine = async_engine(core)
    for number, prompt in enumerate((PROMPT, [40, *PROMPT])):
        core.add(make_request(str(number), prompt, b"root")[0])
    assert not core.step() and engine._inbox.qsize() == 0
    assert core.far._fetcher.do_next() and engine._inbox.qsize() == 1
    assert core.far._fetcher.do_next() and engine._inbox.qsize() == 2
    run(core)
