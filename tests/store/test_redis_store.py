"""A server that is slow, hung, gone, full, protected, or holds what is not ours."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from serving_loop import served
from valkey_server import Valkey
from waiting import wait_until

from agentcache.errors import SettingsError
from agentcache.store.base import PageStore, Record, StoreItem, StoreUnavailableError
from agentcache.store.opening import open_store, store_at
from bench.cluster_parts.slow_proxy import Line, SlowProxy

T = 10.0


@pytest.fixture
def store(valkey: Valkey) -> Iterator[PageStore]:
    with valkey.client() as client:
        client.flushall()
    store = open_store(valkey.url, T)
    yield store
    store.close()


@pytest.fixture
def own() -> Iterator[Valkey]:
    """A server that a test may stop, fill and protect."""
    with Valkey(maxmemory="40mb", maxmemory_policy="noeviction", enable_debug_command="yes") as server:
        yield server


@contextlib.contextmanager
def line_to(server: Valkey) -> Iterator[tuple[PageStore, Callable[[Line], None]]]:
    """A store behind a proxy, and what changes the line between them."""
    proxy = SlowProxy("127.0.0.1", server.port)
    with served(proxy.listen()) as (port, loop):

        def change(line: Line) -> None:
            done = threading.Event()
            loop.call_soon_threadsafe(proxy.change, line)
            loop.call_soon_threadsafe(done.set)
            assert done.wait(T)

        with contextlib.closing(open_store(f"redis://127.0.0.1:{port}/0", T)) as store:
            yield store, change


def message(call: Callable[[], object]) -> str:
    with pytest.raises(StoreUnavailableError) as raised:
        call()
    return str(raised.value)


# -- servers that do not answer ---------------------------------------------------------------------------------------


def test_a_server_that_hangs_is_given_up_and_used_again(own: Valkey) -> None:
    store = open_store(own.url, T)
    store.batch_set([StoreItem(b"a", b"1")], T)
    with own.hung():
        assert "did not answer within 0.1 s" in message(lambda: store.batch_get([b"a"], 0.1))
        assert "did not answer within 0.1 s" in message(lambda: store.batch_exists([b"a"], 0.1))
        assert "did not answer within 0.1 s" in message(lambda: store.save(b"r", b"1", 0, 60, 0.1))
    assert store.batch_get([b"a"], T) == [b"1"]
    assert store.stats().counts["failed"] == 3


def test_a_server_that_went_away_is_used_again_when_it_is_back(own: Valkey) -> None:
    store = open_store(own.url, T)
    store.batch_set([StoreItem(b"a", b"1")], T)
    own.kill()
    for _ in range(2):
        assert "cannot be reached" in message(lambda: store.batch_get([b"a"], T))
    own.start()
    assert store.batch_get([b"a"], T) == [None]
    store.batch_set([StoreItem(b"a", b"2")], T)
    assert store.batch_get([b"a"], T) == [b"2"]


def test_a_reply_that_is_cut_short_is_a_miss(valkey: Valkey) -> None:
    value = b"v" * 100_000
    with line_to(valkey) as (store, change):
        keys = [b"cut/%d" % each for each in range(600)]
        store.batch_set([StoreItem(key, value) for key in keys], T)
        change(Line(cut_after=150))
        assert "cannot be reached" in message(lambda: store.batch_get(keys[:1], T))
        change(Line())
        assert store.batch_get(keys[:2], T) == [value] * 2
        change(Line(cut_after=30_000_000))
        got = store.batch_get(keys, T)
        assert got[:100] == [value] * 100  # what had come
        assert got[-100:] == [None] * 100
        assert store.stats().counts["late"] == got.count(None)
        change(Line())
        assert store.batch_get(keys[-1:], T) == [value]


def test_a_server_that_sends_a_little_now_and_then_cannot_hold_a_call() -> None:
    """A timeout of each read would never end: every read gets its byte."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def trickle() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(2**16)
                connection.sendall(b"*1\r\n$100000\r\n")
                while not stop.wait(0.02):
                    connection.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        store = store_at(f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
        assert "did not answer within 0.3 s" in message(lambda: store.batch_get([b"a"], 0.3))
        assert not stop.is_set()
        stop.set()
        thread.join()


def test_a_server_that_takes_nothing_cannot_hold_a_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        store = store_at(f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
        items = [StoreItem(b"%d" % each, bytes(2**20)) for each in range(32)]
        assert "did not answer within 0.3 s" in message(lambda: store.batch_set(items, 0.3))
        assert store.stats().counts["late"] == 32


def test_what_comes_in_time_over_a_narrow_line_is_kept(valkey: Valkey) -> None:
    value = b"v" * 2**20
    with line_to(valkey) as (store, change):
        keys = [b"narrow/%d" % each for each in range(60)]
        store.batch_set([StoreItem(key, value) for key in keys], T)
        change(Line(bytes_per_s=15e6))
        got = store.batch_get(keys, 2)
        held = 60 - got.count(None)
        assert 0 < held < 60
        assert got == [value] * held + [None] * (60 - held)


@contextlib.contextmanager
def server_that_says(reply: bytes) -> Iterator[str]:
    """The URL, without its scheme and user, of a server that has this answer to whatever comes first."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                while connection.recv(2**16):
                    connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}/0"
        thread.join()


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"+OK\r\n",
        b":7\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n*1\r\n$1\r\na\r\n",
        b"*1\r\n-ERR no\r\n",
        b"-ERR no\r\n",
        b"*99999999999999999999\r\n",
    ],
)
def test_an_answer_that_is_none_is_an_error_like_any_other(reply: bytes) -> None:
    with server_that_says(reply) as place, contextlib.closing(store_at(f"redis://{place}")) as store:
        assert "cannot be" in message(lambda: store.batch_get([b"a"], T))


@pytest.mark.parametrize("reply", [b"$-1\r\n", b"$1\r\na\r\n", b"*0\r\n", b"-BUSY running a script\r\n"])
def test_a_count_that_is_none_is_an_error_like_any_other(reply: bytes) -> None:
    with server_that_says(reply) as place, contextlib.closing(store_at(f"redis://{place}")) as store:
        assert "cannot be" in message(lambda: store.batch_exists([b"a"], T))


# -- servers that are full --------------------------------------------------------------------------------------------


def test_a_full_server_takes_nothing_and_still_gives(own: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        store = open_store(own.url, T)
    assert "maxmemory-policy noeviction: when it is full it takes no new pages" in caplog.text
    items = [StoreItem(b"%d" % each, bytes(2**20)) for each in range(60)]
    taken = store.batch_set(items, T)
    counts = store.stats().counts
    assert taken == {item.key for item, value in zip(items, store.batch_get([item.key for item in items], T)) if value}
    assert len(taken) == counts["written"]
    assert 0 < counts["written"] < 60
    assert counts["written"] + counts["full"] == 60
    assert store.batch_exists([item.key for item in items], T) == counts["written"]
    assert store.batch_get([b"0"], T) == [bytes(2**20)]
    with own.client() as client:
        client.execute_command("CONFIG", "SET", "maxmemory", "2mb")
    store.ping(T)
    assert store.stats().capacity == 2 * 2**20
    assert "is full" in message(lambda: store.save(b"record", b"v", 0, 60, T))
    with own.client() as client:
        client.execute_command("CONFIG", "SET", "maxmemory", "0")
    wait_until(lambda: store.batch_set([StoreItem(b"more", b"v")], T))  # it is not asked for a while
    assert store.stats().counts["written"] == counts["written"] + 1


def test_a_server_without_a_bound_is_warned_of(own: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    with own.client() as client:
        client.execute_command("CONFIG", "SET", "maxmemory", "0")
    with caplog.at_level(logging.WARNING):
        open_store(own.url, T)
    assert "has no maxmemory" in caplog.text


def test_what_the_server_holds_is_learned_while_it_is_used(
    valkey: Valkey, store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.stats().capacity == 256 * 2**20
    assert store.stats().pages < 8
    monkeypatch.setattr("agentcache.store.redis_store._LEARN_S", 0)
    store.ping(T)
    store.batch_set([StoreItem(b"%d" % each, bytes(2**20)) for each in range(8)], T)
    assert store.stats().used >= 8 * 2**20
    assert store.stats().pages >= 8


def test_whoever_may_not_ask_for_memory_is_served_all_the_same(valkey: Valkey) -> None:
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "pages", "on", ">secret", "~*", "+@all", "-info", "-dbsize")
    store = open_store(f"redis://pages:secret@127.0.0.1:{valkey.port}/0", T)
    store.batch_set([StoreItem(b"a", b"1")], T)
    assert store.batch_get([b"a"], T) == [b"1"]
    assert (store.stats().used, store.stats().capacity) == (0, 0)
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "pages", "-mget")
    assert "no permissions to run the 'mget' command" in message(lambda: store.batch_get([b"a"], T))


def test_whoever_is_asked_for_has_been_used(valkey: Valkey, store: PageStore) -> None:
    """Otherwise the beginning of a chain, which every server soon has itself, would be the first to be forgotten."""
    store.batch_set([StoreItem(b"old", b"1"), StoreItem(b"other", b"1")], T)
    with valkey.client() as client:
        wait_until(lambda: client.object("idletime", "old") > 0)
        assert store.batch_exists([b"old", b"other"], T) == 2
        assert client.object("idletime", "old") == client.object("idletime", "other") == 0


# -- servers that know who may ask ------------------------------------------------------------------------------------


def test_a_password_is_needed_decoded_and_never_told(caplog: pytest.LogCaptureFixture) -> None:
    secret = "sh&/?@ h€"
    quoted = "sh%26%2F%3F%40%20h%E2%82%AC"
    with Valkey(requirepass=secret, maxmemory="20mb") as server:
        place = f"127.0.0.1:{server.port}/0"
        for user in ("", "default"):
            store = open_store(f"redis://{user}:{quoted}@{place}", T)
            assert store.name == f"redis://{f'{user}@' if user else ''}{place}"
            assert secret not in repr(store) and quoted not in repr(store)
        for wrong in ("", f":{quoted}x@", f"nobody:{quoted}@"):
            with pytest.raises(SettingsError, match="password") as raised:
                open_store(f"redis://{wrong}{place}", T)
            assert "sh" not in str(raised.value).partition("expected")[0]
        # Changed while the store is in use: told when it has to say the password again.
        with server.client() as client:
            client.execute_command("CONFIG", "SET", "requirepass", "another")
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        said = message(lambda: store.batch_get([b"a"], T))
        assert "refuses this password" in said and secret not in said
    assert secret not in caplog.text and quoted not in caplog.text


def test_a_server_that_repeats_what_it_was_told_does_not_tell_the_password() -> None:
    repeated = b"-ERR unknown command 'AUTH', with args beginning with: 'geheim'\r\n"
    with server_that_says(repeated) as place, contextlib.closing(store_at(f"redis://:geheim@{place}")) as store:
        said = message(lambda: store.batch_get([b"a"], T))
        assert "unknown command" in said and "geheim" not in said


def test_a_database_that_there_is_not_is_said(valkey: Valkey) -> None:
    with pytest.raises(SettingsError, match="has no database 99"):
        open_store(f"redis://127.0.0.1:{valkey.port}/99", T)


# -- what else an address says ----------------------------------------------------------------------------------------


def test_databases_prefixes_and_sockets_lead_where_they_say(valkey: Valkey, store: PageStore) -> None:
    store.batch_set([StoreItem(b"a", b"0")], T)
    with open_closed(f"unix://{valkey.path}?db=1&prefix=team:") as other, valkey.client(db=1) as client:
        assert other.name == f"unix://{valkey.path}?db=1"
        assert other.batch_get([b"a"], T) == [None]
        other.batch_set([StoreItem(b"a", b"1")], T)
        assert other.save(b"r", b"record", 0, 60, T)
        assert sorted(key for key in client.scan_iter() if b"ping" not in key) == [b"team:a", b"team:r"]
        assert client.ttl("team:a") == -1
        assert other.load(b"r", T) == Record(1, b"record")
    with open_closed(valkey.url + "?ttl=7d") as other, valkey.client() as client:
        other.batch_set([StoreItem(b"b", b"1")], T)
        assert 6 * 86400 < client.ttl("b") <= 7 * 86400


@contextlib.contextmanager
def open_closed(url: str) -> Iterator[PageStore]:
    with contextlib.closing(open_store(url, T)) as store:
        yield store


# -- what is not ours -------------------------------------------------------------------------------------------------


def test_values_of_another_type_are_misses_and_are_replaced(valkey: Valkey, store: PageStore) -> None:
    with valkey.client() as client:
        client.rpush("page", "a", "list")
        client.rpush("record", "a", "list")
        client.set("text", "somebody else's")
    assert store.batch_get([b"page"], T) == [None]
    store.batch_set([StoreItem(b"page", b"ours")], T)
    assert store.batch_get([b"page"], T) == [b"ours"]
    for key in (b"record", b"text"):
        assert store.load(key, T) is None
        assert store.save(key, b"ours", 0, 60, T)
        assert store.load(key, T) == Record(1, b"ours")
    assert store.stats().counts["damaged"] == 2


def test_a_damaged_record_is_none_and_makes_place(valkey: Valkey, store: PageStore) -> None:
    assert store.save(b"r", b"value", 0, 60, T)
    with valkey.client() as client:
        client.setrange("r", client.strlen("r") - 1, "X")
    assert store.load(b"r", T) is None
    assert store.save(b"r", b"value", 0, 60, T)
    assert store.load(b"r", T) == Record(1, b"value")
