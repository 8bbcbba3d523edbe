"""Why a prompt shares no more of a page that another sequence is still filling."""

from __future__ import annotations

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens

ROOT = namespace_root("test")


def acquire(manager: CacheManager, ids: list[int]) -> Lease:
    lease = manager.acquire(PagedTokens(ids, manager.page_size, ROOT))
    assert isinstance(lease, Lease)
    return lease


def test_a_prompt_that_goes_on_differently_from_an_open_page_has_diverged():
    manager = CacheManager(16, 4)
    leader = acquire(manager, [1, 2, 3, 4, 5, 6, 7])
    leader.commit(7)
    follower = acquire(manager, [1, 2, 3, 4, 5, 9, 9])
    assert follower.cached_tokens == 5
    miss = follower.miss
    assert miss is not None and (miss.code, miss.at_token) == ("diverged", 5)
    assert miss.was_tokens == (6, 7) and miss.now_tokens == (9, 9)


def test_a_prompt_that_is_longer_than_an_open_page_has_not():
    manager = CacheManager(16, 4)
    leader = acquire(manager, [1, 2, 3, 4, 5, 6])
    leader.commit(6)
    follower = acquire(manager, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert follower.cached_tokens == 6
    assert follower.miss is not None and follower.miss.code == "cold" and follower.miss.at_token == 6
