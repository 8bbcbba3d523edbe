"""What namespaces share (the public part, and nothing else) and how much each may keep."""

from __future__ import annotations

from array import array

import pytest

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens, PublicPart

SIZE = 4
A, B, PUBLIC = namespace_root("a"), namespace_root("b"), namespace_root("public")


def paged(ids, root=A, public_pages=0):
    return PagedTokens(ids, SIZE, root, PublicPart(PUBLIC, public_pages))


def serve(manager, tokens) -> Lease:
    lease = manager.acquire(tokens)
    assert isinstance(lease, Lease)
    lease.take_copies()
    lease.commit(len(tokens))
    assert manager.check() == []
    lease.release()
    assert manager.check() == []
    return lease


def cached(manager, tokens) -> int:
    return manager.tree.match(tokens, len(tokens)).tokens(SIZE)


def test_the_public_part_is_computed_once_for_every_namespace():
    manager = CacheManager(32, SIZE)
    serve(manager, paged([*range(8), 20, 21, 22, 23, 24], A, 2))
    other = serve(manager, paged([*range(8), 30, 31, 32, 33, 34], B, 2))
    assert other.cached_tokens == 8
    assert len(manager.tree) == 2 + 2 * 2  # the public pages, and of either its own page and its tail


@pytest.mark.parametrize("length", [9, 12, 13, 14])
def test_behind_the_public_part_nothing_of_another_namespace_is_found_not_even_in_part(length):
    manager = CacheManager(32, SIZE)
    serve(manager, paged(range(14), A, 2))
    assert cached(manager, paged(range(length), B, 2)) == 8
    assert cached(manager, paged(range(length), A, 2)) == length
    serve(manager, paged([*range(11), 99], B, 2))
    assert cached(manager, paged(range(14), A, 2)) == 14
    assert cached(manager, paged(range(14), B, 2)) == 11


def test_the_same_tokens_without_a_public_part_are_other_pages():
    manager = CacheManager(32, SIZE)
    serve(manager, paged(range(12), A, 2))
    assert cached(manager, paged(range(12), A)) == 0
    assert cached(manager, paged(range(12), A, 1)) == 4


def test_a_prompt_that_is_wholly_public_is_a_full_hit_for_everybody():
    manager = CacheManager(32, SIZE)
    serve(manager, paged(range(8), A, 2))
    other = serve(manager, paged(range(8), B, 2))
    assert other.cached_tokens == 7
    assert len(manager.tree) == 2 and not list(manager.tree.gates())


def test_public_pages_leave_after_everything_behind_them_and_gates_leave_with_their_last_page():
    manager = CacheManager(32, SIZE)
    for root in (A, B):
        serve(manager, paged(range(16), root, 2))
    assert len(list(manager.tree.gates())) == 2
    public = [node.page for node in manager.tree.nodes() if node.depth <= 2]
    order = []
    while len(manager.tree):
        before = {node.page for node in manager.tree.nodes()}
        manager.evict("room")
        order += before - {node.page for node in manager.tree.nodes()}
        assert manager.check() == []
    assert order[-2:] == sorted(public, reverse=True)
    assert not list(manager.tree.gates()) and not list(manager.tree.roots())


def test_an_abort_right_behind_the_public_part_leaves_no_gate():
    manager = CacheManager(32, SIZE)
    serve(manager, paged(range(8), A, 2))
    lease = manager.acquire(paged(range(14), B, 2))
    lease.commit(10)
    lease.release()
    assert manager.check() == []
    assert cached(manager, paged(range(14), B, 2)) == 10
    manager.flush()
    assert manager.counts().free == 32 and not list(manager.tree.gates())


