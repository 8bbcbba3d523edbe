"""What an ingress knows of the pages of replicas is what they said, however their answers arrive."""

import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.cache.residency import AllLeft, PageArrived, PageLeft
from agentcache.routing.feed import Cursor, PageFeed, split_keys
from agentcache.routing.loads import ReplicaLoad
from agentcache.routing.table import ReplicaTable

TIERS = ("device", "host", "disk")


def key(number):
    return number.to_bytes(16, "little")


def arrived(number, tier="device"):
    return PageArrived(key(number), b"", b"", b"", tier)


def catch_up(table, replica, feed, limit=16384):
    """Ask until nothing is left; as a poller does."""
    for _ in range(10_000):
        delta = feed.since(table.cursor(replica), limit)
        table.apply(replica, delta)
        if not delta.more:
            return
    raise AssertionError("it never ends")


def known(table, replica, numbers):
    return {number for number in numbers if replica in table.held([key(number)])}


def test_a_page_counts_while_any_tier_has_it():
    feed = PageFeed()
    for change in (arrived(1), arrived(1, "host"), PageLeft(key(1), "device")):
        feed.hear(change)
    assert len(feed) == 1 and feed.change == 1
    feed.hear(PageLeft(key(1), "host"))
    assert len(feed) == 0 and feed.change == 2
    feed.hear(PageLeft(key(1), "host"))  # told although it never was there
    assert feed.change == 2


def test_a_tier_that_empties_takes_what_no_other_has():
    feed = PageFeed()
    for change in (arrived(1), arrived(2), arrived(2, "disk"), AllLeft("device")):
        feed.hear(change)
    assert split_keys(feed.since(None).added) == [key(2)]


def test_an_answer_is_bounded_and_says_that_there_is_more():
    feed = PageFeed(ring=64)
    for number in range(1000):
        feed.hear(arrived(number))
    first = feed.since(None, limit=100)
    assert first.whole and first.more and len(split_keys(first.added)) == 100
    feed.hear(PageLeft(key(0), "device"))
    table = ReplicaTable()
    table.join("r")
    catch_up(table, "r", feed, limit=100)
    assert known(table, "r", range(1000)) == set(range(1, 1000))


def test_a_cursor_of_another_life_or_from_too_long_ago_gets_everything():
    feed = PageFeed(ring=4, epoch=7)
    for number in range(10):
        feed.hear(arrived(number))
    for cursor in (None, Cursor(8, 10), Cursor(7, 3), Cursor(7, 99), Cursor(7, 9, part=3)):
        delta = feed.since(cursor)
        assert delta.whole and len(split_keys(delta.added)) == 10 and delta.cursor == Cursor(7, 10)
    assert not feed.since(Cursor(7, 6)).whole


def test_what_rides_along_is_little_or_nothing():
    feed = PageFeed()
    feed.hear(arrived(1))
    start = feed.since(None).cursor
    assert feed.recent(start) is None
    assert feed.recent(None) is None
    load = ReplicaLoad(5, 1)
    assert feed.recent(start, load=load).load == load
    for number in range(10):
        feed.hear(arrived(number))
    assert feed.recent(start, limit=5) is None
    assert len(split_keys(feed.recent(start, limit=9).added)) == 9
    assert pickle.loads(pickle.dumps(feed.recent(start))) == feed.recent(start)


def test_a_chain_is_counted_without_gaps():
    table = ReplicaTable()
    feeds = {name: PageFeed() for name in ("a", "b", "c")}
    for name, numbers in {"a": range(10), "b": (0, 1, 2, 5, 6), "c": (3, 4)}.items():
        table.join(name)
        for number in numbers:
            feeds[name].hear(arrived(number))
        catch_up(table, name, feeds[name])
    chain = [key(number) for number in range(12)]
    assert table.held(chain) == {"a": 10, "b": 3}
    assert table.held(chain[:2]) == {"a": 2, "b": 2}
    assert table.held([]) == {}


def test_a_burst_is_expected_where_its_first_request_went():
    now = [0.0]
    table = ReplicaTable(expect_s=10, clock=lambda: now[0])
    table.join("a")
    table.join("b")
    chain = [key(number) for number in range(5)]
    table.expect("a", chain)
    assert table.held(chain) == {"a": 5}
    table.forget("a", chain)
    assert table.held(chain) == {}
    table.expect("a", chain)
    now[0] = 10.0
    assert table.held(chain) == {"a": 5}  # for this long at least
    now[0] = 25.0
    table.expect("b", chain)
    now[0] = 31.0
    assert table.held(chain) == {"b": 5}
    table.leave("b")
    assert table.held(chain) == {}


