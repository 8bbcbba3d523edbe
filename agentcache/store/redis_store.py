"""A Redis or Valkey server as page store.

A page is a string without an expiry, and the server forgets what was not used for long when it has no room (``maxmemory`` with
``maxmemory-policy allkeys-lru`` or ``allkeys-lfu``).  It tells times of use apart by the second, so pages that one call reads or
writes within a second are equally old; a chain that takes longer is touched once more as a whole.  A server without a
``maxmemory`` takes pages until the machine has no memory left; one of policy ``noeviction`` takes none when it is full.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import redis

from agentcache.cache.tiers import TierStats
from agentcache.store.base import Record, StoreItem, StoreUnavailableError
from agentcache.store.calls import Counts, Deadline
from agentcache.store.records import MAGIC, VERSION_ENDS, pack_record, unpack_record, version_head
from agentcache.store.redis_address import RedisAddress
from agentcache.store.redis_link import Call, NoTlsError, connected

logger = logging.getLogger(__name__)

_BATCH = 4 * 2**20
"""Bytes asked for, or sent, before an answer is waited for: what is lost when the time is over, and held twice meanwhile."""

_MOST_KEYS = 512
_FULL_S = 1.0
"""Seconds for which a server that was full is sent nothing."""

_LEARN_S = 10.0
"""Seconds for which what is known of the server's memory is good enough for statistics."""

# How many keys are there from the first one on.  TOUCH counts as use, as EXISTS does not.
_PREFIX = """
for i, key in ipairs(KEYS) do
  if redis.call('TOUCH', key) == 0 then return i - 1 end
end
return #KEYS
"""

