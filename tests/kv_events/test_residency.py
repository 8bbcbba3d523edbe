"""What is told of pages that come and go is what is so, after whatever happens to the cache."""

import pytest
from cache_life import PUBLIC, PUBLIC_IDS, ROOTS, SIZE, CacheLife

from agentcache.cache.hashing import page_key
from agentcache.cache.residency import AllLeft, PageArrived, PageLeft, Residence, residents, watch_residency
from agentcache.cache.tokens import PagedTokens, PublicPart


class Told:
    """The pages of each tier, from what is told alone."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[bytes, PageArrived]] = {"device": {}, "host": {}, "disk": {}}
        self.kinds: set[tuple[str, str]] = set()

    def hear(self, event: Residence) -> None:
        self.kinds.add((type(event).__name__, event.tier))
        if isinstance(event, PageArrived):
            self.pages[event.tier][event.key] = event
        elif isinstance(event, PageLeft):
            self.pages[event.tier].pop(event.key, None)
        else:
            self.pages[event.tier].clear()

    def held(self) -> dict[str, set[bytes]]:
        return {tier: set(pages) for tier, pages in self.pages.items()}


def watched(life: CacheLife) -> Told:
    told = Told()
    watch_residency(life.manager, told.hear)
    return told


def lead_to_a_root(pages: dict[bytes, PageArrived]) -> bool:
    """Whether every page's parents are there too, up to the root of a namespace or of what is public."""
    for page in pages.values():
        while page.parent not in {*ROOTS, PUBLIC}:
            page = pages[page.parent]
        assert page.parent == page.root
    return True


def test_what_is_told_is_what_is_held_after_every_step(tmp_path):
    kinds: set[tuple[str, str]] = set()
    for seed in range(12):
        life = CacheLife(seed, tmp_path / str(seed))
        told = watched(life)
        for _ in range(120):
            happened = life.step()
            assert told.held() == life.held(), happened
            assert lead_to_a_root(told.pages["device"])
        assert not life.manager.check()
        life.manager.lower.close(5)
        kinds |= told.kinds
    everything = {(kind, tier) for kind in ("PageArrived", "PageLeft") for tier in ("device", "host", "disk")}
    assert kinds == everything | {("AllLeft", "device")}


def test_who_listens_later_is_told_what_is_there_and_what_comes(tmp_path):
    for seed in range(6):
        life = CacheLife(seed, None)
        for _ in range(40):
            life.step()
        told = watched(life)
        assert told.held() == life.held()
        for _ in range(40):
            life.step()
            assert told.held() == life.held()


def test_pages_of_an_earlier_run_are_told_when_they_are_found(tmp_path):
    first = CacheLife(1, tmp_path)
    ids = list(range(20))
    lease = first.manager.acquire(PagedTokens(ids, SIZE, ROOTS[0]))
    lease.commit(20)
    lease.release()
    first.flush()
    first.manager.lower.close(5)

    second = CacheLife(2, tmp_path)
    told = watched(second)
    kept = second.held()["disk"]
    assert len(kept) == 5 and not told.pages["disk"]  # only their files know what they hold
    lease = second.manager.acquire(PagedTokens(ids[:13], SIZE, ROOTS[0]))
    assert set(told.pages["disk"]) == set(lease.tokens.keys(3)) < kept
    assert [page.parent for page in told.pages["disk"].values()] == [ROOTS[0], *lease.tokens.keys(2)[:2]]
    second.manager.lower.close(5)


def test_what_follows_a_public_beginning_names_the_last_public_page():
    life = CacheLife(3, None)
    told = watched(life)
    tokens = PagedTokens([*PUBLIC_IDS, 1, 2, 3, 4], SIZE, ROOTS[1], PublicPart(PUBLIC, 2))
    lease = life.manager.acquire(tokens)
    lease.commit(12)
    pages = [told.pages["device"][key] for key in tokens.keys(3)]
    assert [page.parent for page in pages] == [PUBLIC, tokens.key(0), tokens.key(1)]
    assert [page.root for page in pages] == [PUBLIC, PUBLIC, ROOTS[1]]
    assert page_key(pages[2].parent, pages[2].tokens) != pages[2].key  # the key itself knows the namespace


def test_a_listener_that_fails_keeps_nobody_from_anything(caplog):
    life = CacheLife(4, None)

    def fail(event: Residence) -> None:
        raise OSError("no room to note it")

    watch_residency(life.manager, fail)
    told = watched(life)
    for _ in range(30):
        life.step()
    assert told.held() == life.held()
    assert "no room to note it" in caplog.text


def test_a_listener_that_was_taken_off_hears_no_more():
    life = CacheLife(5, None)
    told, gone = watched(life), Told()
    watch_residency(life.manager, gone.hear)
    life.manager.watched().remove(gone.hear)
    while not told.pages["device"]:
        life.step()
    assert not gone.pages["device"]


@pytest.mark.parametrize("seed", range(3))
def test_residents_come_parents_first(seed):
    life = CacheLife(seed, None, pages=64)
    for _ in range(60):
        life.step()
    seen = {PUBLIC, *ROOTS}
    for page in residents(life.manager):
        if page.tier == "device":
            assert page.parent in seen
            seen.add(page.key)
    assert not isinstance(page, AllLeft)
