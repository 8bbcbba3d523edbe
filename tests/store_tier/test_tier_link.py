"""Calls to a store that fails or hangs, and when it is asked again."""

import logging

import pytest
from memory_store import MemoryStore
from valkey_server import free_port

from agentcache.store.base import StoreItem, StoreUnavailableError
from agentcache.store.gate import FetchGate
from agentcache.store.opening import open_store
from agentcache.store.tier_known import KnownKeys
from agentcache.store.tier_link import LateError, StoreLink


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.values = {b"a": b"x" * 1000, b"b": b"y" * 1000}
    return store


@pytest.fixture
def link(store) -> StoreLink:
    return StoreLink(store, FetchGate(1000, 16, store.clock), store.clock)


def test_what_calls_take_is_measured(link, store):
    store.delay_s = 0.01
    assert link.exists([b"a", b"b", b"c"], 1.0) == 2
    assert link.gate.latency_s == pytest.approx(0.01)
    store.delay_s = 0.02
    assert link.get([b"a", b"b"], 2000, 1.0) == [store.values[b"a"], store.values[b"b"]]
    assert link.gate.bandwidth == pytest.approx(2000 / 0.01)


def test_what_never_came_is_priced_as_having_taken_all_the_time_that_there_was(link, store):
    link.exists([b"a"], 1.0)
    store.delay_s = 100
    with pytest.raises(LateError):
        link.get([b"a"], 1000, 0.2)
    assert link.gate.bandwidth == pytest.approx(5000, rel=0.01)
    with pytest.raises(LateError):
        link.exists([b"a"], 0.2)
    assert link.gate.latency_s == pytest.approx(0.1, rel=0.001)


def test_two_failures_in_a_row_open_the_circuit_and_a_success_closes_it(link, store):
    store.down = True
    for _ in range(2):
        assert link.circuit.trouble is None
        with pytest.raises(StoreUnavailableError):
            link.exists([b"a"], 1.0)
    assert link.circuit.trouble == "memory://test does not answer"
    store.down = False
    link.set([StoreItem(b"c", b"z")], 1.0)
    assert link.circuit.trouble is None
    store.down = True
    with pytest.raises(StoreUnavailableError):
        link.exists([b"a"], 1.0)
    assert link.circuit.trouble is None


def test_that_a_store_is_away_and_that_it_is_back_are_told_alike(link, store, caplog):
    with caplog.at_level(logging.WARNING):
        for down in (True, False):
            store.down = down
            link.ping(1.0)
            link.ping(1.0)
    assert [record.message for record in caplog.records] == [
        "memory://test is not used until it answers again: memory://test does not answer",
        "memory://test answers again",
    ]


@pytest.mark.parametrize("scheme", ["redis", "file"])
def test_a_store_that_is_away_at_the_start_is_told_of_once(scheme, tmp_path, caplog):
    (tmp_path / "in-the-way").touch()
    url = f"redis://127.0.0.1:{free_port()}/0" if scheme == "redis" else f"file://{tmp_path}/in-the-way/pages"
    with caplog.at_level(logging.WARNING):
        store = open_store(url, 5, optional=True)
        link = StoreLink(store, FetchGate(1000, 16))
        assert not link.ping(5) and link.circuit.trouble is not None
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "the store does not answer, and is used as soon as it does"
        ]
        link.circuit.succeeded()
        link.ping(5)
    assert [record.message.partition(store.name)[2].partition(":")[0] for record in caplog.records[1:]] == [
        " answers again",
        " is not used until it answers again",
    ]
    store.close()


def test_a_store_that_is_only_slower_than_a_short_deadline_is_not_dead(link, store):
    store.delay_s = 0.3
    for _ in range(5):
        with pytest.raises(LateError):
            link.exists([b"a"], 0.1)
    assert link.circuit.trouble is None
    store.delay_s = 10
    for _ in range(2):
        with pytest.raises(LateError):
            link.exists([b"a"], 2.0)
    assert link.circuit.trouble is not None


def test_one_failed_ping_opens_the_circuit_and_pauses_between_pings_grow(link, store):
    store.down = True
    assert not link.ping(1.0) and link.circuit.trouble is not None
    pauses = []
    for _ in range(8):
        pauses.append(link.circuit.pause_s)
        assert not link.ping(1.0)
    assert pauses[:3] == [0.25, 0.5, 1.0] and pauses[-1] == 5.0
    store.down = False
    assert link.ping(1.0) and link.circuit.trouble is None and link.circuit.pause_s == 0.25


def test_an_answer_that_cannot_be_is_cut_to_what_was_asked(link, store):
    store.batch_exists = lambda keys, timeout_s: 99
    assert link.exists([b"a"], 1.0) == 1
    store.batch_exists = lambda keys, timeout_s: -1
    assert link.exists([b"a"], 1.0) == 0


def test_what_is_known_to_be_there_is_believed_for_a_time_and_is_bounded(store):
    known = KnownKeys(store.clock)
    known.saw([b"a", b"b"])
    assert b"a" in known and b"c" not in known
    known.lost(b"a")
    assert b"a" not in known
    store.clock.pass_by(601)
    assert b"b" not in known
    known.saw(number.to_bytes(8, "big") for number in range(70_000))
    assert len(known) == 65_536 and (0).to_bytes(8, "big") not in known
