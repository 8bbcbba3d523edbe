"""A prompt that is used again is stored a few pages a step: whatever happens meanwhile, its beginning outlives its end."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore, ask, engine_on, run, tier_on, work
from replay import VOCAB, continuation

from agentcache.cache.behind import StepBudget
from agentcache.cache.disk import DiskTier
from agentcache.engine.core import EngineCore

PAGES = 100


def prompt_of(pages: int, seed: object = 0) -> list[int]:
    return random.Random(f"{pages}/{seed}").choices(range(VOCAB), k=4 * pages)


def serve(engine: EngineCore, name: str, prompt: list[int]) -> None:
    """Only until it is answered; what is owed to the store then stays owed."""
    sink = ask(engine, name, prompt)
    for _ in range(500):
        if sink.finished():
            break
        if not engine.step() and engine.far is not None:
            engine.far._fetcher.do_next()  # the store has nothing of it; what is to be written waits
        assert engine.check() == []
    assert sink.tokens() == continuation(prompt, 1)


def engine_of(store: MemoryStore, pages: int = PAGES, **limits) -> EngineCore:
    """An engine whose pages take no time, so that only their number counts."""
    engine = engine_on(tier_on(store, **limits), pages=pages)
    engine.manager.lower._backlog.budget = StepBudget(pages=8, looks=256, seconds=60.0)
    return engine


def used_twice(store: MemoryStore, pages: int = 80, **limits) -> tuple[EngineCore, list[int]]:
    engine = engine_of(store, **limits)
    prompt = prompt_of(pages)
    serve(engine, "first", prompt)
    serve(engine, "again", prompt)
    return engine, prompt


def reads(engine: EngineCore) -> list[int]:
    """Numbers of the pages that are copied from now on."""
    seen: list[int] = []
    read = engine.runner.read_page

    def read_page(page: int):
        seen.append(page)
        return read(page)

    engine.runner.read_page = read_page
    return seen


def test_no_step_copies_more_than_a_few_pages_and_in_the_end_all_are_there():
    store = MemoryStore()
    engine, prompt = used_twice(store)
    seen = reads(engine)
    steps = 0
    while engine.has_work:
        before = len(seen)
        assert engine.step() and engine.check() == []
        assert len(seen) - before <= 8
        steps += 1
        assert steps < 20
    assert not engine.step()
    work(engine)
    assert len(store.values) == 80 == engine.far.far_stats().pages["written"]
    assert ask_other(store, prompt) == 80 * 4 - 1  # the last token is computed


def ask_other(store: MemoryStore, prompt: list[int]) -> int:
    """How many tokens another engine finds in the store."""
    other = engine_on(tier_on(store), pages=PAGES)
    for number in range(8):  # the first transfers are small
        sink = ask(other, f"r{number}", prompt)
        run(other)
        other.manager.flush()
    return sink.finished().report.tier_tokens.get("store", 0)


def test_a_page_that_takes_long_is_the_only_one_of_its_step():
    store = MemoryStore()
    engine, _ = used_twice(store)
    engine.manager.lower._backlog.budget = StepBudget(seconds=0.0)
    seen = reads(engine)
    for count in range(1, 5):
        assert engine.step()
        assert len(seen) == count


def test_others_go_on_while_a_long_prompt_is_stored():
    store = MemoryStore()
    engine, _ = used_twice(store)
    sink = ask(engine, "short", [1, 2, 3], max_tokens=6)
    for _ in range(8):
        engine.step()
    assert sink.tokens() == continuation([1, 2, 3], 6) and engine.has_work


def test_pages_are_stored_from_the_end_to_the_beginning():
    store = MemoryStore()
    engine, _ = used_twice(store)
    depths = []
    store_page = engine.manager.lower._backlog._store
    engine.manager.lower._backlog._store = lambda node: depths.append(node.depth) or store_page(node)
    run(engine)
    assert depths == sorted(depths, reverse=True) and depths[-1] == 1


def test_a_prompt_that_is_used_a_third_time_meanwhile_is_copied_once():
    store = MemoryStore()
    engine, prompt = used_twice(store)
    seen = reads(engine)
    for number in range(3):
        serve(engine, f"more {number}", prompt)
    run(engine)
    assert len(seen) == len(set(seen))
    work(engine)
    assert len(store.values) == 80


def test_a_line_that_is_full_is_not_overfilled_and_the_work_goes_on_when_it_has_room():
    store = MemoryStore()
    engine, _ = used_twice(store, queue_bytes=3000)
    seen = reads(engine)
    while engine.step():
        assert engine.check() == []
    assert engine.has_work and len(seen) < 70
    before = len(seen)
    assert not engine.step() and len(seen) == before
    run(engine)
    work(engine)
    assert len(store.values) == 80 and engine.far.far_stats().pages["dropped"] == 0


def test_what_is_evicted_meanwhile_is_stored_once_and_what_is_before_it_afterwards():
    store = MemoryStore()
    engine, _ = used_twice(store)
    seen = reads(engine)
    engine.step()
    for _ in range(30):
        engine.manager.evict("test")
        assert engine.check() == []
    run(engine)
    work(engine)
    assert len(store.values) == 80
    assert len(seen) <= 81  # and the reply's


def test_a_cache_that_is_made_anew_leaves_nothing_to_store():
    store = MemoryStore()
    engine, _ = used_twice(store)
    engine.manager.reset()
    seen = reads(engine)
    run(engine)
    assert not seen and not engine.has_work


def test_shutdown_finishes_what_is_owed(tmp_path):
    store = MemoryStore()
    engine = engine_on(tier_on(store, threads=True), pages=PAGES)
    prompt = prompt_of(80)
    serve(engine, "first", prompt)
    serve(engine, "again", prompt)
    assert engine.has_work
    engine.save(20)
    assert len(store.values) >= 80


@pytest.mark.parametrize(("evicted", "later_s"), [(0, 0), (12, 0), (12, 700)])
def test_a_path_that_is_half_stored_is_finished_at_shutdown(evicted, later_s):
    store = MemoryStore()
    engine = engine_on(tier_on(store, threads=True), pages=PAGES)
    engine.manager.lower._backlog.budget = StepBudget(pages=8, looks=256, seconds=60.0)
    prompt = prompt_of(60)
    serve(engine, "first", prompt)
    serve(engine, "again", prompt)
    assert engine.step()
    for node in engine.manager.tree.nodes():
        node.output = True  # as in a reply that is part of the next prompt: by itself it would not be saved
    for _ in range(evicted):
        engine.manager.evict("test")
    engine.manager.lower._backlog._has_room = lambda: False
    serve(engine, "in their place", prompt_of(PAGES - 60 + evicted - 4, "other"))  # in the pages that were evicted
    store.clock.pass_by(later_s)
    engine.save(20)
    assert len(store.values) >= 60
    assert ask_other(store, prompt) == 60 * 4 - 1  # which compares each page with what computing gives


def test_a_store_that_came_back_empty_is_filled_again_by_what_is_used_again():
    store = MemoryStore()
    engine, prompt = used_twice(store, pages=20)
    run(engine)
    work(engine)
    assert len(store.values) == 20
    store.values.clear()
    store.down = True
    engine.far.reach()
    serve(engine, "while it is down", prompt)
    run(engine)
    store.down = False
    engine.far.reach()
    serve(engine, "again", prompt)
    run(engine)
    work(engine)
    assert len(store.values) == 20


def test_a_prompt_that_nobody_fetches_is_written_anew_some_time_after_the_store_forgot_it():
    store = MemoryStore()
    engine, prompt = used_twice(store, pages=20)
    run(engine)
    work(engine)
    store.values.clear()
    serve(engine, "soon", prompt)
    run(engine)
    work(engine)
    assert not store.values
    store.clock.pass_by(1300)
    serve(engine, "late", prompt)
    run(engine)
    work(engine)
    assert len(store.values) == 20


def test_more_paths_than_are_kept_are_taken_in_when_they_are_used_once_more():
    store = MemoryStore()
    engine = engine_of(store, pages=50)
    engine.manager.lower._backlog.MOST = 3
    prompts = [prompt_of(8, number) for number in range(5)]
    backlog = engine.manager.lower._backlog
    has_room, backlog._has_room = backlog._has_room, lambda: False
    for turn in range(2):
        for number, prompt in enumerate(prompts):
            serve(engine, f"{turn} {number}", prompt)
    assert len(backlog) == 3
    backlog._has_room = has_room
    run(engine)
    serve(engine, "once more", prompts[4])
    run(engine)
    work(engine)
    assert len(store.values) == 4 * 8


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_is_used_evicted_and_written_in_whatever_order_no_page_is_forgotten(seed):
    """Heads that branch, evictions, slow lines, stores that die: what is marked as stored has no gap before it."""
    rng = random.Random(seed)
    store = MemoryStore()
    engine = engine_of(store, pages=rng.choice([14, 30, 60]), queue_bytes=rng.choice([2000, 2**20]))
    engine.manager.lower._backlog.budget = StepBudget(rng.choice([1, 3, 8]), rng.choice([1, 5, 256]), 60.0)
    engine.manager.lower._backlog.MOST = rng.choice([1, 2, 256])
    head = prompt_of(10, seed)
    sent = []
    for turn in range(60):
        kind = rng.random()
        if kind < 0.35:
            prompt = head[: 4 * rng.randrange(1, 9)] + [rng.randrange(2) for _ in range(rng.randrange(1, 12))]
            sent.append((prompt, ask(engine, str(turn), prompt, rng.choice([1, 5]))))
        elif kind < 0.5:
            engine.manager.evict("test")
        elif kind < 0.55:
            store.down = not store.down
            engine.far.reach()
        elif kind < 0.6:
            store.clock.pass_by(rng.choice([1.0, 700.0]))
        elif kind < 0.7:
            work(engine)
        else:
            engine.step()
        assert engine.check() == []
    store.down = False
    engine.far.reach()
    run(engine)
    work(engine)
    assert not engine.has_work
    for prompt, sink in sent:
        assert sink.tokens() == continuation(prompt, len(sink.tokens())) and sink.finished()


@pytest.mark.parametrize("pages", [1, 300])
def test_the_disk_gets_a_prompt_in_small_steps_too(tmp_path, pages):
    disk = DiskTier(tmp_path, 10**7, "m")
    engine = engine_on(None, pages=320, host_pages=1)
    lower = engine.manager.lower
    lower.tiers = lower.near = (disk,)
    lower._durable = [disk]
    prompt = prompt_of(pages)
    serve(engine, "first", prompt)
    serve(engine, "again", prompt)
    seen = reads(engine)
    until = time.monotonic() + 60
    while engine.has_work and time.monotonic() < until:
        before = len(seen)
        if not engine.step():
            time.sleep(0.002)  # its line is full
        assert len(seen) - before <= 8
    assert not engine.has_work and disk.wait()
    assert disk.counts["written"] >= pages and disk.counts["dropped"] == 0
    disk.close(5)
