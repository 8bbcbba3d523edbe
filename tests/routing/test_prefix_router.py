"""A request goes where most of its prompt is, unless waiting there costs more than computing it elsewhere."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.cache.residency import PageArrived
from agentcache.routing.feed import PageFeed
from agentcache.routing.keys import RoutingKey
from agentcache.routing.loads import ReplicaLoad
from agentcache.routing.rendezvous import ordered
from agentcache.routing.router import PrefixRouter, RoutingPolicy

PAGE = 16


class Time:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def chain_of(name, pages):
    return tuple(f"{name}:{page}".encode().ljust(16, b".")[:16] for page in range(pages))


def key_of(name, pages=40, shared=(), **more):
    chain = (*shared, *chain_of(name, pages))
    return RoutingKey(chain, len(chain) * PAGE, **more)


def router_of(count, clock=None, **policy):
    router = PrefixRouter(policy=RoutingPolicy(page_size=PAGE, **policy), clock=clock or Time())
    feeds = {f"r{number}": PageFeed() for number in range(count)}
    for name in feeds:
        router.join(name)
    return router, feeds


def names_in(ranking):
    return [name for group in ranking.groups for name in group]


def tell(router, feeds, name, chain, load=None):
    """``name`` has ``chain`` now, and its answer to a poll arrives."""
    for page in chain:
        feeds[name].hear(PageArrived(page, b"", b"", b"", "device"))
    router.apply(name, feeds[name].since(router.table.cursor(name), load=load))


def serve(router, key):
    """Rank, send and end a request; where it went."""
    ranking = router.rank(key)
    ticket = router.routed(ranking, ranking.first)
    router.started(ticket)
    router.ended(ticket)
    return ranking.first


def test_the_longest_prefix_wins():
    router, feeds = router_of(4)
    key = key_of("a", 200)
    tell(router, feeds, "r2", key.chain[:150])
    tell(router, feeds, "r1", key.chain[:20])
    ranking = router.rank(key)
    assert (ranking.first, ranking.reason) == ("r2", "prefix")
    assert ranking.pages == {"r0": 0, "r1": 20, "r2": 150, "r3": 0}
    assert ranking.groups[1] == ["r1"]


def test_who_made_what_is_named_gets_it_however_busy():
    router, feeds = router_of(3)
    tell(router, feeds, "r0", (), ReplicaLoad(10**6, 50))
    assert router.rank(RoutingKey(sticky="r0", affinity=b"s")).groups[0] == ["r0"]
    assert router.rank(RoutingKey(sticky="r0", affinity=b"s")).reason == "sticky"


def test_a_session_of_a_replica_that_is_gone_goes_to_one_and_the_same_other():
    router, _ = router_of(5)
    key = RoutingKey(sticky="gone", affinity=b"sess_1-gone")
    first = router.rank(key)
    assert first.reason == "rendezvous"
    assert all(router.rank(key).first == first.first for _ in range(10))


def test_the_same_prompt_goes_the_same_way_while_nobody_is_busy():
    """Also before any replica has said anything, and for other requests that begin alike."""
    router, _ = router_of(8)
    shared = chain_of("system", 60)
    places = {serve(router, key_of(f"user {n}", 4, shared)) for n in range(20)}
    assert len(places) == 1


def test_a_burst_of_equal_prompts_goes_one_way_while_it_is_computed_there():
    router, _ = router_of(8)
    key = key_of("a", 100)
    rankings = [router.rank(key)]
    tickets = [router.routed(rankings[0], rankings[0].first)]
    for _ in range(7):
        rankings.append(router.rank(key))
        tickets.append(router.routed(rankings[-1], rankings[-1].first))
    assert len({ranking.first for ranking in rankings}) == 1
    assert sum(ticket.tokens for ticket in tickets) == 1600  # computed once


def test_a_hot_prefix_spreads_where_it_would_queue_and_stays_there():
    router, feeds = router_of(6)
    shared = chain_of("system", 100)
    tell(router, feeds, "r0", shared, ReplicaLoad(0, 2))
    assert router.rank(key_of("new", 4, shared)).first == "r0"
    tell(router, feeds, "r0", (), ReplicaLoad(20_000, 2))
    spread = router.rank(key_of("new", 4, shared))
    assert spread.reason == "spread" and spread.first != "r0"
    second = spread.first
    tell(router, feeds, second, shared)
    tell(router, feeds, "r0", (), ReplicaLoad(0, 0))
    # Both are homes of it now, and nobody else is drawn in.
    places = {serve(router, key_of(f"user {n}", 4, shared, affinity=str(n).encode())) for n in range(30)}
    assert places == {"r0", second}


def test_a_small_imbalance_scatters_nothing():
    router, feeds = router_of(4)
    key = key_of("a", 100)
    tell(router, feeds, "r3", key.chain, ReplicaLoad(700, 10))
    assert router.rank(key).first == "r3"


def test_who_begins_goes_where_the_cache_turns_over_least():
    """Nobody is busy; all that speaks for another replica is that less memory is wanted there."""
    clock = Time()
    router, feeds = router_of(2, clock)
    shared = chain_of("system", 20)
    tell(router, feeds, "r0", shared)
    assert router.rank(key_of("new", 4, shared, thread=b"new")).first == "r0"
    tell(router, feeds, "r0", chain_of("much", 300))
    assert router.rank(key_of("new", 4, shared, thread=b"new")).first == "r1"
    clock.now += 600  # long ago
    assert router.rank(key_of("new", 4, shared, thread=b"new")).first == "r0"


def test_a_conversation_whose_replies_have_other_tokens_stays_where_it_was():
    router, feeds = router_of(8)
    shared = chain_of("system", 60)
    for name in feeds:
        tell(router, feeds, name, shared)
    first = key_of("task", 1, shared, thread=b"t")
    place = serve(router, first)
    guess = (*first.chain[:60], *chain_of("other tokens", 80))
    later = RoutingKey(guess, len(guess) * PAGE, thread=b"t", certain=60)
    assert router.rank(later).first == place
    assert router.rank(later).pages[place] > 60


def test_another_ingress_finds_it_by_what_is_certain():
    router, feeds = router_of(8)
    shared = chain_of("system", 60)
    for name in feeds:
        tell(router, feeds, name, shared)
    first = key_of("task", 4, shared)
    tell(router, feeds, "r5", (*first.chain, *chain_of("the reply as it was drawn", 50)))
    guess = (*first.chain, *chain_of("the reply as it is read", 50))
    ranking = router.rank(RoutingKey(guess, len(guess) * PAGE, thread=b"t", certain=64))
    assert ranking.first == "r5" and ranking.pages["r5"] == len(guess)


def test_a_replica_that_drains_gets_what_is_its_own_and_nothing_else():
    router, feeds = router_of(3)
    key = key_of("a")
    tell(router, feeds, "r1", key.chain)
    router.drain("r1")
    assert "r1" not in names_in(router.rank(key))
    assert router.rank(RoutingKey(sticky="r1", affinity=b"s")).first == "r1"
    router.join("r1")
    assert router.rank(key).first == "r1"


def test_a_replica_that_was_found_dead_is_left_out_although_it_is_still_listed():
    router, feeds = router_of(3)
    key = key_of("a")
    tell(router, feeds, "r1", key.chain)
    router.lost("r1")
    listed = ["r0", "r1", "r2"]
    assert "r1" not in names_in(router.rank(key, listed))
    router.sync(listed)
    assert "r1" not in names_in(router.rank(key, listed))
    router.sync(["r0", "r2"])
    router.sync(listed)  # listed anew: another life
    assert "r1" in names_in(router.rank(key, listed))
    assert router.rank(key, listed).pages["r1"] == 0


def test_one_replica_gets_everything_and_none_gets_nothing():
    router, _ = router_of(1)
    assert (router.rank(key_of("a")).groups, router.rank(key_of("a")).reason) == ([["r0"]], "only")
    router.leave("r0")
    assert (router.rank(key_of("a")).groups, router.rank(key_of("a")).reason) == ([], "none")
    assert router.rank(key_of("a")).first is None


def test_what_is_asked_of_nobody_in_particular_goes_to_who_has_least_to_do():
    router, feeds = router_of(3)
    tell(router, feeds, "r0", (), ReplicaLoad(500, 0))
    tell(router, feeds, "r2", (), ReplicaLoad(100, 0))
    assert router.rank(RoutingKey()).groups == [["r1"], ["r2"], ["r0"]]
    assert router.rank(RoutingKey()).reason == "load"


def test_what_replicas_report_replaces_what_was_counted():
    clock = Time()
    router, feeds = router_of(2, clock)
    ranking = router.rank(key_of("a", 100))
    ticket = router.routed(ranking, ranking.first)
    assert router.load(ranking.first) == ReplicaLoad(1600, 0)
    clock.now = 1.0
    tell(router, feeds, ranking.first, (), ReplicaLoad(400, 3))
    assert router.load(ranking.first) == ReplicaLoad(400, 3)
    clock.now = 20.0  # nothing was heard since: what was counted is all that is known
    assert router.load(ranking.first) == ReplicaLoad(1600, 0)
    router.started(ticket)
    assert router.load(ranking.first) == ReplicaLoad(0, 1)
    router.ended(ticket)
    router.ended(ticket)
    assert router.load(ranking.first) == ReplicaLoad(0, 0)


def test_a_request_that_failed_is_not_expected_to_have_left_pages():
    router, _ = router_of(2)
    key = key_of("a")
    ranking = router.rank(key)
    ticket = router.routed(ranking, ranking.first)
    assert router.rank(key).pages[ranking.first] == 40
    router.ended(ticket, computed=False)
    assert router.rank(key).pages[ranking.first] == 0


OPERATIONS = st.lists(st.tuples(st.sampled_from("jlxdrse"), st.integers(0, 7), st.integers(0, 9)), max_size=80)


@settings(max_examples=150, deadline=None)
@given(operations=OPERATIONS)
def test_a_ranking_names_all_who_live_once_and_nobody_who_is_dead(operations):
    router, feeds = router_of(0)
    live, draining, tickets = set(), set(), []
    for what, number, other in operations:
        name = f"r{number}"
        if what == "j":
            router.join(name)
            feeds[name] = PageFeed()
            live.add(name)
            draining.discard(name)
        elif what in "lx":
            (router.leave if what == "l" else router.lost)(name)
            live.discard(name)
            draining.discard(name)
        elif what == "d" and name in live:
            router.drain(name)
            draining.add(name)
        elif what == "r" and name in live:
            tell(router, feeds, name, chain_of(other, 10), ReplicaLoad(other * 1000, other))
        elif what == "e" and tickets:
            router.ended(tickets.pop(), computed=bool(number % 2))
        key = key_of(other, 10, thread=str(other).encode(), sticky=name if what == "s" else None)
        ranking = router.rank(key)
        named = names_in(ranking)
        assert len(named) == len(set(named)) and all(ranking.groups)
        wanted = (live - draining) | ({key.sticky} & live) or live
        assert set(named) == wanted
        if ranking.first is not None and what == "s":
            tickets.append(router.routed(ranking, ranking.first))


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_a_replica_that_joins_takes_its_share_and_moves_nothing_else(count, seed):
    names = [f"r{number}" for number in range(count)]
    things = [f"{seed} {number}".encode() for number in range(300)]
    before = {thing: ordered(thing, names) for thing in things}
    after = {thing: ordered(thing, [*names, "new"]) for thing in things}
    for thing in things:
        assert [name for name in after[thing] if name != "new"] == before[thing]
    moved = sum(before[thing][0] != after[thing][0] for thing in things)
    share = 300 / (count + 1)
    assert moved == sum(after[thing][0] == "new" for thing in things)
    assert abs(moved - share) <= 6 * max(1.0, share) ** 0.5


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_prompts_do_not_wander_while_loads_are_balanced(seed):
    rng = random.Random(seed)
    router, feeds = router_of(8)
    places = {}
    for _ in range(200):
        name = rng.randrange(25)
        key = key_of(name, 40, thread=str(name).encode())
        place = serve(router, key)
        assert places.setdefault(name, place) == place
        tell(router, feeds, place, key.chain, ReplicaLoad(rng.randrange(100), rng.randrange(3)))
