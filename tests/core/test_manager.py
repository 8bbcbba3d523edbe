import pytest

from agentcache.cache.events import PageEvicted
from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager, Refusal
from agentcache.cache.pages import PageCopy
from agentcache.cache.tokens import PagedTokens
from agentcache.errors import InvariantError
from agentcache.faults import Faults, InjectedFaultError

SIZE = 4
ROOT = namespace_root("model")


def paged(ids):
    return PagedTokens(ids, SIZE, ROOT)


def acquire(manager, ids, **options) -> Lease:
    lease = manager.acquire(paged(ids), **options)
    assert isinstance(lease, Lease)
    assert manager.check() == []
    return lease


def serve(manager, ids) -> Lease:
    """Compute all of ``ids`` and end the lease."""
    lease = acquire(manager, ids)
    lease.take_copies()
    lease.commit(len(ids))
    assert manager.check() == []
    lease.release()
    assert manager.check() == []
    return lease


def states(manager):
    counts = manager.counts()
    return counts.free, counts.live, counts.cached


def test_pages_go_from_free_to_live_to_cached_to_free():
    manager = CacheManager(8, SIZE)
    lease = acquire(manager, range(10))
    assert states(manager) == (5, 3, 0)
    lease.commit(10)
    assert states(manager) == (5, 3, 0)
    lease.release()
    assert states(manager) == (5, 0, 3)
    assert manager.flush() == 3
    assert states(manager) == (8, 0, 0)


def test_nothing_can_be_matched_before_it_was_committed():
    manager = CacheManager(8, SIZE)
    first = acquire(manager, range(8))
    assert manager.acquire(paged(range(8))) is Refusal.IN_FLIGHT
    first.release()  # aborted: nothing was computed
    assert acquire(manager, range(8)).cached_tokens == 0


def test_a_follower_waits_for_the_page_in_flight_and_then_shares_it():
    manager = CacheManager(16, SIZE)
    leader = acquire(manager, range(12))
    follower = paged([*range(8), 90, 91, 92, 93])
    assert manager.acquire(follower) is Refusal.IN_FLIGHT
    leader.commit(4)
    assert manager.acquire(follower) is Refusal.IN_FLIGHT
    leader.commit(8)
    lease = manager.acquire(follower)
    assert isinstance(lease, Lease)
    assert lease.cached_tokens == 8
    assert lease.pages[:2] == leader.pages[:2]


def test_a_follower_copies_from_the_page_that_the_leader_still_fills():
    manager = CacheManager(16, SIZE)
    leader = acquire(manager, range(10))
    leader.commit(10)
    leader.tokens.append(50)
    follower = acquire(manager, range(10))
    assert (follower.cached_tokens, follower.pages[:2]) == (9, leader.pages[:2])
    assert follower.take_copies() == [PageCopy(leader.pages[2], follower.pages[2], 1)]
    assert leader.extend(11) and leader.pages[2] != follower.pages[2]
    assert not leader.take_copies()  # nobody else reads what it writes behind the prompt
    leader.commit(11)
    other = acquire(manager, [*range(10), 50, 51])
    assert other.cached_tokens == 11


def test_much_of_a_large_page_is_waited_for_although_the_prompts_part_in_it():
    manager = CacheManager(16, 128)
    head = list(range(100))
    leader = manager.acquire(PagedTokens([*head, *[500] * 28], 128, ROOT))
    follower = PagedTokens([*head, *[600] * 28], 128, ROOT)
    assert manager.acquire(follower) is Refusal.IN_FLIGHT
    assert isinstance(
        manager.acquire(PagedTokens([*head[:60], *[700] * 68], 128, ROOT)), Lease
    )  # too little to wait for
    leader.commit(128)
    lease = manager.acquire(follower)
    assert isinstance(lease, Lease) and lease.cached_tokens == 100 and manager.check() == []


def test_nobody_waits_for_a_large_page_of_a_leader_that_is_gone():
    manager = CacheManager(16, 128)
    leader = manager.acquire(PagedTokens([*range(100), 1], 128, ROOT))
    assert manager.acquire(PagedTokens([*range(100), 2], 128, ROOT)) is Refusal.IN_FLIGHT
    leader.release()
    assert isinstance(manager.acquire(PagedTokens([*range(100), 2], 128, ROOT)), Lease)


def test_the_longer_of_an_open_page_and_a_kept_tail_is_copied_from():
    manager = CacheManager(16, SIZE)
    serve(manager, [*range(4), 9, 8, 7])
    leader = acquire(manager, [*range(4), 9, 8])
    leader.take_copies()
    leader.commit(6)
    assert acquire(manager, [*range(4), 9, 8, 7, 6]).source is not None
    leader.tokens.append(5)
    leader.extend(7)
    leader.commit(7)
    third = acquire(manager, [*range(4), 9, 8, 5, 1])
    assert third.cached_tokens == 7 and third.source is None