def test_a_pin_behind_the_public_part_keeps_that_as_well():
    manager = CacheManager(12, SIZE, pin_budget=6)
    serve(manager, paged(range(16), A, 2))
    pin = manager.pin(paged(range(16), A, 2), until=9.0)
    assert pin is not None and pin.pages == 4
    for start in range(100, 160, 12):
        serve(manager, paged(range(start, start + 12), B))
    assert cached(manager, paged(range(16), A, 2)) == 16
    assert manager.counts().pinned == 4
    manager.pins.expire(9.0)
    assert manager.check() == [] and manager.counts().pinned == 0


def test_a_pin_that_the_budget_cuts_at_a_gate_ends_on_a_page():
    manager = CacheManager(12, SIZE, pin_budget=2)
    serve(manager, paged(range(16), A, 2))
    pin = manager.pin(paged(range(16), A, 2), until=9.0)
    assert pin is not None and pin.pages == 2 and pin.node.has_page
    assert manager.check() == []


def test_a_namespace_keeps_no_more_than_its_quota_and_its_oldest_pages_go():
    manager = CacheManager(64, SIZE, quota=4)
    serve(manager, paged([50] * 8, B))
    for head in (1, 2, 3):
        serve(manager, paged([head] * 8, A))
    assert [cached(manager, paged([head] * 8, A)) for head in (1, 2, 3)] == [0, 8, 8]
    assert cached(manager, paged([50] * 8, B)) == 8
    assert manager.events.evictions["quota"] == 2


def test_a_request_larger_than_the_quota_runs_and_leaves_its_beginning():
    manager = CacheManager(64, SIZE, quota=3)
    serve(manager, paged(range(40)))
    assert cached(manager, paged(range(40))) == 12


def test_what_is_pinned_stays_and_what_came_later_goes_when_a_quota_is_full():
    manager = CacheManager(64, SIZE, quota=4)
    for head in (1, 2):
        serve(manager, paged([head] * 8, A))
        assert manager.pin(paged([head] * 8, A), until=9.0)
    serve(manager, paged([3] * 8, A))
    assert [cached(manager, paged([head] * 8, A)) for head in (1, 2, 3)] == [8, 8, 0]


def test_a_pin_that_alone_is_over_the_quota_lapses_and_those_of_others_stay():
    manager = CacheManager(64, SIZE, quota=4)
    serve(manager, paged(range(8), B))
    other = manager.pin(paged(range(8), B), until=9.0)
    lease = manager.acquire(paged(range(20), A))
    lease.commit(20)
    mine = manager.pin(paged(range(20), A), until=9.0)
    assert mine in manager.pins and mine.pages == 5
    lease.release()
    assert mine not in manager.pins and other in manager.pins
    assert manager.tree.sizes[A] == 4 and manager.check() == []


def test_no_quota_applies_to_the_public_part():
    manager = CacheManager(64, SIZE, quota=2, public_root=PUBLIC)
    serve(manager, paged(range(40), A, 8))
    assert cached(manager, paged(range(40), A, 8)) == 40
    assert cached(manager, paged(range(40), B, 8)) == 32


def test_a_continued_sequence_keeps_what_is_known_of_its_beginning():
    manager = CacheManager(64, SIZE)
    first = paged(range(16))
    serve(manager, first)
    assert first.trail is not None and len(first.trail.pages) == 4
    longer = first.continued(array("I", range(24)))
    assert longer.trail == first.trail and longer.keys(6) == paged(range(24)).keys(6)
    parted = first.continued(array("I", [*range(10), 99, 98, 97, 96]))
    assert len(parted.trail.pages) == 2 and parted.keys(3) == paged([*range(10), 99, 98, 97, 96]).keys(3)
    assert cached(manager, parted) == 10


def test_a_sequence_that_was_rolled_back_goes_on_from_where_it_parts():
    manager = CacheManager(64, SIZE)
    first = paged(range(24))
    serve(manager, first)
    back = first.continued(array("I", [*range(17), 99, 98, 97]))
    walked = []
    walk = manager.tree._walk
    manager.tree._walk = lambda node, pages, keys, data: walked.append(len(keys)) or walk(node, pages, keys, data)
    assert cached(manager, back) == 17 and walked == [1]


