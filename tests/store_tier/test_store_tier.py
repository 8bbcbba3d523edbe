"""A store behind one engine or two: pages come back as they were, from another engine too, or not at all."""

import random
from collections import Counter

import pytest
from memory_store import ROOT, MemoryStore, engine_on, prompt_of, run, tier_on, work
from replay import Collected, continuation, make_request

from agentcache.cache.hashing import pack_tokens
from agentcache.cache.tiers import StoredPage
from agentcache.request import SequenceReport
from agentcache.store.fetch_staging import Staging


def ask(engine, prompt, max_tokens=4, root=ROOT, name=None, **params) -> Collected:
    request, sink = make_request(name or f"r{random.random()}", prompt, root, max_tokens=max_tokens, **params)
    engine.add(request)
    return sink


def right(prompt, sink, max_tokens=4) -> SequenceReport:
    assert sink.tokens() == continuation(prompt, max_tokens)
    return sink.finished().report


def serve(engine, prompt, **options) -> SequenceReport:
    sink = ask(engine, prompt, **options)
    run(engine)
    return right(prompt, sink)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def written(store):
    """The store after an engine evicted the pages of ``prompt_of(30)``."""
    first = engine_on(tier_on(store))
    serve(first, prompt_of(30))
    first.manager.flush()
    work(first)
    assert len(store.values) == 8
    return store


def test_a_prompt_that_another_engine_evicted_is_warm_here(written):
    engine = engine_on(tier_on(written))
    report = serve(engine, prompt_of(30))
    assert report.cached_tokens == 28 and dict(report.tier_tokens) == {"store": 28} and report.cached_pages == 7
    again = serve(engine, prompt_of(30))
    assert again.cached_tokens == 29 and not again.tier_tokens
    stats = engine.stats()
    assert stats.counters["cached_tokens_store"] == 28
    assert stats.far.fetches["fetched"] == 1 and stats.far.pages["read"] == 7


def test_a_prompt_that_was_used_twice_is_in_the_store_before_it_is_evicted(store):
    first = engine_on(tier_on(store))
    serve(first, prompt_of(30))
    work(first)
    assert not store.values
    serve(first, prompt_of(30))
    work(first)
    assert serve(engine_on(tier_on(store)), prompt_of(30)).cached_tokens == 28


def test_a_prompt_that_was_alive_at_shutdown_is_warm_for_others(store):
    first = engine_on(tier_on(store, threads=True))
    serve(first, prompt_of(30))
    first.save(10)
    assert serve(engine_on(tier_on(store)), prompt_of(30)).cached_tokens == 28


def test_a_fetch_takes_only_what_nearer_tiers_lack(written):
    engine = engine_on(tier_on(written))
    serve(engine, prompt_of(30)[:18])
    report = serve(engine, prompt_of(30))
    assert report.cached_tokens == 28 and dict(report.tier_tokens) == {"store": 12}


def test_the_engine_goes_on_while_pages_are_on_their_way(written):
    engine = engine_on(tier_on(written))
    waits, other = ask(engine, prompt_of(30)), ask(engine, prompt_of(3, "other"))
    while not other.finished():
        assert engine.step()
    assert not waits.finished()
    run(engine)
    right(prompt_of(3, "other"), other)
    assert right(prompt_of(30), waits).cached_tokens == 28


def test_requests_with_the_same_missing_pages_share_one_fetch(written):
    engine = engine_on(tier_on(written), pages=40)
    ends = [prompt_of(30) + prompt_of(5, n) for n in range(3)]
    sinks = [ask(engine, prompt) for prompt in ends]
    run(engine)
    for prompt, sink in zip(ends, sinks):
        assert right(prompt, sink).cached_tokens >= 28
    assert engine.stats().far.pages["read"] == 7


def test_what_follows_pages_that_another_request_fetches_is_fetched_beside_them(store):
    first = engine_on(tier_on(store), pages=40)
    ends = [prompt_of(12) + prompt_of(12, n) for n in range(2)]
    for prompt in ends:
        serve(first, prompt)
    first.manager.flush()
    work(first)
    engine = engine_on(tier_on(store), pages=40)
    sinks = [ask(engine, prompt) for prompt in ends]
    run(engine)
    assert [right(prompt, sink).cached_tokens for prompt, sink in zip(ends, sinks)] == [23, 23]
    assert engine.stats().far.pages["read"] == 9


def test_an_aborted_request_leaves_nothing_behind(written):
    engine = engine_on(tier_on(written))
    ask(engine, prompt_of(30), name="a")
    engine.step()
    work(engine)
    assert engine.far.stats().pages == 7
    engine.abort("a")
    assert engine.check() == []
    assert engine.far.stats().pages == 0 and not engine.has_work


def test_a_request_that_is_aborted_before_its_pages_came_is_not_fetched_for(written):
    engine = engine_on(tier_on(written))
    ask(engine, prompt_of(30), name="a")
    engine.step()
    engine.abort("a")
    gets = written.count("get")
    work(engine)
    assert engine.check() == [] and written.count("get") == gets and engine.far.stats().pages == 0


def test_a_request_asks_once(store):
    engine = engine_on(tier_on(store))
    serve(engine, prompt_of(30))
    assert store.count("exists") == 1
    assert engine.stats().far.fetches["nothing"] == 1


