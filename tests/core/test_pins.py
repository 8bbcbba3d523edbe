import random

import pytest

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager, Refusal
from agentcache.cache.pins import Pin
from agentcache.cache.tokens import PagedTokens

SIZE = 4
ROOT = namespace_root("model")


def paged(ids):
    return PagedTokens(ids, SIZE, ROOT)


def serve(manager, ids):
    lease = manager.acquire(paged(ids))
    assert isinstance(lease, Lease)
    lease.take_copies()
    lease.commit(len(ids))
    lease.release()
    assert manager.check() == []


def pin(manager, ids, until=60.0) -> Pin:
    pinned = manager.pin(paged(ids), until)
    assert pinned is not None
    assert manager.check() == []
    return pinned


def cached(manager, ids) -> int:
    lease = manager.acquire(paged(ids))
    assert isinstance(lease, Lease)
    found = lease.cached_tokens
    lease.release()
    return found


def flood(manager, pages, start=1000):
    for n in range(pages // 2):
        serve(manager, range(start + 100 * n, start + 100 * n + 2 * SIZE))


def test_pinned_pages_survive_a_flood_and_are_counted():
    manager = CacheManager(20, SIZE)
    serve(manager, range(20))
    assert pin(manager, range(20)).pages == 5
    assert manager.counts().pinned == 5
    flood(manager, 100)
    assert cached(manager, range(20)) == 19
    assert manager.counts().pinned == 5


def test_a_pin_ends_by_itself_and_its_pages_can_be_evicted_then():
    manager = CacheManager(20, SIZE)
    serve(manager, range(20))
    pin(manager, range(20), until=60)
    assert manager.pins.next_expiry() == 60
    manager.pins.expire(59.9)
    assert manager.counts().pinned == 5
    manager.pins.expire(60)
    assert manager.counts().pinned == 0 and manager.pins.next_expiry() is None
    flood(manager, 100)
    lease = manager.acquire(paged(range(20)))
    assert lease.cached_tokens == 0
    assert lease.miss.code == "expired"


def test_what_was_unpinned_on_purpose_is_evicted_and_not_expired():
    manager = CacheManager(20, SIZE)
    serve(manager, range(20))
    manager.pins.remove(pin(manager, range(20)))
    flood(manager, 100)
    lease = manager.acquire(paged(range(20)))
    assert isinstance(lease, Lease)
    assert lease.miss.code == "evicted"


def test_pins_of_one_beginning_are_counted():
    manager = CacheManager(20, SIZE)
    serve(manager, range(20))
    pins = [pin(manager, range(20)) for _ in range(3)]
    for n, one in enumerate(pins):
        assert manager.counts().pinned == 5
        manager.pins.remove(one)
        manager.pins.remove(one)
        assert manager.check() == []
        assert manager.counts().pinned == (5 if n < 2 else 0)


def test_over_the_budget_the_oldest_pins_lapse():
    manager = CacheManager(20, SIZE, pin_budget=6)
    for n in range(3):
        serve(manager, range(100 * n, 100 * n + 12))
    pins = [pin(manager, range(100 * n, 100 * n + 12)) for n in range(3)]
    assert [(one in manager.pins) for one in pins] == [False, True, True]
    assert manager.counts().pinned == 6


def test_a_pin_larger_than_the_budget_keeps_the_beginning():
    manager = CacheManager(20, SIZE, pin_budget=6)
    serve(manager, range(40))
    assert pin(manager, range(40)).pages == 6
    flood(manager, 100)
    assert cached(manager, range(40)) == 24


def test_nothing_cached_is_nothing_to_pin():
    assert CacheManager(4, SIZE).pin(paged(range(8)), 60) is None


def test_a_request_that_needs_the_room_ends_pins_oldest_first_and_no_more_than_it_must():
    manager = CacheManager(12, SIZE, pin_budget=12)
    for n in range(3):
        serve(manager, range(100 * n, 100 * n + 16))
    pins = [pin(manager, range(100 * n, 100 * n + 16)) for n in range(3)]
    lease = manager.acquire(paged(range(900, 900 + 16)))
    assert isinstance(lease, Lease)
    assert [(one in manager.pins) for one in pins] == [False, True, True]
    assert manager.check() == []


def test_pins_stay_when_ending_them_would_not_be_enough():
    manager = CacheManager(12, SIZE, pin_budget=12)
    serve(manager, range(16))
    one = pin(manager, range(16))
    held = manager.acquire(paged(range(500, 520)))
    assert isinstance(held, Lease)
    assert manager.acquire(paged(range(900, 932))) is Refusal.NO_ROOM
    assert one in manager.pins


def test_a_running_sequence_that_grows_ends_pins():
    manager = CacheManager(4, SIZE, pin_budget=4)
    serve(manager, range(8))
    one = pin(manager, range(8))
    lease = manager.acquire(paged(range(100, 108)))
    assert isinstance(lease, Lease)
    lease.commit(8)
    lease.tokens.extend(range(4))
    assert lease.extend(12)
    assert one not in manager.pins
    assert manager.check() == []


def test_using_a_pinned_prefix_neither_unpins_nor_leaks_it():
    manager = CacheManager(20, SIZE)
    serve(manager, range(10))
    one = pin(manager, range(10))
    assert one.pages == 3  # the partly filled page too
    lease = manager.acquire(paged([*range(10), 70, 71]))
    assert isinstance(lease, Lease) and lease.cached_tokens == 10
    assert manager.counts().pinned == 0  # all three are live: the third is being copied from
    lease.take_copies()
    lease.commit(12)
    assert manager.counts().pinned == 1
    manager.pins.remove(one)
    assert manager.check() == []
    lease.release()
    assert manager.check() == []
    assert manager.counts().pinned == 0


@pytest.mark.parametrize("seed", range(25))
def test_random_lives_with_pins_keep_every_invariant(seed):
    rng = random.Random(seed)
    manager = CacheManager(rng.randrange(6, 30), SIZE, pin_budget=rng.randrange(1, 12))
    leases: list[Lease] = []
    pins: list[Pin] = []
    now = 0.0
    for _ in range(600):
        ids = [rng.randrange(2)] * rng.choice([0, 4, 9]) + [rng.randrange(3) for _ in range(rng.randrange(1, 10))]
        kind = rng.random()
        if kind < 0.35 and len(leases) < 4:
            lease = manager.acquire(paged(ids))
            if isinstance(lease, Lease):
                lease.take_copies()
                leases.append(lease)
        elif kind < 0.6 and leases:
            lease = rng.choice(leases)
            upto = min(len(lease.tokens), lease.computed + rng.randrange(8))
            if upto >= lease.computed and lease.extend(upto):
                lease.take_copies()
                lease.commit(upto)
        elif kind < 0.75 and leases:
            leases.pop(rng.randrange(len(leases))).release()
        elif kind < 0.9:
            new = manager.pin(paged(ids), now + rng.randrange(1, 20))
            pins += [new] if new else []
        elif kind < 0.95 and pins:
            manager.pins.remove(pins.pop(rng.randrange(len(pins))))
        else:
            now += rng.randrange(0, 8)
            manager.pins.expire(now)
        assert manager.check() == []
    for lease in leases:
        lease.release()
    manager.pins.expire(now + 100)
    assert manager.check() == []
    assert manager.counts().pinned == 0
    manager.flush()
    assert manager.counts().free == manager.pool.num_pages
