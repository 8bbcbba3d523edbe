import random

import pytest
from replay import VOCAB, Collected, PlainText, ReplayRunner, continuation, make_request

from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.errors import QueueFullError, RequestError
from agentcache.request import FinishReason
from agentcache.scheduler.scheduler import Limits, Scheduler

EOS = VOCAB - 1


def make_engine(pages=32, size=4, budget=16, running=8, waiting=100, context=512, eos=(), cache=True) -> EngineCore:
    manager = CacheManager(pages, size, enabled=cache)
    bounds = Bounds(context, min(context, pages * size), VOCAB, running)
    scheduler = Scheduler(manager, Limits(budget, running, waiting))
    runner = ReplayRunner(pages, size)
    return EngineCore(
        scheduler, runner, PlainText, frozenset(eos), bounds, faults=manager.faults, seeds=random.Random(0)
    )


def run(engine: EngineCore, limit=2000) -> int:
    steps = 0
    while engine.has_work:
        engine.step()
        assert engine.check() == []
        steps += 1
        assert steps < limit, "the engine does not come to an end"
    return steps


def drained(engine: EngineCore) -> bool:
    counts = engine.manager.counts()
    engine.manager.flush()
    return counts.live == 0 and engine.manager.counts().free == counts.total


def ask(engine: EngineCore, name: str, prompt, **params) -> Collected:
    request, sink = make_request(name, prompt, **params)
    engine.add(request)
    return sink


def prompt_of(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(f"{seed}/{length}")
    return [rng.randrange(VOCAB) for _ in range(length)]


def test_requests_of_any_length_get_what_they_would_get_alone():
    engine = make_engine(pages=200, budget=10)
    prompts = [prompt_of(n, n) for n in (1, 3, 4, 5, 15, 16, 17, 31, 40)]
    sinks = [ask(engine, str(i), prompt, max_tokens=9) for i, prompt in enumerate(prompts)]
    run(engine)
    for prompt, sink in zip(prompts, sinks):
        assert sink.tokens() == continuation(prompt, 9)
        assert sink.finished().finish_reason is FinishReason.LENGTH
    assert drained(engine)


def test_a_second_request_computes_only_what_is_new():
    engine = make_engine()
    prompt = prompt_of(22)
    ask(engine, "a", prompt, max_tokens=6)
    run(engine)
    before = engine.runner.rows
    second = ask(engine, "b", prompt + continuation(prompt, 6) + [1, 2, 3], max_tokens=1)
    run(engine)
    report = second.finished().report
    # The last generated token has no keys and values yet.
    assert (report.prompt_tokens, report.cached_tokens, report.cached_pages, report.partial_tokens) == (31, 27, 6, 3)
    assert report.computed_tokens == engine.runner.rows - before == 4
    assert drained(engine)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 12, 13])
