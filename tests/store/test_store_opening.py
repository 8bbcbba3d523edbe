"""From ``--store`` to a store, or to a sentence that says what is wrong and tells no secret."""

from __future__ import annotations

import importlib.util
import logging
import re
from pathlib import Path

import pytest
from valkey_server import Valkey, free_port

from agentcache.errors import SettingsError
from agentcache.settings import Settings
from agentcache.store.base import StoreUnavailableError
from agentcache.store.folder_store import DEFAULT_CAPACITY, FolderStore
from agentcache.store.opening import open_store, store_at


@pytest.mark.parametrize(
    "url, said",
    [
        ("redis://127.0.0.1:abc/0", "got redis://127.0.0.1:***, expected a port that is a number from 1 to 65535"),
        ("valkeys://h:65536", "got valkeys://h:***, expected a port"),
        ("redis://:s3cret/0", "got redis://***, expected a port"),
        ("redis://u:s3/cret@h:1/0", "got redis://***@h:1/0, expected a port"),
        ("redis://u:s3?cret@h:1/0", "expected a port"),
        ("redis://[::1", "expected a URL such as redis://host:6379/0"),
        ("redis://u:s3cret@h:1/x", "redis://***@h:1/x: got the database 'x', expected a number"),
        ("redis://u:s3cret@h:1/0?db=1", "got the database twice"),
        ("redis://u:s3cret@h:1?db=-1", "got the database '-1'"),
        ("redis://u:s3cret@h:1?password=s3cret", "redis://***@h:1: got the parameter password, expected db, prefix"),
        ("redis://h?cret@x:1", "got a parameter of another name, expected db, prefix"),
        ("redis://h?db=1&db=2", "got a parameter twice"),
        ("redis://h?ttl=soon", "ttl: got 'soon', expected a time such as 7d"),
        ("redis://h?ttl=0s", "ttl: got '0s'"),
        ("valkey://h?ssl_cert_reqs=none", "got ssl_cert_reqs without TLS: expected rediss:// or valkeys://"),
        ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs: got 'maybe', expected none, optional or required"),
        ("redis:///0", "expected the name of a server"),
        ("unix://run/valkey.sock", "expected an absolute path of a socket"),
        ("file://relative/path", "expected an absolute path after file://"),
        ("file:///a%00b", "expected an absolute path after file://"),
        ("file:///a?size=big", "file:///a: size: got 'big', expected a size"),
        ("file:///a?size=1000", "size: got 1000, expected at least 1MiB"),
        ("file:///a?ttl=7d", "got the parameter ttl, expected size"),
        (
            "http://h/",
            "got http://h/, expected a URL such as redis://host:6379/0, rediss://…, unix://…, file:///folder",
        ),
        ("mooncake://u:s3cret@h", "mooncake://***@h: Mooncake is not supported yet; redis, rediss, unix and file are"),
        ("nothing", "expected a URL such as"),
    ],
)
def test_an_address_that_cannot_be_meant_is_said(url: str, said: str) -> None:
    with pytest.raises(SettingsError) as raised:
        store_at(url)
    assert str(raised.value).startswith("--store")
    assert said in str(raised.value)
    assert not {"s3cret", "s3", "cret"} & set(str(raised.value).replace("@", " ").replace("/", " ").split())
    assert "s3cret" not in str(raised.value)


def test_addresses_are_told_without_their_password() -> None:
    assert store_at("redis://u:p%40ss@[::1]:7/3").name == "redis://u@[::1]:7/3"
    assert store_at("redis://h").name == "redis://h:6379/0"
    assert store_at("valkey://u:p@h").name == "valkey://u@h:6379/0"
    assert store_at("rediss://:p@h/2?ssl_cert_reqs=none").name == "rediss://h:6379/2"
    assert store_at("unix:///run/v.sock?db=2").name == "unix:///run/v.sock?db=2"
    assert store_at("file:///a%20b/c?size=2GiB").name == "file:///a%20b/c"


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys", "unix", "file"])
def test_settings_take_what_can_be_opened(scheme: str) -> None:
    url = f"{scheme}:///run/place" if scheme in {"unix", "file"} else f"{scheme}://h"
    assert Settings(store=url).store == url
    store_at(url).close()


@pytest.mark.parametrize("url", ["http://h/", "mooncake://h", "redis:", "nothing"])
def test_settings_say_what_a_store_may_be(url: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"got '{url}', expected a URL such as redis://host:6379/0, rediss://…")
    ):
        Settings(store=url)


def test_a_folder_has_a_capacity() -> None:
    for url, capacity in (("file:///a", DEFAULT_CAPACITY), ("file://localhost/a?size=2GiB", 2 * 2**30)):
        store = store_at(url)
        assert isinstance(store, FolderStore)
        assert store.folder == Path("/a")
        assert store.stats().capacity == capacity


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "redis" else found(name))
    with pytest.raises(SettingsError, match=r"pip install '\.\[store\]' in the folder of agentcache's source"):
        store_at("redis://u:s3cret@h:1/0")


def test_a_server_that_is_not_there_is_an_error_or_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    url = f"redis://u:s3cret@127.0.0.1:{port}/0"
    with pytest.raises(SettingsError, match=rf"^--store: redis://u@127.0.0.1:{port}/0 cannot be reached: .*refused"):
        open_store(url, 5)
    with caplog.at_level(logging.WARNING):
        store = open_store(url, 5, optional=True)
    assert "does not answer, and is used as soon as it does" in caplog.text
    assert "s3cret" not in caplog.text
    with pytest.raises(StoreUnavailableError):
        store.batch_get([b"a"], 5)


def test_a_folder_that_cannot_be_made_is_an_error_or_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SettingsError, match=r"^--store: file:///proc/pages: the folder cannot be made: "):
        open_store("file:///proc/pages", 5)
    open_store("file:///proc/pages", 5, optional=True)
    assert "file:///proc/pages: the folder cannot be made" in caplog.text


def test_a_server_that_is_well_set_up_is_not_spoken_of(valkey: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        open_store(valkey.url, 10)
    assert caplog.text == ""
