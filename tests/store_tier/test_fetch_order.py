"""Requests whose pages are on their way keep their place: others go on meanwhile, within the bounds that hold for all."""

import random

from memory_store import MemoryStore, ask, engine_on, prompt_of, run, tier_on, work
from replay import Collected, continuation

from agentcache.engine.core import EngineCore
from agentcache.request import SequenceState


def store_with(*prompts: list[int]) -> MemoryStore:
    store = MemoryStore()
    engine = engine_on(tier_on(store), pages=64)
    for number, prompt in enumerate(prompts):
        ask(engine, str(number), prompt)
        run(engine)
    engine.manager.flush()
    work(engine)
    return store


SHORT = [1, 2, 3]
"""No whole page, so nothing of it is ever asked for."""


def served(engine: EngineCore, count: int, before: Collected) -> int:
    """How many short requests are served, of ``count`` that come one after the other, until ``before`` is."""
    done = 0
    for number in range(count):
        sink = ask(engine, f"short {number}", SHORT)
        for _ in range(4):
            engine.step()
            assert engine.check() == []
        if before.finished():
            return done
        done += sink.finished() is not None
    return done


def test_others_are_served_while_pages_of_the_first_are_on_their_way():
    prompt = prompt_of(30)
    engine = engine_on(tier_on(store_with(prompt)), look_ahead=1)
    first = ask(engine, "first", prompt)
    assert served(engine, 5, first) == 5 and not first.finished()
    run(engine)
    assert first.tokens() == continuation(prompt, 1) and first.finished().report.tier_tokens["store"] == 28


def test_a_request_that_waits_for_its_pages_is_overtaken_as_often_as_any_other_and_no_more():
    prompt = prompt_of(30)  # two steps of prefill
    engine = engine_on(tier_on(store_with(prompt)), max_overtakes=3)
    first = ask(engine, "first", prompt)
    assert served(engine, 20, first) == 6 and not first.finished()
    engine.far._store.clock.pass_by(100)  # its time is over, although the store has not answered
    for _ in range(4):
        engine.step()
    assert first.tokens() == continuation(prompt, 1) and first.finished().report.cached_tokens == 0
    run(engine)


def test_where_nobody_may_be_overtaken_the_others_wait_for_the_fetch_too():
    prompt = prompt_of(30)
    engine = engine_on(tier_on(store_with(prompt)), max_overtakes=0)
    first = ask(engine, "first", prompt)
    engine.step()
    assert served(engine, 3, first) == 0
    work(engine)
    engine.step()
    assert first.finished() or engine.scheduler.running[0].request.request_id == "first"
    run(engine)


def test_who_waits_for_pages_does_not_fill_the_window_of_those_who_are_tried():
    prompts = [prompt_of(30, n) for n in range(6)]
    engine = engine_on(tier_on(store_with(*prompts)), look_ahead=2, pages=64)
    sinks = [ask(engine, f"fetched {n}", prompt) for n, prompt in enumerate(prompts)]
    late = ask(engine, "short", SHORT)
    for _ in range(10):
        engine.step()
        assert engine.check() == []
    assert late.finished() and not any(sink.finished() for sink in sinks)
    run(engine)
    assert all(sink.finished().report.tier_tokens["store"] >= 28 for sink in sinks)


def preempted_and_evicted() -> tuple[EngineCore, Collected, Collected]:
    """A pool of eight pages, in which the second of two sequences had to give its pages back, and lost them."""
    engine = engine_on(tier_on(MemoryStore()), pages=8)
    prompts = [prompt_of(12, "a"), prompt_of(12, "b")]
    sinks = [ask(engine, name, prompt, max_tokens=14) for name, prompt in zip("ab", prompts, strict=True)]
    for _ in range(100):
        if engine.scheduler.preempted:
            break
        if not engine.step():
            work(engine)
    assert engine.scheduler.preempted
    return engine, *sinks


def test_nobody_begins_anew_while_pages_of_a_preempted_one_are_on_their_way():
    engine, first, second = preempted_and_evicted()
    while not first.finished():
        engine.step()
    engine.manager.flush()
    while engine.far._writer.write_next():
        pass
    assert engine.far._store.values
    fetching = engine.scheduler.preempted[0]
    for _ in range(3):
        late = ask(engine, f"late {random.random()}", SHORT)
        engine.step()
        assert fetching.state is SequenceState.PREEMPTED and fetching.errand.pending and not late.finished()
    run(engine)
    assert second.tokens() == continuation(prompt_of(12, "b"), 14)
    assert second.finished().report.computed_tokens < 12 + 14 + 12, "its pages were computed again"