def test_the_same_prompt_again_is_cached_but_for_its_tail(length):
    engine = make_engine()
    prompt = prompt_of(length)
    sinks = []
    for name in "ab":
        sinks.append(ask(engine, name, prompt))
        run(engine)
    cold, warm = (sink.finished().report for sink in sinks)
    assert cold.cached_tokens == 0
    assert (-(-length // 4) - 1) * 4 <= warm.cached_tokens <= length - 1
    assert sinks[0].tokens() == sinks[1].tokens() == continuation(prompt, 8)


def test_sixteen_equal_cold_prompts_are_computed_once():
    engine = make_engine(pages=128, budget=16, running=16)
    prompt = prompt_of(60)
    sinks = [ask(engine, str(i), prompt, max_tokens=1) for i in range(16)]
    run(engine)
    assert all(sink.tokens() == continuation(prompt, 1) for sink in sinks)
    assert engine.runner.rows == 60 + 15  # and a read-only redo each
    assert drained(engine)


def test_followers_go_on_when_the_one_they_waited_for_is_aborted():
    engine = make_engine(budget=8)
    prompt = prompt_of(40)
    first = ask(engine, "leader", prompt)
    second = ask(engine, "follower", prompt)
    engine.step()
    engine.step()
    engine.abort("leader")
    run(engine)
    assert first.finished().finish_reason is FinishReason.ABORT
    assert second.tokens() == continuation(prompt, 8)
    assert second.finished().report.cached_tokens == 16  # what the leader had computed and published
    assert drained(engine)


def test_several_sequences_compute_their_prompt_once_and_share_its_tail():
    engine = make_engine(pages=64)
    prompt = prompt_of(18)
    sink = ask(engine, "n", prompt, n=4, temperature=1.0, seed=11, max_tokens=7)
    run(engine)
    for index in range(4):
        assert sink.tokens(index) == continuation(prompt, 7, seed=11 + index, greedy=False)
    assert engine.runner.rows == 18 + 4 * 6
    assert sum(o.report.computed_tokens for o in sink.outputs if o.report) == engine.runner.rows
    assert [o.report.cached_tokens for o in sink.outputs if o.report] == [0, 0, 0, 0]
    assert drained(engine)


def test_pages_run_out_and_everybody_still_finishes_with_the_same_tokens():
    engine = make_engine(pages=10, running=6)
    prompts = [prompt_of(8, n) for n in range(6)]
    sinks = [ask(engine, str(n), prompt, max_tokens=24) for n, prompt in enumerate(prompts)]
    run(engine)
    assert engine.scheduler.num_preemptions > 0
    for prompt, sink in zip(prompts, sinks):
        assert sink.tokens() == continuation(prompt, 24)
        assert sink.finished().report.prompt_tokens == 8
        assert sink.finished().report.cached_tokens == 0
    assert sum(sink.finished().report.preemptions for sink in sinks) == engine.scheduler.num_preemptions
    assert drained(engine)


def test_many_that_share_a_prefix_and_all_want_to_grow_finish():
    engine = make_engine(pages=96, size=4, budget=64, running=32, context=1024)
    shared = prompt_of(59 * 4)
    ask(engine, "warm", shared, max_tokens=1)
    run(engine)
    sinks = [ask(engine, str(n), [*shared, n], max_tokens=60) for n in range(32)]
    run(engine, limit=20_000)
    assert all(sink.tokens() == continuation([*shared, n], 60) for n, sink in enumerate(sinks))
    assert drained(engine)


def test_decodes_go_on_while_a_long_prompt_is_computed_in_chunks():
    engine = make_engine(pages=128, budget=16)
    short = ask(engine, "short", prompt_of(4), max_tokens=30)
    engine.step()
    ask(engine, "long", prompt_of(200), max_tokens=1)
    for step in range(2, 12):
        engine.step()
        assert len(short.tokens()) == step
    run(engine)
    assert engine.runner.largest_step <= 16


def test_a_prompt_that_can_never_fit_is_refused_with_both_numbers():
    engine = make_engine(pages=5, size=4, context=512)
    with pytest.raises(RequestError, match="20 tokens, and the page pool holds 20 tokens") as caught:
        ask(engine, "a", prompt_of(20))
    assert caught.value.code == "context_length_exceeded"
    engine = make_engine(pages=500, size=4, context=30)
    with pytest.raises(RequestError, match="31 tokens, and the context holds 30 tokens"):
        ask(engine, "a", prompt_of(31))


@pytest.mark.parametrize(
    ("length", "asked", "expected"), [(19, 5, 1), (10, None, 10), (10, 3, 3), (10, 10_000, 10), (1, None, 19)]
)
def test_a_reply_takes_the_room_left(length, asked, expected):
    engine = make_engine(pages=5, size=4)
    sink = ask(engine, "a", prompt_of(length), max_tokens=asked)
    run(engine)
    assert sink.tokens() == continuation(prompt_of(length), expected)
    assert sink.finished().finish_reason is FinishReason.LENGTH
    assert drained(engine)


@pytest.mark.parametrize("bad", [[], [-1], [VOCAB], [3, 10**9]])
def test_bad_token_ids_are_refused(bad):
    with pytest.raises(RequestError, match="got"):
        ask(make_engine(), "a", bad)


def test_the_queue_has_an_end():
    engine = make_engine(waiting=3)
    for n in range(3):
        ask(engine, str(n), prompt_of(4))
    with pytest.raises(QueueFullError, match="3 requests wait"):
        ask(engine, "x", prompt_of(4))
    run(engine)
    assert drained(engine)


def test_no_tokens_asked_for_is_an_answer_without_tokens():
    engine = make_engine()
    sink = ask(engine, "a", prompt_of(9), max_tokens=0)
    run(engine)
    assert sink.tokens() == []
    assert sink.finished().report.completion_tokens == 0


def test_all_sequences_end_when_no_tokens_are_asked_for():
    engine = make_engine()
    prompt = prompt_of(9)
    sink = ask(engine, "a", prompt, max_tokens=0, n=3, prompt_logprobs=0)
    run(engine)
    for index in range(3):
        final = sink.finished(index)
        assert final.finish_reason is FinishReason.LENGTH and final.report.completion_tokens == 0
        assert [entry and entry.token for entry in final.prompt_logprobs] == [None, *prompt[1:]]
    assert drained(engine)
    engine.abort("a")
    assert len(sink.outputs) == 3


@pytest.mark.parametrize("budget", [8, 64])
def test_seats_are_kept_for_sequences_that_follow(budget):
    engine = make_engine(pages=100, running=4, budget=budget)
    ask(engine, "several", prompt_of(30), n=4)
    others = [ask(engine, str(n), prompt_of(9, n)) for n in range(4)]
    most = 0
    while engine.has_work:
        engine.step()
        most = max(most, len(engine.scheduler.running))
        assert engine.check() == []
    assert most == 4
    assert all(other.tokens() == continuation(prompt_of(9, n), 8) for n, other in enumerate(others))


def test_a_request_of_several_sequences_is_counted_once():
    engine = make_engine(pages=64)
    ask(engine, "warm", prompt_of(9))
    run(engine)
    sink = ask(engine, "several", prompt_of(9), n=4)
    run(engine)
    assert [sink.finished(index).report.cached_tokens for index in range(4)] == [8, 0, 0, 0]
    counters, histograms = engine.metrics.counters, engine.metrics.histograms
    assert counters["prompt_tokens"] == 18
    assert counters["cached_tokens"] == 8
    assert counters["generation_tokens"] == 5 * 8
    for name in ("queue_time_seconds", "request_prompt_tokens", "time_to_first_token_seconds"):
        assert sum(histograms[name].counts) == 2
    assert sum(histograms["request_generation_tokens"].counts) == 5


def test_a_token_that_cannot_become_text_ends_its_own_request_only():
    class Stumbling(PlainText):
        def push(self, token):
            if self.stop:
                raise UnicodeError("for this test")
            return super().push(token)

    engine = make_engine()
    engine.make_text = Stumbling
    bad, good = ask(engine, "bad", prompt_of(9), n=2, stop=("x",)), ask(engine, "good", prompt_of(9))
    run(engine)
    for index in range(2):
        assert bad.finished(index).finish_reason is FinishReason.ERROR
        assert "for this test" not in bad.finished(index).error
    assert good.tokens() == continuation(prompt_of(9), 8)
    assert drained(engine)


def test_hits_and_misses_are_those_of_the_first_admission_however_often_pages_run_out():
    engine = make_engine(pages=10, running=6)
    sinks = [ask(engine, str(n), prompt_of(8, n), max_tokens=24) for n in range(6)]
    run(engine)
    assert engine.scheduler.num_preemptions > 0
    assert engine.manager.events.counts["Hit"] == 6
    assert engine.metrics.counters["prompt_tokens"] == 6 * 8
    assert sum(engine.manager.events.misses.values()) == 6
    assert all(sink.finished().report.cached_tokens == 0 for sink in sinks)


def test_a_receiver_that_fails_stops_nobody():
    engine = make_engine()
    request, _ = make_request("a", prompt_of(9))

    def broken(_):
        raise ValueError("for this test")

    request.sink = broken
    engine.add(request)
    good = ask(engine, "b", prompt_of(9))
    run(engine)
    assert good.tokens() == continuation(prompt_of(9), 8)
    assert drained(engine)


def test_a_smaller_priority_goes_first_and_equals_go_in_order_of_arrival():
    engine = make_engine(running=1)
    order = []
    for name, priority in (("a", 1), ("b", 0), ("c", 1), ("d", -1)):
        request, _ = make_request(name, prompt_of(6), priority=priority, max_tokens=1)
        request.sink = lambda output, name=name: order.append(name)
        engine.add(request)
    run(engine)
    assert order == ["d", "b", "a", "c"]


def test_a_prompt_moves_on_however_many_decode_beside_it():
    engine = make_engine(pages=64, budget=4, running=8)
    decoding = [ask(engine, str(n), prompt_of(4, n), max_tokens=40) for n in range(4)]
    while len(decoding[-1].tokens()) < 2:
        engine.step()
    late = ask(engine, "late", prompt_of(12, 9), max_tokens=1)
    for _ in range(3):
        engine.step()
    assert late.tokens() == continuation(prompt_of(12, 9), 1)
    run(engine)


def test_whoever_runs_keeps_room_for_a_page_when_others_are_admitted():
    engine = make_engine(pages=4, budget=64)
    first = ask(engine, "first", prompt_of(4), max_tokens=4)
    second = ask(engine, "second", prompt_of(12, 1), max_tokens=4)
    run(engine)
    assert engine.scheduler.num_preemptions == 0
    assert first.tokens() == continuation(prompt_of(4), 4)
    assert second.tokens() == continuation(prompt_of(12, 1), 4)


def test_whoever_lost_its_pages_comes_back_before_anybody_new():
    engine = make_engine(pages=6, budget=64, running=2)
    ask(engine, "first", prompt_of(4), max_tokens=16)
    ask(engine, "second", prompt_of(4, 1), max_tokens=16)
    new = ask(engine, "new", prompt_of(2, 2), max_tokens=1)
    waited = 0
    while engine.has_work:
        engine.step()
        if engine.scheduler.preempted:
            waited += 1
            assert new.outputs == []
    assert waited > 0 and new.tokens() == continuation(prompt_of(2, 2), 1)


def test_nobody_overtakes_a_request_that_waits_for_room():
    engine = make_engine(pages=10, running=8, budget=64)
    ask(engine, "runs", prompt_of(20), max_tokens=12)
    engine.step()
    ask(engine, "large", prompt_of(30, 1), max_tokens=1)
    small = ask(engine, "small", prompt_of(4, 2), max_tokens=1)
    engine.step()
    assert small.outputs == [] and len(engine.scheduler.waiting) == 2
    run(engine)
    assert small.tokens() == continuation(prompt_of(4, 2), 1)


def test_those_who_wait_for_another_ones_page_are_overtaken_by_those_who_need_not():
    engine = make_engine(pages=64, budget=24, running=8)
    ask(engine, "leader", prompt_of(20))
    ask(engine, "same", prompt_of(20))
    other = ask(engine, "other", prompt_of(4, 1))
    engine.step()
    assert len(other.tokens()) == 1
    run(engine)


def test_the_last_to_come_is_the_one_who_gives_its_pages_back():
    engine = make_engine(pages=10, running=4, budget=64)
    sinks = [ask(engine, str(n), prompt_of(8, n), max_tokens=20) for n in range(3)]
    run(engine)
    counts = [sink.finished().report.preemptions for sink in sinks]
    assert counts[0] == 0 and counts[2] >= 1


def test_a_resumed_request_computes_only_what_was_lost():
    engine = make_engine(pages=8, running=4, budget=64)
    first = ask(engine, "first", prompt_of(8), max_tokens=16)
    second = ask(engine, "second", prompt_of(8, 1), max_tokens=12)
    run(engine)
    report = second.finished().report
    assert report.preemptions >= 1
    # Its own pages stayed as cache unless the first one needed them; what it ran twice is less than all it ran.
    assert 8 + 11 <= report.computed_tokens < 2 * (8 + 11)
    assert first.finished().report.computed_tokens == 8 + 15


def test_a_resumed_request_is_served_from_the_cache_even_if_its_prompt_had_to_be_computed():
    engine = make_engine(pages=8, running=4, budget=64)
    ask(engine, "first", prompt_of(8), max_tokens=16)
    second = ask(engine, "second", prompt_of(8, 1), max_tokens=12, prompt_logprobs=0)
    while not engine.scheduler.preempted:
        engine.step()
    resumed = engine.scheduler.preempted[0]
    while resumed.lease is None:
        engine.step()
    assert resumed.lease.cached_tokens > 0
    run(engine)
    assert second.tokens() == continuation(prompt_of(8, 1), 12)


def test_generated_pages_leave_before_any_prompts():
    engine = make_engine()
    sink = ask(engine, "a", prompt_of(10), max_tokens=10)
    run(engine)
    end = engine.manager.tree.match(PagedTokens(prompt_of(10) + sink.tokens(), 4, b"root"), 20).node
    assert [node.output for node in end.path()] == [False, False, True, True]


def test_figures_of_the_prompt_survive_the_loss_of_pages():
    engine = make_engine(pages=9, running=3, budget=5)
    prompts = [prompt_of(9, n) for n in range(3)]
    sinks = [ask(engine, str(n), prompt, max_tokens=20, prompt_logprobs=0) for n, prompt in enumerate(prompts)]
    run(engine)
    assert engine.scheduler.num_preemptions > 0
    for prompt, sink in zip(prompts, sinks):
        figures = [o.prompt_logprobs for o in sink.outputs if o.prompt_logprobs is not None]
        assert [[entry and entry.token for entry in one] for one in figures] == [[None, *prompt[1:]]]
        assert sink.tokens() == continuation(prompt, 20)


def test_nothing_is_left_behind_by_thousands_of_requests_in_as_many_namespaces():
    engine = make_engine(pages=12, budget=32)
    for n in range(3000):
        request, _ = make_request(str(n), [n % 50, 1, 2, 3, 4], root=n.to_bytes(16, "little"), max_tokens=1)
        engine.add(request)
        if n % 3 == 0:
            engine.abort(str(n))
        engine.step()
    run(engine)
    tree = engine.manager.tree
    assert engine._requests == {} and not list(engine.manager.announced())
    assert len(tree) <= 12 and len(list(tree.roots())) <= 12 and len(tree.queue) <= 12
    assert len(tree._evicted) <= 1024
    assert drained(engine)


@pytest.mark.parametrize("site", ["forward", "sampler", "alloc"])
@pytest.mark.parametrize("at", [1, 2, 4, 9])
def test_a_fault_ends_the_requests_it_hit_and_nothing_else(site, at):
    engine = make_engine()
    engine.faults.arm(site, at)
    sinks = [ask(engine, str(n), prompt_of(10 + n, n)) for n in range(3)]
    run(engine)
    reasons = [sink.finished().finish_reason for sink in sinks]
    assert FinishReason.ERROR in reasons
    for n, (sink, reason) in enumerate(zip(sinks, reasons)):
        if reason is FinishReason.LENGTH:
            assert sink.tokens() == continuation(prompt_of(10 + n, n), 8)
        else:
            assert "failed" in sink.finished().error and "Injected" not in sink.finished().error
    after = ask(engine, "after", prompt_of(10, 0))
    run(engine)
    assert after.tokens() == continuation(prompt_of(10, 0), 8)
    assert drained(engine)


def test_pages_of_a_failed_step_are_never_matched():
    engine = make_engine()
    engine.faults.arm("sampler", 1)
    ask(engine, "a", prompt_of(16))
    run(engine)
    assert engine.manager.counts().cached == 0


@pytest.mark.parametrize("seed", range(40))
def test_random_traffic_is_answered_as_if_each_request_were_alone(seed):
    """Aborts at any moment, shared and repeated prompts, n > 1, a pool that is too small for all of them."""
    rng = random.Random(seed)
    pages = rng.choice([14, 20, 60])
    engine = make_engine(pages=pages, budget=rng.choice([4, 8, 32]), running=rng.choice([2, 5, 12]), context=256)
    heads = [prompt_of(rng.randrange(1, 24), n) for n in range(3)]
    sent = {}
    aborted = set()
    for turn in range(120):
        if rng.random() < 0.4:
            prompt = (rng.choice(heads) + prompt_of(rng.randrange(0, 9), turn))[: pages * 4 - 12] or [1]
            options = {
                "max_tokens": rng.randrange(1, 12),
                "n": rng.choice([1, 1, 2]),
                "seed": turn,
                "temperature": rng.choice([0.0, 1.0]),
            }
            name = str(turn)
            sent[name] = (prompt, options, ask(engine, name, prompt, **options))
        if rng.random() < 0.08 and sent:
            name = rng.choice(list(sent))
            engine.abort(name)
            aborted.add(name)
        engine.step()
        assert engine.check() == []
    run(engine, limit=5000)
    for name, (prompt, options, sink) in sent.items():
        for index in range(options["n"]):
            expected = continuation(prompt, options["max_tokens"], options["seed"] + index, not options["temperature"])
            got = sink.tokens(index)
            if name in aborted:
                assert got == expected[: len(got)]
            else:
                assert got == expected
    assert drained(engine)
