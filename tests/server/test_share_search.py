"""Share points in the tree itself: public parts, other namespaces, and what has been evicted."""

from __future__ import annotations

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens, PublicPart
from agentcache.server.share_points import branches_of, share_points_of

SIZE = 4
PUBLIC = namespace_root("public")
MINE, THEIRS = namespace_root("mine"), namespace_root("theirs")


def tokens_of(ids, root=MINE, public=0):
    return PagedTokens(ids, SIZE, root, PublicPart(PUBLIC, public) if public else None)


def run(manager, ids, root=MINE, public=0):
    lease = manager.acquire(tokens_of(ids, root, public))
    assert isinstance(lease, Lease)
    lease.commit(len(ids))
    lease.release()


def points(manager, ids, root=MINE, public=0):
    tokens = tokens_of(ids, root, public)
    return [point.token for point in share_points_of(branches_of(manager.tree, tokens), tokens)]


def test_behind_a_public_part_only_the_own_namespace_is_seen():
    manager = CacheManager(64, SIZE, public_root=PUBLIC)
    head = [1, 2, 3, 4, 5, 6, 7, 8]
    run(manager, [*head, 9, 1, 1, 1, 1], THEIRS, public=2)
    run(manager, [*head, 9, 2, 2, 2, 2], THEIRS, public=2)
    assert points(manager, [*head, 9, 3, 3, 3], MINE, public=2) == []
    run(manager, [*head, 7, 1, 1, 1, 1], MINE, public=2)
    assert points(manager, [*head, 7, 3, 3, 3], MINE, public=2) == [9]
    assert points(manager, [*head, 9, 3, 3, 3], THEIRS, public=2) == [9]
    run(manager, [*head, 7, 1, 1, 1, 5, 5, 5, 5], MINE, public=2)
    assert points(manager, [*head, 7, 1, 1, 1, 5, 6, 6, 6], MINE, public=2) == [13]


def test_what_was_evicted_is_no_point_any_more():
    manager = CacheManager(64, SIZE)
    run(manager, [1, 2, 3, 4, 5, 5, 5, 5])
    run(manager, [1, 2, 3, 4, 5, 6, 6, 6])
    assert points(manager, [1, 2, 3, 4, 5, 5, 5, 5]) == [5]
    manager.flush()
    assert points(manager, [1, 2, 3, 4, 5, 5, 5, 5]) == []


def test_looking_changes_nothing():
    manager = CacheManager(64, SIZE)
    run(manager, [1, 2, 3, 4, 5, 5, 5, 5])
    before = manager.tree.clock, manager.counts()
    assert points(manager, [1, 2, 3, 4, 5, 6]) == [5] and points(manager, [7, 7, 7, 7, 7]) == []
    assert points(manager, [1, 2], THEIRS) == []
    assert (manager.tree.clock, manager.counts()) == before and manager.check() == []
