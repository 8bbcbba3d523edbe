"""What every shared store does, whatever is behind it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waiting import wait_until

from agentcache.cache.tiers import StoredPage
from agentcache.store.base import PageStore, Record, StoreItem, StoreUnavailableError
from agentcache.store.codec import pack_page, unpack_page

T = 10.0

names = st.binary(min_size=1, max_size=6)
batches = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.lists(st.tuples(names, st.binary(max_size=40)), max_size=5)),
        st.tuples(st.just("get"), st.lists(names, max_size=8)),
        st.tuples(st.just("exists"), st.lists(names, max_size=8)),
    ),
    max_size=12,
)
record_calls = st.lists(
    st.one_of(
        st.tuples(st.just("save"), names, st.integers(0, 3)),
        st.tuples(st.just("load"), names, st.just(0)),
        st.tuples(st.just("delete"), names, st.just(0)),
    ),
    max_size=15,
)
examples = itertools.count()
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def put(store: PageStore, **values: bytes) -> None:
    store.batch_set([StoreItem(name.encode(), value) for name, value in values.items()], T)


def test_values_come_back_in_the_order_of_their_keys(store: PageStore) -> None:
    put(store, a=b"1", b=bytes(range(256)) * 5000, c=b"")
    assert store.batch_get([b"c", b"nothing", b"b", b"a", b"a"], T) == [b"", None, bytes(range(256)) * 5000, b"1", b"1"]
    put(store, a=b"another")
    assert store.batch_get([b"a"], T) == [b"another"]
    counts = store.stats().counts
    assert (counts["written"], counts["read"], counts["missing"]) == (4, 5, 1)


def test_the_prefix_that_is_held_ends_at_the_first_gap(store: PageStore) -> None:
    put(store, a=b"1", b=b"2", d=b"4")
    assert store.batch_exists([b"a", b"b", b"c", b"d"], T) == 2
    assert store.batch_exists([b"d", b"b", b"a"], T) == 3
    assert store.batch_exists([b"c", b"a"], T) == 0
    assert store.batch_exists([], T) == 0


def test_nothing_asked_is_nothing_done(store: PageStore) -> None:
    assert store.batch_set([], T) == set()
    assert store.batch_get([], T) == []


@few
@given(calls=batches)
def test_random_batches_do_as_a_dictionary_does(store: PageStore, calls: list[tuple[str, list[Any]]]) -> None:
    scope = b"%d/" % next(examples)
    model: dict[bytes, bytes] = {}
    for verb, arguments in calls:
        if verb == "set":
            items = [StoreItem(scope + name, value) for name, value in arguments]
            assert store.batch_set(items, T) == {item.key for item in items}
            model.update(items)
            continue
        keys = [scope + name for name in arguments]
        if verb == "get":
            assert store.batch_get(keys, T) == [model.get(key) for key in keys]
        else:
            held = len(list(itertools.takewhile(model.__contains__, keys)))
            assert store.batch_exists(keys, T) == held


@few
@given(calls=record_calls)
def test_random_records_do_as_a_dictionary_does(store: PageStore, calls: list[tuple[str, bytes, int]]) -> None:
    scope = b"%d/" % next(examples)
    model: dict[bytes, Record] = {}
    for number, (verb, name, expected) in enumerate(calls):
        key = scope + name
        last = model.get(key)
        if verb == "save":
            fits = expected == (last.version if last else 0)
            assert store.save(key, b"%d" % number, expected, 60, T) is fits
            if fits:
                model[key] = Record(expected + 1, b"%d" % number)
        elif verb == "delete":
            store.delete(key, T)
            model.pop(key, None)
        assert store.load(key, T) == model.get(key)


def test_a_record_is_forgotten_when_its_time_is_over(store: PageStore) -> None:
    assert store.save(b"short", b"value", 0, 0.2, T)
    assert store.save(b"long", b"value", 0, 600, T)
    wait_until(lambda: store.load(b"short", T) is None)
    assert not store.save(b"short", b"value", 1, 600, T)
    assert store.save(b"short", b"again", 0, 600, T)
    assert store.load(b"short", T) == Record(1, b"again")
    assert store.load(b"long", T) == Record(1, b"value")


def test_pages_and_records_of_a_name_do_not_meet(store: PageStore) -> None:
    key = b"agentcache:session:1"
    assert store.save(key, b"a record", 0, 60, T)
    value = store.batch_get([key], T)[0]
    assert value is None or not isinstance(unpack_page(value, key, b"", b"", ""), StoredPage)


def test_several_threads_use_one_store_at_once(store: PageStore) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        value = b"%d" % number * 5000
        for turn in range(10):
            keys = [b"%d/%d/%d" % (number, turn, each) for each in range(4)]
            store.batch_set([StoreItem(key, value) for key in keys], T)
            if store.batch_exists(keys, T) != 4 or store.batch_get(keys, T) != [value] * 4:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_call_without_time_is_unavailable_and_the_next_one_is_served(store: PageStore) -> None:
    put(store, a=b"1")
    with pytest.raises(StoreUnavailableError):
        store.batch_get([b"a"], 0)
    with pytest.raises(StoreUnavailableError):
        store.batch_set([StoreItem(b"a", b"2")], 0)
    assert store.batch_get([b"a"], T)[0] in {b"1", b"2"}
    assert store.stats().counts["failed"] == 2


# -- several processes ------------------------------------------------------------------------------------------------

COUNTER = """
import sys
from agentcache.store.opening import open_store
store = open_store(sys.argv[1], 30)
added = 0
while added < 30:
    record = store.load(b"counter", 30)
    version, number = (record.version, int(record.value)) if record else (0, 0)
    added += store.save(b"counter", b"%d" % (number + 1), version, 600, 30)
"""

WRITER = """
import sys
from agentcache.cache.tiers import StoredPage
from agentcache.store.base import StoreItem
from agentcache.store.codec import pack_page
from agentcache.store.opening import open_store
store = open_store(sys.argv[1], 30)
print("ready", flush=True)
for turn in range(10**6):
    pages = [StoredPage(b"%d" % each, b"", b"%d" % each, bytes([turn % 256]) * 700_000) for each in range(8)]
    store.batch_set([StoreItem(page.key, pack_page(page, "print")) for page in pages], 30)
"""


def test_of_records_written_by_several_processes_none_is_lost(store: PageStore, url: str) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", COUNTER, url]) for _ in range(2)]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert store.load(b"counter", T) == Record(60, b"60")


def test_a_writer_that_is_killed_leaves_only_whole_values(store: PageStore, url: str) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout as said:
        assert said.readline() == "ready\n"
        time.sleep(0.15)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    keys = [b"%d" % each for each in range(8)]
    for key, value in zip(keys, store.batch_get(keys, T)):
        assert value is None or isinstance(unpack_page(value, key, b"", key, "print"), StoredPage)
    page = StoredPage(b"7", b"", b"7", b"data")
    store.batch_set([StoreItem(b"7", pack_page(page, "print"))], T)
    assert store.batch_get([b"7"], T) == [pack_page(page, "print")]
