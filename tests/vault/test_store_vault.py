"""Sessions in a shared store: a folder, and a server with the Redis protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from valkey_server import Valkey

from agentcache.sessions.vault import Kept, RecordName, VaultUnavailableError
from agentcache.store.base import PageStore
from agentcache.store.opening import open_store
from agentcache.store.session_index import PARTS, SessionIndex
from agentcache.store.vault import StoreVault

ONE = RecordName(b"owner", "sess_1-r0")


def write(index: SessionIndex) -> None:
    while index.owing:
        index.write_part()


def ids_of(index: SessionIndex) -> list[str]:
    return [name for part in range(PARTS) for name in index.ids_in(b"owner", part)]


@pytest.fixture
def store(url) -> Iterator[PageStore]:
    store = open_store(url, 10)
    yield store
    store.close()


def test_versions_count_and_the_slower_of_two_is_refused(store):
    async def life() -> None:
        vault, other = StoreVault(store, 10), StoreVault(store, 10)
        assert vault.lasting and await vault.load(ONE) is None
        assert await vault.save(ONE, b"a", 0, 60)
        assert not await other.save(ONE, b"b", 0, 60)
        assert await other.load(ONE) == Kept(1, b"a")
        done = await asyncio.gather(*(each.save(ONE, b"%d" % i, 1, 60) for i, each in enumerate([vault, other] * 8)))
        assert sum(done) == 1
        assert await vault.load(ONE) == Kept(2, b"%d" % done.index(True))
        assert not await vault.save(ONE, b"c", 5, 60)
        for each in (vault, other):
            await each.close()

    asyncio.run(life())


def test_owners_have_names_of_their_own(store):
    async def life() -> None:
        vault = StoreVault(store, 10)
        names = [RecordName(b"a", "b1"), RecordName(b"ab", "1"), RecordName(b"a", "snapshot:b1"), ONE]
        for number, name in enumerate(names):
            assert await vault.save(name, b"%d" % number, 0, 60)
        assert [kept.record for name in names if (kept := await vault.load(name))] == [b"0", b"1", b"2", b"3"]
        assert await vault.load(RecordName(b"other", ONE.id)) is None
        await vault.close()

    asyncio.run(life())


def test_time_that_is_over_is_as_if_nothing_had_been_there(store):
    async def life() -> None:
        vault = StoreVault(store, 10)
        assert await vault.save(ONE, b"a", 0, 0.05)
        await asyncio.sleep(0.2)
        assert await vault.load(ONE) is None
        assert await vault.save(ONE, b"b", 0, 60)
        await vault.close()

    asyncio.run(life())


def test_a_list_has_the_sessions_of_all_servers_and_of_one_owner(store):
    async def life() -> None:
        vaults = [StoreVault(store, 10) for _ in range(3)]
        made = {owner: {f"sess_{i}" for i in range(owner[0], owner[0] + 40)} for owner in (b"\x01", b"\x50")}
        saves = [
            vaults[i % 3].save(RecordName(owner, name), b"x", 0, 60)
            for owner, names in made.items()
            for i, name in enumerate(sorted(names))
        ]
        assert all(await asyncio.gather(*saves))
        await vaults[0].save(RecordName(b"\x01", "snapshot:kept"), b"x", 0, 60)
        for vault in vaults:
            await vault.close()
        fresh = StoreVault(store, 10)
        for owner, names in made.items():
            assert set(await fresh.ids_of(owner)) == names
        assert await fresh.ids_of(b"nobody") == []
        await fresh.close()

    asyncio.run(life())


def test_the_index_is_told_seldom_and_forgets_what_is_over(store):
    index = SessionIndex(store, 10)
    assert index.note(ONE, 60)
    write(index)
    assert not index.note(ONE, 60) and not index.owing
    assert index.note(RecordName(b"owner", "sess_short"), 0.0)
    write(index)
    assert ids_of(SessionIndex(store, 10)) == [ONE.id]


def test_an_index_that_somebody_spoiled_is_an_empty_one(store):
    from agentcache.store import session_index

    index = SessionIndex(store, 10)
    index.note(ONE, 60)
    write(index)
    for part in range(16):
        key = session_index._key(b"owner", part)
        record = store.load(key, 10)
        assert store.save(key, b"nonsense", 0 if record is None else record.version, 60, 10)
    assert ids_of(SessionIndex(store, 10)) == []
    again = SessionIndex(store, 10)
    again.note(ONE, 60)
    write(again)
    assert ids_of(SessionIndex(store, 10)) == [ONE.id]


def test_a_store_that_is_gone_is_a_vault_that_does_not_answer():
    async def life() -> None:
        with Valkey() as server:
            store = open_store(server.url, 10)
            vault = StoreVault(store, 0.5)
            assert await vault.save(ONE, b"a", 0, 60)
        for call in (vault.load(ONE), vault.save(ONE, b"b", 1, 60), vault.ids_of(b"owner")):
            with pytest.raises(VaultUnavailableError):
                await call
        await vault.close()
        with pytest.raises(VaultUnavailableError):
            await vault.load(ONE)
        store.close()

    asyncio.run(life())