def test_a_trail_to_a_page_that_has_left_is_not_followed():
    manager = CacheManager(64, SIZE)
    tokens = paged(range(16))
    serve(manager, tokens)
    manager.evict("room")
    assert cached(manager, tokens) == 12
    manager.flush()
    assert cached(manager, tokens) == 0
    serve(manager, paged(range(16)))  # the same keys, other nodes
    assert cached(manager, tokens) == 16


def test_the_walk_goes_on_where_the_trail_ends_and_pages_are_the_same():
    manager = CacheManager(64, SIZE)
    tokens = paged(range(8))
    serve(manager, tokens)
    serve(manager, paged(range(20)))
    longer = PagedTokens(range(20), SIZE, A)
    longer.trail = tokens.trail
    assert manager.tree.match(longer, 20).pages == manager.tree.match(paged(range(20)), 20).pages


def test_the_page_that_another_namespace_is_filling_behind_the_public_part_is_not_copied_from():
    manager = CacheManager(32, SIZE)
    leader = manager.acquire(paged([1, 2, 3, 4, 9, 8, 7], A, 1))
    leader.commit(7)
    assert leader.depth == 1  # it still ends at the last public page: it has published nothing behind
    other = manager.acquire(paged([1, 2, 3, 4, 9, 8, 5, 5], B, 1))
    assert other.cached_tokens == 4 and (other.miss is None or not other.miss.was_tokens)
    mine = manager.acquire(paged([1, 2, 3, 4, 9, 8, 5, 5], A, 1))
    assert mine.cached_tokens == 6


def running_over_quota(manager) -> Lease:
    lease = manager.acquire(paged(range(24), A))
    lease.commit(24)
    assert manager.check() == []
    return lease


def test_pins_that_end_together_in_a_namespace_over_its_quota_end_once():
    manager = CacheManager(64, SIZE, quota=4)
    for head in (50, 60):
        serve(manager, paged([head] * 8, A))
        assert manager.pin(paged([head] * 8, A), until=30.0)
    lease = running_over_quota(manager)
    manager.expire_pins(31.0)
    assert len(manager.pins) == 0 and manager.check() == []
    lease.release()
    assert manager.check() == [] and manager.tree.sizes[A] == 4


def test_hundreds_of_pins_over_a_quota_lapse_without_depth():
    manager = CacheManager(2000, SIZE, quota=1500)
    for n in range(600):
        lease = manager.acquire(paged([n] * 8, A))
        assert isinstance(lease, Lease)
        lease.commit(8)
        lease.release()
        manager.pin(paged([n] * 8, A), until=30.0)
    assert len(manager.pins) == 500 and manager.check() == []  # as many as half of the pool holds
    manager.quota = 3
    lease = running_over_quota(manager)
    serve(manager, paged([7000] * 4, A))
    assert len(manager.pins) == 0 and manager.check() == []
    lease.release()


def test_a_pin_on_what_runs_does_not_lapse_for_a_quota_that_it_cannot_help():
    manager = CacheManager(64, SIZE, quota=4)
    lease = running_over_quota(manager)
    pin = manager.pin(paged(range(24), A), until=30.0)
    serve(manager, paged([70] * 8, A))
    assert pin in manager.pins and cached(manager, paged([70] * 8, A)) == 0
    lease.release()
    assert pin not in manager.pins and manager.tree.sizes[A] == 4


def test_pins_that_give_way_to_a_request_do_not_cost_it_what_it_found():
    manager = CacheManager(10, SIZE, quota=2)
    serve(manager, paged(range(8), A))
    assert manager.pin(paged(range(8), A), until=30.0)
    manager.quota = 1
    lease = manager.acquire(paged(range(40), A))
    assert isinstance(lease, Lease) and len(set(lease.pages)) == 10
    assert lease.cached_tokens == 8 and manager.check() == []