def test_what_was_evicted_is_not_expected_any_more():
    table, feed = ReplicaTable(), PageFeed()
    table.join("a")
    table.expect("a", [key(1)])
    feed.hear(arrived(1))
    catch_up(table, "a", feed)
    feed.hear(PageLeft(key(1), "device"))
    catch_up(table, "a", feed)
    assert table.held([key(1)]) == {}


def test_expectations_are_bounded():
    table = ReplicaTable(max_expected=100)
    table.join("a")
    for start in range(0, 10_000, 10):
        table.expect("a", [key(number) for number in range(start, start + 10)])
    assert known(table, "a", range(9_990, 10_000)) == set(range(9_990, 10_000))
    assert len(known(table, "a", range(10_000))) <= 220


def test_replicas_that_come_and_go_leave_nothing_behind():
    """Bits are used again only when nothing of their last owner is left; keys that nobody has are dropped."""
    table = ReplicaTable()
    for life in range(200):
        name, feed = f"r{life}", PageFeed()
        table.join(name)
        for number in range(life, life + 50):
            feed.hear(arrived(number))
        catch_up(table, name, feed)
        assert known(table, name, range(400)) == set(range(life, life + 50))
        table.leave(name)
    table.join("last")
    assert known(table, "last", range(400)) == set()
    for _ in range(10):
        table.apply("last", PageFeed(epoch=1).since(None))
        table.leave("last")
        table.join("last")
    assert len(table) <= 50
    assert max(table._held.values(), default=0).bit_length() <= 8


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 30), st.sampled_from(TIERS)),
        st.tuples(st.just("go"), st.integers(0, 30), st.sampled_from(TIERS)),
        st.tuples(st.just("empty"), st.just(0), st.sampled_from(TIERS)),
        st.tuples(st.just("ask"), st.integers(1, 20), st.just("")),
        st.tuples(st.just("deliver"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("restart"), st.just(0), st.just("")),
        st.tuples(st.just("rejoin"), st.just(0), st.just("")),
    ),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(changes=CHANGES, ring=st.integers(1, 40))
def test_lost_repeated_and_reordered_answers_end_in_what_the_replica_has(changes, ring):
    """Answers are asked for at one time and delivered at another, in any order, some of them twice and some never."""
    table, feed, model = ReplicaTable(), PageFeed(ring), {}
    table.join("other")
    table.join("r")
    noise = PageFeed()
    noise.hear(arrived(3))
    catch_up(table, "other", noise)
    flying = []
    for what, number, tier in changes:
        if what == "come":
            feed.hear(arrived(number, tier))
            model.setdefault(number, set()).add(tier)
        elif what == "go":
            feed.hear(PageLeft(key(number), tier))
            model.get(number, set()).discard(tier)
        elif what == "empty":
            feed.hear(AllLeft(tier))
            for tiers in model.values():
                tiers.discard(tier)
        elif what == "ask":
            flying.append(feed.since(table.cursor("r"), number))
        elif what == "deliver" and flying:
            delta = flying[number % len(flying)]
            if number != 5:  # the same may be delivered again
                flying.remove(delta)
            table.apply("r", delta)
        elif what == "restart":
            feed, model = PageFeed(ring), {}
        elif what == "rejoin":
            table.leave("r")
            table.join("r")
    catch_up(table, "r", feed, 7)
    assert known(table, "r", range(31)) == {number for number, tiers in model.items() if tiers}
    assert known(table, "other", range(31)) == {3}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), replicas=st.integers(1, 70))
def test_the_table_is_a_set_for_each_replica(seed, replicas):
    rng = random.Random(seed)
    table, model = ReplicaTable(), {}
    feeds = {}
    for _ in range(60):
        name = f"r{rng.randrange(replicas)}"
        if name not in model:
            table.join(name)
            feeds[name], model[name] = PageFeed(), set()
        elif rng.random() < 0.1:
            table.leave(name)
            del model[name], feeds[name]
            continue
        for _ in range(rng.randrange(12)):
            number = rng.randrange(20)
            if rng.random() < 0.6:
                feeds[name].hear(arrived(number))
                model[name].add(number)
            else:
                feeds[name].hear(PageLeft(key(number), "device"))
                model[name].discard(number)
        catch_up(table, name, feeds[name])
    chain = list(range(20))
    rng.shuffle(chain)
    expected = {}
    for name, pages in model.items():
        reach = next((at for at, number in enumerate(chain) if number not in pages), len(chain))
        if reach:
            expected[name] = reach
    assert table.held([key(number) for number in chain]) == expected


@pytest.mark.parametrize("ring", [0, -1])
def test_a_ring_of_nothing_is_refused(ring):
    with pytest.raises(ValueError, match="expected at least 1"):
        PageFeed(ring)