def test_an_open_page_whose_content_is_not_certain_is_not_copied_from():
    manager = CacheManager(16, SIZE)
    serve(manager, range(6))
    copying = acquire(manager, [*range(6), 20])
    assert copying.copying and copying.computed == 6
    second = acquire(manager, [*range(6), 20, 21])
    assert second.cached_tokens == 6 and second.source is copying.source


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_a_full_hit_leaves_one_token_to_redo_and_takes_no_page(pages):
    manager = CacheManager(8, SIZE)
    serve(manager, range(pages * SIZE))
    lease = acquire(manager, range(pages * SIZE))
    assert lease.cached_tokens == pages * SIZE - 1
    assert lease.computed == pages * SIZE
    assert len(lease.pages) == pages
    assert lease.take_copies() == []
    assert lease.miss is None


def test_a_hit_inside_a_page_copies_its_first_tokens():
    manager = CacheManager(8, SIZE)
    cached = serve(manager, range(8)).pages
    lease = acquire(manager, [0, 1, 2, 3, 4, 5, 99])
    assert lease.cached_tokens == 6
    assert lease.pages[0] == cached[0]
    assert lease.take_copies() == [PageCopy(cached[1], lease.pages[1], 2)]
    assert lease.take_copies() == []


def test_the_source_of_a_copy_stays_until_the_copy_was_made():
    manager = CacheManager(4, SIZE)
    cached = serve(manager, range(8)).pages
    first = acquire(manager, [0, 1, 2, 3, 4, 5, 99])
    assert manager.flush() == 0
    first.take_copies()
    first.commit(7)
    assert manager.flush() == 1
    assert cached[1] not in first.pages


def test_a_partial_hit_is_let_go_when_its_source_would_not_fit():
    manager = CacheManager(2, SIZE)
    serve(manager, range(8))
    lease = acquire(manager, [0, 1, 2, 3, 4, 5, 99])  # needs the very page that it could copy from
    assert lease.cached_tokens == 4
    assert lease.take_copies() == []


def test_a_partly_filled_last_page_is_kept_and_copied_from():
    manager = CacheManager(8, SIZE)
    first = serve(manager, range(6)).pages
    lease = acquire(manager, [*range(6), 50, 51])
    assert lease.cached_tokens == 6
    assert lease.take_copies() == [PageCopy(first[1], lease.pages[1], 2)]
    lease.commit(8)
    lease.release()
    # The full page begins as the tail did, so the tail is of no more use.
    assert states(manager) == (6, 0, 2)
    assert manager.check() == []


def test_a_prompt_shorter_than_a_page_is_cached_but_for_its_last_token():
    manager = CacheManager(8, SIZE)
    serve(manager, [1, 2, 3])
    assert acquire(manager, [1, 2, 3]).cached_tokens == 2


def test_a_tail_that_another_page_covers_is_not_kept_twice():
    manager = CacheManager(8, SIZE)
    serve(manager, range(8))
    serve(manager, range(6))
    assert states(manager) == (6, 0, 2)


def test_tails_leave_before_everything_that_could_be_shared_whole():
    manager = CacheManager(6, SIZE)
    shared = serve(manager, range(8)).pages
    for n in range(20):  # never a full page
        serve(manager, [100 + n, n])
    assert acquire(manager, range(8)).pages == shared


def test_a_tail_whose_content_is_not_certain_is_not_kept():
    manager = CacheManager(8, SIZE)
    serve(manager, range(8))
    lease = acquire(manager, [0, 1, 2, 3, 4, 5, 99])
    assert lease.cached_tokens == 6
    lease.release()  # before the step that would have made the copy
    assert states(manager) == (6, 0, 2)
    fork_of = acquire(manager, [50, 51])
    fork_of.commit(2)
    fork = fork_of.fork(fork_of.tokens.copy())
    fork.tokens.append(7)
    fork.extend(3)
    fork.release()
    assert states(manager)[2] == 2


def test_without_tails_only_whole_pages_are_reused():
    manager = CacheManager(8, SIZE, tails=False)
    serve(manager, range(6))
    assert states(manager) == (7, 0, 1)
    lease = acquire(manager, [*range(6), 50])
    assert lease.cached_tokens == 4
    assert lease.miss is not None and lease.miss.code == "below_page"


