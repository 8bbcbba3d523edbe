"""Where two sequences of tokens become equal again, on ids alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.cache.hashing import pack_tokens
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.server.findings.meeting import Meeting, meet

SIZE = 4
SLOT = st.lists(st.integers(1000, 1999), max_size=40)
OTHER = st.lists(st.integers(2000, 2999), max_size=40)


@settings(max_examples=60, deadline=None)
@given(was=SLOT, now=OTHER, run=st.integers(16, 80), behind=st.tuples(SLOT, OTHER))
def test_a_meeting_is_found_wherever_it_lies(was, now, run, behind):
    shared = list(range(run))
    found = meet(pack_tokens([*was, *shared, *behind[0]]), pack_tokens([*now, *shared, *behind[1]]))
    assert found == Meeting(len(was), len(now), run)


@settings(max_examples=60, deadline=None)
@given(was=SLOT, now=OTHER, run=st.integers(0, 15))
def test_what_is_equal_by_chance_is_no_meeting(was, now, run):
    shared = list(range(run))
    assert meet(pack_tokens([*was, *shared]), pack_tokens([*now, *shared])) is None


def test_short_equal_pieces_before_the_meeting_are_passed_over():
    piece, shared = list(range(10)), list(range(100, 140))
    was, now = [1, *piece, 2, *shared], [3, 3, *piece, 4, 4, 4, *shared]
    assert meet(pack_tokens(was), pack_tokens(now)) == Meeting(12, 15, 40)


def run(manager: CacheManager, ids: list[int]) -> Lease:
    lease = manager.acquire(PagedTokens(ids, SIZE, b"root"))
    assert isinstance(lease, Lease)
    lease.commit(len(ids))
    lease.release()
    return lease


def test_a_diverged_miss_holds_the_likest_branch_first_and_then_the_latest():
    manager = CacheManager(64, SIZE)
    for tail in ([5, 5, 5, 5, 1], [5, 6, 6, 6, 2], [7, 7, 7, 7, 3]):
        run(manager, [1, 2, 3, 4, *tail])
    miss = run(manager, [1, 2, 3, 4, 5, 5, 9, 9, 9]).miss
    assert miss is not None and (miss.code, miss.at_token, miss.branch_start) == ("diverged", 6, 4)
    branches = [list(memoryview(branch).cast("I")) for branch in miss.branches]
    assert branches == [[5, 5, 5, 5, 1], [7, 7, 7, 7, 3], [5, 6, 6, 6, 2]]


def test_an_evicted_miss_counts_what_was_there():
    manager = CacheManager(64, SIZE)
    run(manager, list(range(1, 18)))
    manager.flush()
    miss = run(manager, [*range(1, 13), 99, 99, 99, 99, 99]).miss
    assert miss is not None and (miss.code, miss.at_token, miss.gone_tokens, miss.gone_all) == ("evicted", 0, 12, True)
    assert set(miss.to_json()) == {"code", "at_token", "detail", "message_index", "path", "was", "now"}


def test_what_was_flushed_by_order_is_told_from_what_made_room():
    manager = CacheManager(16, SIZE)
    run(manager, list(range(1, 18)))
    manager.flush()
    miss = run(manager, [*range(1, 13), 99]).miss
    assert miss is not None and miss.flushed and "was flushed" in miss.detail
    for head in range(100, 900, 100):  # more than there is room for
        run(manager, list(range(head, head + 17)))
    miss = run(manager, [*range(1, 13), 98]).miss
    assert miss is not None and miss.code == "evicted" and not miss.flushed
