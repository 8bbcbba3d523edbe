"""Pages on their way to the store: whole, once, bounded, the ends of chains first."""

import threading
from itertools import pairwise

from memory_store import PAGE_BYTES, ROOT, MemoryStore, tier_on

from agentcache.cache.hashing import pack_tokens, page_key
from agentcache.cache.tiers import StoredPage
from agentcache.store.codec import StoreKeys
from agentcache.store.tier_known import KnownKeys
from agentcache.store.tier_writer import chains

KEYS = StoreKeys("model", "float32", 4)


def chain(length: int, first: int = 0) -> list[StoredPage]:
    """Pages that follow each other, the first one first."""
    pages, parent = [], ROOT
    for number in range(length):
        tokens = pack_tokens([first + number] * 4)
        pages.append(StoredPage(page_key(parent, tokens), parent, tokens, bytes([number]) * PAGE_BYTES))
        parent = pages[-1].key
    return pages


def test_pages_are_put_in_runs_from_the_beginning_on():
    one, two = chain(4), chain(3, first=50)
    mixed = [one[3], two[2], one[1], one[0], two[0], one[2], two[1]]
    assert sorted(map(len, chains(mixed))) == [3, 4]
    assert all(after.parent == before.key for run in chains(mixed) for before, after in pairwise(run))
    assert sorted(map(len, chains([one[0], one[3]]))) == [1, 1]


def test_the_end_of_a_chain_is_given_first_since_it_may_be_forgotten_first():
    store = MemoryStore()
    tier = tier_on(store)
    pages = chain(5)
    for page in reversed(pages):
        tier.put(page)
    assert tier.work() and not tier.work()
    assert list(store.values) == [KEYS.key(page.key) for page in reversed(pages)]


def test_what_another_server_wrote_meanwhile_is_not_written_again():
    store = MemoryStore()
    pages = chain(5)
    for tier, upto in ((tier_on(store), 3), (tier_on(store), 5)):
        for page in pages[:upto]:
            tier.put(page)
        tier.work()
    assert [count for call, count in store.calls if call == "set"] == [3, 2]
    assert tier.stats().counts["written"] == 2 and tier.stats().counts["there"] == 3
    assert not any(tier.lacks(page.key) for page in pages)


def test_what_a_full_store_refused_is_counted_and_not_taken_to_be_there():
    store = MemoryStore()
    store.room = 2
    tier = tier_on(store)
    pages = chain(5)
    for page in pages:
        tier.put(page)
    tier.work()
    assert list(store.values) == [KEYS.key(page.key) for page in (pages[4], pages[3])]  # the end is given first
    counts = tier.stats().counts
    assert (counts["written"], counts["full"], counts["failed"]) == (2, 3, 0)
    far = tier.far_stats()
    assert far.pages["full"] == 3 and far.bytes["full"] == 3 * PAGE_BYTES and far.up
    assert [tier.lacks(page.key) for page in pages] == [True, True, True, False, False]
    assert tier.check([]) == []


def test_a_store_that_takes_pages_again_is_offered_what_it_refused():
    """Pages that an engine has put once are put again only when the epoch has grown."""
    store = MemoryStore()
    store.room = 2
    tier = tier_on(store)
    epoch = tier.epoch
    for page in chain(3):
        tier.put(page)
    tier.work()
    assert tier.epoch == epoch
    store.room = 10
    for number in range(2):
        tier.put(chain(1, first=50 + number)[0])
        tier.work()
        assert tier.epoch == epoch + 1
    assert tier.stats().counts["written"] == 4


def test_pages_that_wait_can_be_had_at_once():
    tier = tier_on(MemoryStore())
    page = chain(1)[0]
    assert tier.lacks(page.key)
    tier.put(page)
    assert not tier.lacks(page.key) and page.key in tier
    assert tier.get(page.key, page.parent, page.tokens) is page
    assert tier.get(page.key, b"another", page.tokens) is None


def test_the_writer_waits_for_bytes_that_leave_the_device_behind_the_step():
    store, data = MemoryStore(), bytearray(PAGE_BYTES)
    page = chain(1)[0]
    waited = []

    def whole() -> None:
        waited.append(threading.get_ident())
        data[:] = b"w" * PAGE_BYTES

    tier = tier_on(store, threads=True)
    tier.put(page._replace(data=memoryview(data), whole=whole))
    tier.close(20)
    assert store.values[KEYS.key(page.key)].endswith(b"w" * PAGE_BYTES)
    assert len(waited) == 1 and threading.get_ident() not in waited


def test_pages_that_cannot_be_written_are_counted_and_let_go():
    store = MemoryStore()
    tier = tier_on(store)
    store.down = True
    for page in chain(3):
        tier.put(page)
        tier.work()
    # After the second failure nothing is tried any more: the third waits for the store to come back.
    assert tier.stats().counts["failed"] == 2 and len(tier._writer) == 1 and tier.check([]) == []
    store.down = False
    assert tier.reach() is None and tier.work()
    assert tier.stats().counts["written"] == 1


def test_nobody_waits_at_the_end_for_a_store_that_is_dead():
    store = MemoryStore()
    tier = tier_on(store, threads=True)
    store.down = True
    assert tier.reach() is not None
    for page in chain(3):
        tier.put(page)
    tier.close(3600)
    assert not store.values


def test_what_was_refused_is_not_known_before_it_was_written_however_often_it_is_seen():
    known = KnownKeys()
    known.saw([b"good", b"bad"])
    known.refused(b"bad")
    known.saw([b"good", b"bad"])
    assert b"good" in known and b"bad" not in known and known.is_bad(b"bad")
    known.wrote([b"bad"])
    assert b"bad" in known and not known.is_bad(b"bad")
    known.clear()
    assert len(known) == 0