# Replace a record whose head is ARGV[1]; what is no record of ours counts as none.
_SAVE = f"""
local head = redis.pcall('GETRANGE', KEYS[1], 0, {VERSION_ENDS - 1})
if type(head) ~= 'string' or string.sub(head, 1, {len(MAGIC)}) ~= ARGV[4] then head = '' end
if head ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""

_FORGET = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisStore:
    """Pages and records on one server; connects when it is used, and again after it was away."""

    def __init__(self, address: RedisAddress) -> None:
        self.name = address.name
        self._address = address
        self._call = Call()
        self._client = connected(address, self._call)
        self._counts = Counts()
        self._value_bytes = 2**20
        """About what a value takes, of late."""
        self._full_until = 0.0
        self._size = (0, 0, 0)
        self._policy = ""
        self._learn_at = 0.0

    def __repr__(self) -> str:
        return f"RedisStore({self.name})"

    def close(self) -> None:
        self._client.connection_pool.disconnect()

    def stats(self) -> TierStats:
        pages, used, capacity = self._size
        return TierStats("redis", pages, used, capacity, "bytes", self._counts.told())

    def ping(self, timeout_s: float) -> None:
        probe = self._key(b"agentcache:ping:" + secrets.token_hex(8).encode())
        with self._within(timeout_s):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.set(probe, b"ping", ex=10).get(probe).info("memory").dbsize()
            kept, back, memory, keys = pipeline.execute(raise_on_error=False)
            if isinstance(kept, redis.exceptions.OutOfMemoryError):
                self._counts.add("full")
            elif isinstance(kept, Exception):
                raise kept
            elif isinstance(back, Exception):
                raise back
        self._learn(memory, keys)

    def _learn(self, memory: Any, keys: Any) -> None:
        """What the server says of its memory and keys, unless this user may not ask."""
        if isinstance(memory, dict) and isinstance(keys, int):
            self._size = (keys, memory.get("used_memory", 0), memory.get("maxmemory", 0))
            self._policy = memory.get("maxmemory_policy", "")
        self._learn_at = time.monotonic() + _LEARN_S

    def advice(self) -> str | None:
        """What whoever runs the server should know of how it is set up, after a ``ping``."""
        if not self._policy:
            return None
        if not self._size[2]:
            return f"{self.name} has no maxmemory: it takes pages until its machine has no memory left"
        if not self._policy.startswith("allkeys-"):
            return (
                f"{self.name} has the maxmemory-policy {self._policy}: when it is full it takes no new pages; "
                "expected allkeys-lru or allkeys-lfu"
            )
        return None

    # -- pages ----------------------------------------------------------------------------------------------------

    def batch_exists(self, keys: Sequence[bytes], timeout_s: float) -> int:
        if not keys:
            return 0
        with self._within(timeout_s):
            return int(self._client.execute_command("EVAL", _PREFIX, len(keys), *map(self._key, keys)))

    def batch_get(self, keys: Sequence[bytes], timeout_s: float) -> list[bytes | None]:
        named = [self._key(key) for key in keys]
        values: list[bytes | None] = []
        batches = 0
        try:
            with self._within(timeout_s):
                while len(values) < len(named):
                    size = max(1, min(_MOST_KEYS, _BATCH // self._value_bytes))
                    asked = named[len(values) : len(values) + size]
                    got = _values(self._client.execute_command("MGET", *asked), len(asked))
                    values += got
                    batches += 1
                    sizes = [len(value) for value in got if value is not None]
                    if sizes:
                        self._value_bytes = max(1, *sizes)
                found = [key for key, value in zip(named, values, strict=True) if value is not None]
                if batches > 1 and found:  # so that none of them is older than its end
                    self._client.execute_command("TOUCH", *found)
        except StoreUnavailableError:
            if not values:
                raise
        return self._counts.came(values, len(named))

    def batch_set(self, items: Sequence[StoreItem], timeout_s: float) -> set[bytes]:
        done = 0
        taken: set[bytes] = set()
        try:
            with self._within(timeout_s):
                while done < len(items):
                    if time.monotonic() < self._full_until:
                        self._counts.add("full", len(items) - done)
                        break
                    batch = _batch(items, done)
                    taken |= self._set(batch)
                    done += len(batch)
        except StoreUnavailableError:
            self._counts.add("late", len(items) - done)
            raise
        return taken

    def _set(self, items: Sequence[StoreItem]) -> set[bytes]:
        """Keys of those that there was room for."""
        pipeline = self._client.pipeline(transaction=False)
        for item in items:
            pipeline.set(self._key(item.key), item.value, ex=self._address.ttl_s)
        if time.monotonic() >= self._learn_at:
            pipeline.info("memory").dbsize()
        replies = pipeline.execute(raise_on_error=False)
        if len(replies) > len(items):
            self._learn(*replies[len(items) :])
            replies = replies[: len(items)]
        full = sum(isinstance(reply, redis.exceptions.OutOfMemoryError) for reply in replies)
        if full:
            self._counts.add("full", full)
            self._full_until = time.monotonic() + _FULL_S
        refused = [reply for reply in replies if isinstance(reply, Exception)]
        self._counts.add("written", len(items) - len(refused))
        for reply in refused:
            if not isinstance(reply, redis.exceptions.OutOfMemoryError):
                raise reply
        return {item.key for item, reply in zip(items, replies, strict=True) if not isinstance(reply, Exception)}

    def _key(self, key: bytes) -> bytes:
        return self._address.prefix + key

    # -- records --------------------------------------------------------------------------------------------------

    def load(self, key: bytes, timeout_s: float) -> Record | None:
        with self._within(timeout_s):
            try:
                packed = self._client.execute_command("GET", self._key(key))
            except redis.ResponseError as error:
                if not str(error).startswith("WRONGTYPE"):
                    raise
                packed = b""
            if packed is None:
                return None
            record = unpack_record(packed, key)
            if record is None:
                self._counts.add("damaged")
                if packed:
                    self._eval(_FORGET, key, packed)
            return record

    def save(self, key: bytes, value: bytes, expected: int, ttl_s: float, timeout_s: float) -> bool:
        packed = pack_record(key, expected + 1, value, ttl_s)
        head = version_head(key, expected) if expected else b""
        with self._within(timeout_s):
            return bool(self._eval(_SAVE, key, head, packed, max(1, int(ttl_s * 1000)), MAGIC))

    def delete(self, key: bytes, timeout_s: float) -> None:
        with self._within(timeout_s):
            self._client.execute_command("DEL", self._key(key))

    def _eval(self, script: str, key: bytes, *arguments: bytes | int) -> Any:
        return self._client.execute_command("EVAL", script, 1, self._key(key), *arguments)

    # -- errors ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _within(self, timeout_s: float) -> Iterator[None]:
        """A call: it has a deadline, and what goes wrong in it is told without the password."""
        try:
            with self._call.within(Deadline(timeout_s)):
                yield
        except (redis.RedisError, OSError, ValueError, TypeError) as error:  # the last two: of what is no answer
            self._counts.add("failed")
            raise StoreUnavailableError(f"{self.name} {self._said(error, timeout_s)}") from None

    def _said(self, error: Exception, timeout_s: float) -> str:
        """What is wrong, after the server's name."""
        if isinstance(error, NoTlsError):
            expected = "expected redis:// or valkey:// for a port without TLS"
            return f"took the connection and did not answer in TLS within {timeout_s:g} s; {expected}"
        if isinstance(error, redis.TimeoutError | TimeoutError):
            return f"did not answer within {timeout_s:g} s"
        if isinstance(error, redis.AuthenticationError):
            expected = "a user or password that it knows, percent-encoded"
            return f"refuses {'this' if self._address.password else 'calls without a'} password: expected {expected}"
        if isinstance(error, redis.exceptions.OutOfMemoryError):
            return "is full, and its maxmemory-policy lets it forget nothing"
        if isinstance(error, redis.exceptions.ReadOnlyError):
            return "is a read-only replica, expected a server that can be written to"
        text = str(error).strip() or type(error).__name__
        if "DB index" in text:
            return f"has no database {self._address.db}"
        if self._address.password:  # a server that does not know a command repeats what it was told
            text = text.replace(self._address.password, "***")
        return f"cannot be used: {text}" if isinstance(error, redis.ResponseError) else f"cannot be reached: {text}"


def _values(reply: Any, count: int) -> list[bytes | None]:
    """
    Raises:
        ValueError: it is not one value, or none, for each of ``count`` keys.
    """
    if not isinstance(reply, list) or len(reply) != count:
        raise ValueError(f"got an answer of another kind, expected {count} values")
    if any(value is not None and not isinstance(value, bytes) for value in reply):
        raise ValueError("got an answer of another kind, expected values and nothing else")
    return reply


def _batch(items: Sequence[StoreItem], start: int) -> Sequence[StoreItem]:
    """Items from ``start`` on that are together about ``_BATCH`` bytes, and at least one."""
    end, size = start, 0
    while end < len(items) and end - start < _MOST_KEYS and (end == start or size + len(items[end].value) <= _BATCH):
        size += len(items[end].value)
        end += 1
    return items[start:end]
