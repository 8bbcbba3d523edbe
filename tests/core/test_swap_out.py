"""Sequences that give their pages back although they are not finished, and get them back from host memory."""

from __future__ import annotations

import pytest
from replay import ReplayRunner, states

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.lower import LowerTiers
from agentcache.cache.manager import CacheManager
from agentcache.cache.pages import PageLoad
from agentcache.cache.tiers import HostTier
from agentcache.cache.tokens import PagedTokens

SIZE = 4
ROOT = namespace_root("model")


class World:
    """A manager above a host tier; slots hold a hash of everything up to them."""

    def __init__(self, pages=12, host=8):
        self.runner = ReplayRunner(pages, SIZE)
        self.host = HostTier(host)
        self.manager = CacheManager(pages, SIZE, lower=LowerTiers([self.host] if host else [], self.runner))

    def acquire(self, tokens) -> Lease:
        lease = self.manager.acquire(tokens)
        assert isinstance(lease, Lease)
        return lease

    def compute(self, lease, upto):
        for copy in lease.take_copies():
            if isinstance(copy, PageLoad):
                self.runner.write_page(copy.target, copy.data)
            else:
                self.runner.slots[copy.target][: copy.tokens] = self.runner.slots[copy.source][: copy.tokens]
        expected = states(lease.tokens[0:upto])
        for position in range(lease.computed, upto):
            self.runner.slots[lease.pages[position // SIZE]][position % SIZE] = expected[position]
        lease.commit(upto)
        assert self.manager.check() == []
        for position in range(upto):
            assert self.runner.slots[lease.pages[position // SIZE]][position % SIZE] == expected[position]


def interrupted(world, length=11) -> PagedTokens:
    """A sequence that has drawn a token which it has not computed, and is swapped out; then the device is flushed."""
    tokens = PagedTokens(range(length), SIZE, ROOT)
    lease = world.acquire(tokens)
    world.compute(lease, length)
    tokens.append(50)
    lease.swap_out()
    assert lease.closed and world.manager.check() == []
    world.manager.flush()
    assert world.manager.counts().free == world.manager.num_pages
    return tokens


@pytest.mark.parametrize("length", [2, 4, 7, 8, 11, 12])
def test_what_was_swapped_out_comes_back_to_the_last_token(length):
    world = World()
    tokens = interrupted(world, length)
    lease = world.acquire(tokens)
    assert lease.computed == length
    world.compute(lease, length + 1)
    assert sum(lease.tier_tokens.values()) == length


def test_a_host_that_is_too_small_takes_nothing_and_everything_is_computed_again():
    world = World(host=2)
    tokens = interrupted(world, 11)
    assert len(world.host) <= 2
    lease = world.acquire(tokens)
    world.compute(lease, 12)
    assert world.manager.check() == []


def test_without_a_host_swapping_out_is_releasing():
    world = World(host=0)
    tokens = interrupted(world, 11)
    assert world.acquire(tokens).computed == 0


def test_pages_that_others_hold_are_not_copied():
    world = World(host=8)
    shared = world.acquire(PagedTokens(range(8), SIZE, ROOT))
    world.compute(shared, 8)
    own = world.acquire(PagedTokens([*range(8), 70, 71, 72, 73], SIZE, ROOT))
    world.compute(own, 12)
    assert own.swap_out() == 1 and len(world.host) == 1
    assert not shared.closed and world.manager.check() == []


def test_a_failed_copy_costs_that_page_and_what_follows_it():
    world = World()
    world.manager.lower._faults.arm("host_copy", 1)  # the page that is copied first is the last one
    tokens = interrupted(world, 11)
    lease = world.acquire(tokens)
    assert lease.computed == 8
    world.compute(lease, 12)


def test_the_partly_filled_page_of_another_sequence_is_not_taken():
    world = World()
    interrupted(world, 11)
    other = PagedTokens([*range(10), 60, 61], SIZE, ROOT)
    lease = world.acquire(other)
    assert lease.computed == 8
    world.compute(lease, 12)