def test_a_twin_stays_with_its_sequence_and_is_freed_with_it():
    manager = CacheManager(8, SIZE)
    first = acquire(manager, [1, 2, 3])
    second = acquire(manager, [1, 2, 3])
    for lease in (first, second):  # both generate the same token
        lease.tokens.append(4)
        assert lease.extend(4)
        lease.commit(4)
        assert manager.check() == []
    assert first.pages != second.pages
    first.release()
    assert manager.check() == []
    second.tokens.append(5)
    assert second.extend(5)
    assert manager.check() == []
    second.release()
    assert states(manager) == (7, 0, 1)


def test_forks_share_the_tail_until_one_of_them_writes():
    manager = CacheManager(8, SIZE)
    trunk = acquire(manager, range(6))
    trunk.commit(6)
    fork = trunk.fork(trunk.tokens.copy())
    assert fork.pages == trunk.pages
    assert states(manager) == (6, 2, 0)
    fork.tokens.append(50)
    assert fork.extend(7)
    assert manager.check() == []
    assert fork.pages[0] == trunk.pages[0] and fork.pages[1] != trunk.pages[1]
    assert fork.take_copies() == [PageCopy(trunk.pages[1], fork.pages[1], 2)]
    trunk.tokens.append(60)
    assert trunk.extend(7)
    assert trunk.take_copies() == []  # nobody else holds it any more
    assert manager.check() == []


def test_forks_that_fill_their_shared_page_in_one_step_publish_it_once():
    manager = CacheManager(8, SIZE)
    trunk = acquire(manager, range(8))
    trunk.commit(6)
    fork = trunk.fork(trunk.tokens.copy())
    assert len(fork.pages) == 2
    trunk.commit(8)  # the trunk wrote the rest of the shared page, as it may only when the fork does not
    assert manager.check() == []
    fork.commit(8)
    assert manager.check() == []
    fork.release()
    assert manager.check() == []
    trunk.release()
    assert states(manager) == (6, 0, 2)


def test_growth_takes_all_it_needs_or_nothing():
    manager = CacheManager(3, SIZE)
    lease = acquire(manager, range(8))
    lease.commit(8)
    assert not lease.extend(17)
    assert len(lease.pages) == 2
    assert lease.extend(12)
    assert not lease.extend(13)


def test_what_running_sequences_may_still_need_is_spared():
    manager = CacheManager(4, SIZE)
    assert manager.acquire(paged(range(12)), spare=2) is Refusal.NO_ROOM
    assert isinstance(manager.acquire(paged(range(12)), spare=1), Lease)


def test_a_released_lease_can_be_released_again_and_nothing_else():
    manager = CacheManager(4, SIZE)
    lease = acquire(manager, range(4))
    lease.release()
    lease.release()
    assert states(manager) == (4, 0, 0)
    with pytest.raises(InvariantError):
        lease.commit(4)
    with pytest.raises(InvariantError):
        lease.extend(5)


def test_a_switched_off_cache_neither_matches_nor_publishes():
    manager = CacheManager(4, SIZE, enabled=False)
    serve(manager, range(8))
    lease = acquire(manager, range(8))
    assert lease.cached_tokens == 0
    assert lease.miss is not None and lease.miss.code == "disabled"
    lease.release()
    assert states(manager) == (4, 0, 0)


def test_a_failing_allocation_leaves_nothing_behind():
    faults = Faults()
    manager = CacheManager(4, SIZE, faults=faults)
    faults.arm("alloc", 3)
    with pytest.raises(InjectedFaultError):
        manager.acquire(paged(range(12)))
    assert manager.check() == []
    assert states(manager) == (4, 0, 0)


@pytest.mark.parametrize(
    ("prompt", "code", "at"),
    [
        (list(range(8)), None, None),
        ([*range(8), 70], None, None),
        ([*range(8), 70, 71], "cold", 8),
        ([*range(8), 70, 71, 72, 73, 74], "cold", 8),
        ([0, 1, 2, 3, 4, 5, 70, 71, 72], "diverged", 6),
        ([70, 71, 72, 73, 74], "cold", 0),
        ([70, 71], "below_page", 0),
    ],
)
def test_every_miss_has_a_reason_and_a_place(prompt, code, at):
    manager = CacheManager(16, SIZE)
    serve(manager, range(8))
    miss = acquire(manager, prompt).miss
    assert (miss and miss.code, miss and miss.at_token) == (code, at)


@pytest.mark.parametrize(
    ("prompt", "was", "now"),
    [
        ([0, 1, 2, 3, 4, 5, 70, 71, 72], (6, 7), (70, 71, 72)),
        ([0, 1, 2, 3, 70, 71, 72, 73, 74], (4, 5, 6, 7), (70, 71, 72, 73, 74)),
    ],
)
def test_a_miss_quotes_both_sides_of_where_they_part(prompt, was, now):
    manager = CacheManager(16, SIZE)
    serve(manager, range(8))
    miss = acquire(manager, prompt).miss
    assert (miss.was_tokens, miss.now_tokens) == (was, now)
    assert "was_tokens" not in miss.to_json()