def test_tenants_never_get_each_other_s_pages(written):
    engine = engine_on(tier_on(written), pages=40)
    assert serve(engine, prompt_of(30), root=b"somebody else").cached_tokens == 0
    assert serve(engine, prompt_of(30)).cached_tokens == 28


def test_pages_of_another_model_are_not_asked_for(written):
    engine = engine_on(tier_on(written, fingerprint="another"))
    assert serve(engine, prompt_of(30)).cached_tokens == 0


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda value: value[:-1], "short"),
        (lambda value: value[:70], "short"),
        (lambda value: value[:-1] + bytes([value[-1] ^ 1]), "damaged"),
        (lambda value: value + b"x", "damaged"),
        (lambda value: b"something else" * 20, "foreign"),
    ],
)
def test_a_value_that_is_not_the_page_is_a_miss_and_is_counted(written, spoil, reason):
    written.spoil = spoil
    engine = engine_on(tier_on(written))
    assert serve(engine, prompt_of(30)).cached_tokens == 0
    assert engine.stats().far.rejected[reason] == 1
    written.spoil = lambda value: value
    engine.manager.flush()
    work(engine)
    assert serve(engine_on(tier_on(written)), prompt_of(30)).cached_tokens == 28


def test_what_is_said_to_be_there_and_is_not_is_a_miss(written):
    written.spoil = lambda value: None
    assert serve(engine_on(tier_on(written)), prompt_of(30)).cached_tokens == 0


@pytest.mark.parametrize(("bad", "tokens"), [(2, 8), (4, 16)])
def test_what_came_before_the_first_bad_page_is_used_and_what_came_behind_it_is_not_kept(written, bad, tokens):
    given = iter(range(100))
    written.spoil = lambda value: value if next(given) != bad else value[:-1]
    engine = engine_on(tier_on(written))
    assert serve(engine, prompt_of(30)).cached_tokens == tokens
    assert engine.far.far_stats().pages["read"] == bad


def test_a_page_that_arrives_twice_is_held_once():
    staging = Staging(1000)
    page = StoredPage(b"key", b"parent", b"tokens", b"1234")
    staging.want([page.key])
    assert staging.put(page) and staging.put(page) and staging.bytes == 4
    assert staging.check(Counter([page.key])) == []
    staging.unwant([page.key])
    assert not staging.put(page) and staging.bytes == len(staging) == 0


def test_nobody_waits_for_a_dead_store_after_it_was_found_dead(written):
    engine = engine_on(tier_on(written), pages=60)
    written.down = True
    for n in range(2):
        serve(engine, prompt_of(20, n))
    assert engine.far.trouble() == "memory://test does not answer" and not engine.stats().far.up
    calls = len(written.calls)
    serve(engine, prompt_of(20, 3))
    assert len(written.calls) == calls
    assert engine.far.reach() is not None
    written.down = False
    assert engine.far.reach() is None and engine.far.trouble() is None
    assert serve(engine, prompt_of(30)).cached_tokens == 28


def test_a_page_is_written_once_and_not_by_each_who_has_it(written):
    sets = written.count("set")
    for _ in range(2):
        engine = engine_on(tier_on(written))
        for _ in range(2):
            serve(engine, prompt_of(30))
        engine.manager.flush()
        work(engine)
    # Nothing is new but the tail that was generated.
    assert written.count("set") - sets <= 2


def test_pages_that_wait_to_be_written_are_bounded_and_the_oldest_go(store):
    tier = tier_on(store, queue_bytes=200)
    engine = engine_on(tier, pages=40)
    serve(engine, prompt_of(60))
    engine.manager.flush()
    assert engine.check() == []
    assert 0 < len(tier._writer) < 6
    assert engine.stats().far.pages["dropped"] > 8
    work(engine)
    assert engine.far.stats().counts["written"] == len(store.values) > 0


def test_fetched_pages_are_bounded(written):
    engine = engine_on(tier_on(written, staging_bytes=3 * 64))
    sink = ask(engine, prompt_of(30))
    run(engine)
    assert 0 < right(prompt_of(30), sink).cached_tokens < 28


@pytest.mark.parametrize("what", [lambda value: b"x" + value[1:], lambda value: value[:50], lambda value: None])
def test_what_is_no_page_is_written_anew_by_whoever_computes_it_although_something_is_there(written, what):
    good = dict(written.values)
    spoiled = next(key for key, value in good.items() if pack_tokens(prompt_of(30)[8:12]) in value)

    class Spoiled(dict):
        def get(self, key):
            return what(value) if (value := super().get(key)) is not None and key == spoiled else value

    written.values = Spoiled(good)
    engine = engine_on(tier_on(written))
    for _ in range(4):  # the first transfers are small
        serve(engine, prompt_of(30))
        engine.manager.flush()
        written.calls.clear()
        work(engine)
        if written.count("set"):
            break
    assert engine.far.far_stats().pages["written"] == 1
    written.values = dict(written.values)
    assert written.values == good
    serve(engine, prompt_of(30))
    engine.manager.flush()
    work(engine)
    assert engine.far.far_stats().pages["written"] == 1
