"""From the URL of ``--store`` to a store that answers, or to a sentence that says what is wrong with it.

``mooncake://`` is kept free for a store that keeps pages in the memory of many machines; such a backend is a ``PageStore`` whose
``batch_exists``, ``batch_get`` and ``batch_set`` move whole values of ``codec`` under keys of ``StoreKeys``, within the time
that each call is given, and whose records are compared and set by one owner of each key.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from agentcache.errors import SettingsError
from agentcache.settings import STORE_URL, parse_size
from agentcache.store.base import PageStore, StoreUnavailableError
from agentcache.store.folder_store import DEFAULT_CAPACITY, FolderStore

logger = logging.getLogger(__name__)

_SMALLEST = 2**20


def open_store(url: str, timeout_s: float = 2.0, optional: bool = False) -> PageStore:
    """The store at ``url``, after it answered.

    Args:
        timeout_s: how long it may take to answer.
        optional: a store that does not answer now is only warned of; it is asked again whenever it is used.

    Raises:
        SettingsError: no such store can be meant; or, unless ``optional``, it does not answer.
    """
    store = store_at(url)
    try:
        if isinstance(store, FolderStore):
            _make_folder(store)
        store.ping(timeout_s)
        advice = _advice(store)
        if advice is not None:
            logger.warning("%s", advice)
    except StoreUnavailableError as error:
        if not optional:
            store.close()
            raise SettingsError(f"--store: {error}; --store-optional serves without it") from None
        logger.warning("the store does not answer, and is used as soon as it does: %s", error)
    return store


def store_at(url: str) -> PageStore:
    """The store that ``url`` names, without asking it anything.

    Raises:
        SettingsError: the URL is malformed, has a parameter that there is not, or needs packages that are not installed.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _malformed(url, STORE_URL) from None
    if parts.scheme == "file":
        return _folder_store(url, parts)
    if parts.scheme in {"redis", "rediss", "valkey", "valkeys", "unix"}:
        _check_port(url, parts)
        return _redis_store(url, parts)
    if parts.scheme == "mooncake":
        raise SettingsError(f"--store {shown(url)}: Mooncake is not supported yet; redis, rediss, unix and file are")
    raise _malformed(url, STORE_URL)


def shown(url: str) -> str:
    """A URL as it may be told: without parameters, and without anything that could be a password."""
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return url.partition("?")[0]
    _, at, place = rest.rpartition("@")
    place = place.partition("?")[0]
    if not re.fullmatch(r"(([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?)?(/.*)?", place):
        place = "***"
    return f"{scheme}://{'***@' if at else ''}{place}"


def _check_port(url: str, parts: SplitResult) -> None:
    """What stands where the port should be is never told: it may be a password whose @ is missing, or is not percent-encoded."""
    try:
        parts.port  # noqa: B018  raises where it is no such number
    except ValueError:
        host = parts.netloc.partition(":")[0]
        told = f"{parts.scheme}://{host}:***" if "@" not in url and re.fullmatch(r"[\w.-]+", host) else shown(url)
        raise SettingsError(
            f"--store: got {told}, expected a port that is a number from 1 to 65535, such as {parts.scheme}://host:6379/0; "
            "special characters of a password are percent-encoded"
        ) from None


def _malformed(url: str, expected: str) -> SettingsError:
    return SettingsError(f"--store: got {shown(url)}, expected {expected}")


def _parameters(url: str, parts: SplitResult, known: tuple[str, ...]) -> Mapping[str, str]:
    """Parameters of a URL; what they hold is never told: an unquoted ? in a password begins them too."""
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    for name, _ in pairs:
        if name not in known:
            got = f"the parameter {name}" if re.fullmatch("[a-z_]{1,32}", name) else "a parameter of another name"
            raise SettingsError(f"--store {shown(url)}: got {got}, expected {', '.join(known)}")
    if len(dict(pairs)) != len(pairs):
        raise SettingsError(f"--store {shown(url)}: got a parameter twice, expected each once")
    return dict(pairs)


# -- folders ----------------------------------------------------------------------------------------------------------


def _folder_store(url: str, parts: SplitResult) -> FolderStore:
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/") or "\0" in unquote(parts.path):
        raise _malformed(url, "an absolute path after file://, such as file:///mnt/pages")
    size = _parameters(url, parts, ("size",)).get("size")
    capacity = DEFAULT_CAPACITY
    if size is not None:
        try:
            capacity = parse_size(size)
        except ValueError as error:
            raise SettingsError(f"--store {shown(url)}: size: {error}") from None
        if capacity < _SMALLEST:
            raise SettingsError(f"--store {shown(url)}: size: got {size}, expected at least 1MiB")
    return FolderStore(Path(unquote(parts.path)), capacity)


def _make_folder(store: FolderStore) -> None:
    try:
        store.prepare()
    except OSError as error:
        raise StoreUnavailableError(f"{store.name}: the folder cannot be made: {error.strerror or error}") from None


# -- servers ----------------------------------------------------------------------------------------------------------


def _redis_store(url: str, parts: SplitResult) -> PageStore:
    if any(importlib.util.find_spec(name) is None for name in ("redis", "hiredis")):
        raise SettingsError(
            f"--store {shown(url)}: the packages for it are not installed: pip install '.[store]' in the folder of "
            "agentcache's source"
        )
    from agentcache.store.redis_address import PARAMETERS, RedisAddress
    from agentcache.store.redis_store import RedisStore

    try:
        return RedisStore(RedisAddress.of(parts, _parameters(url, parts, PARAMETERS)))
    except ValueError as error:
        raise SettingsError(f"--store {shown(url)}: {error}") from None


def _advice(store: PageStore) -> str | None:
    if isinstance(store, FolderStore):
        return None
    from agentcache.store.redis_store import RedisStore

    return store.advice() if isinstance(store, RedisStore) else None