def test_a_miss_says_that_the_page_was_evicted():
    manager = CacheManager(16, SIZE)
    serve(manager, range(12))
    manager.flush()
    miss = acquire(manager, range(12)).miss
    assert miss is not None and miss.code == "evicted" and miss.at_token == 0


def test_an_announcement_is_withdrawn_only_by_the_one_who_made_it():
    manager = CacheManager(16, SIZE)
    first = acquire(manager, range(8))
    second = acquire(manager, range(8), reuse=False)  # computes the same pages, because it has to
    second.release()
    assert manager.acquire(paged(range(8))) is Refusal.IN_FLIGHT
    first.release()
    assert isinstance(manager.acquire(paged(range(8))), Lease)


def evictions(manager):
    """Pages in the order in which they would make room."""
    order = []
    manager.events.listen(lambda event: order.append(event.page) if isinstance(event, PageEvicted) else None)
    manager.flush()
    return order


def test_a_prompt_that_was_hit_twice_outlives_what_was_used_since():
    manager = CacheManager(16, SIZE, tails=False)
    often = serve(manager, [1] * 5).pages[0]
    for _ in range(2):
        serve(manager, [1] * 5)
    later = serve(manager, [2] * 5).pages[0]
    assert evictions(manager) == [later, often]


def test_a_page_that_tokens_were_copied_from_counts_as_hit():
    manager = CacheManager(16, SIZE)
    pages = []
    for head in (1, 2):
        lease = acquire(manager, [head] * 4)
        lease.commit(4, output_from=0)
        lease.release()
        pages += lease.pages
        if head == 1:
            serve(manager, [1, 1, 9])  # two tokens out of the first page
    order = evictions(manager)
    assert order.index(pages[1]) < order.index(pages[0])


def test_prompts_leave_in_the_order_of_their_use_after_the_output_behind_them_left():
    manager = CacheManager(16, SIZE)
    prompts, outputs = [], []
    for head in range(3):
        lease = acquire(manager, [head] * 8)
        lease.commit(8, output_from=4)
        lease.release()
        prompts.append(lease.pages[0])
        outputs.append(lease.pages[1])
    assert evictions(manager) == [*outputs, *prompts]


def test_pages_that_hold_a_generated_token_are_output_and_those_before_are_not():
    manager = CacheManager(16, SIZE)
    lease = acquire(manager, range(16))
    lease.commit(16, output_from=8)
    assert [node.output for node in lease.node.path()] == [False, False, True, True]
    other = acquire(manager, range(100, 116))
    other.commit(16, output_from=7)
    assert [node.output for node in other.node.path()] == [False, True, True, True]


def test_what_happens_is_told():
    manager = CacheManager(4, SIZE)
    told = []
    manager.events.listen(told.append)
    trunk = acquire(manager, range(6))
    trunk.commit(6)
    fork = trunk.fork(trunk.tokens.copy())
    fork.tokens.append(50)
    assert fork.extend(7)
    kinds = [type(event).__name__ for event in told]
    assert kinds == ["Hit", "Missed", "PageStored", "Forked", "PageCopied"]
    trunk.release()
    fork.release()
    told.clear()
    acquire(manager, [9] * 16)
    assert [(type(event).__name__, getattr(event, "reason", "")) for event in told] == [
        ("PageEvicted", "room"),
        ("PageEvicted", "room"),
        ("Hit", ""),
        ("Missed", ""),
    ]
    assert told[0].age > 0 and told[0].age < manager.tree.clock


def test_a_lease_that_waits_for_its_copies_is_not_forked():
    manager = CacheManager(8, SIZE)
    serve(manager, range(4))
    lease = acquire(manager, [0, 1, 9])
    with pytest.raises(InvariantError, match="before its copies"):
        lease.fork(lease.tokens.copy())


def test_computed_tokens_never_go_back_nor_beyond_the_page_table():
    manager = CacheManager(8, SIZE)
    lease = acquire(manager, range(6))
    lease.commit(5)
    for wrong in (4, 9):
        with pytest.raises(InvariantError, match="cannot commit"):
            lease.commit(wrong)
    assert manager.check() == []


def test_forks_keep_a_twin_alive_for_as_long_as_one_of_them_uses_it():
    manager = CacheManager(8, SIZE)
    first = acquire(manager, [1, 2, 3, 4])
    second = acquire(manager, [1, 2, 3, 4], reuse=False)
    first.commit(4)
    second.commit(4)
    assert second.twins == second.pages
    fork = second.fork(second.tokens.copy())
    second.release()
    assert manager.check() == []
    assert manager.pool.refs(fork.pages[0]) == 1
    fork.release()
    assert manager.check() == []
