"""All calls of a tier to its store: each is measured, counted, and tells whether the store answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from agentcache.store.base import PageStore, StoreItem, StoreUnavailableError
from agentcache.store.gate import FetchGate
from agentcache.store.tier_circuit import Circuit

T = TypeVar("T")

_SURELY_S = 0.5
"""A store that does not answer for so long is in trouble; before that, it may only be slow."""


class LateError(StoreUnavailableError):
    """The store did not answer in the time that there was."""


class StoreLink:
    """A store with its price list and its circuit.  Safe to use from any thread.

    Args:
        store: what is asked.
        gate: is told what transfers take.
        clock: seconds.
    """

    def __init__(self, store: PageStore, gate: FetchGate, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.gate = gate
        self.circuit = Circuit(store.name, was_told=store.stats().counts.get("failed", 0) > 0)
        self.used_at = -math.inf
        """When it answered last."""
        self.clock = clock

    def ping(self, timeout_s: float) -> bool:
        """Whether it can be written to and read from now."""
        try:
            _, seconds = self._timed(lambda: self.store.ping(timeout_s), timeout_s, at_once=True)
        except StoreUnavailableError:
            return False
        if self.gate.latency_s is None:  # it writes and reads, so it takes longer than an answer does
            self.gate.answered(seconds)
        return True

    def exists(self, keys: Sequence[bytes], timeout_s: float) -> int:
        """See ``PageStore.batch_exists``.

        Raises:
            LateError, StoreUnavailableError
        """
        try:
            count, seconds = self._timed(lambda: self.store.batch_exists(keys, timeout_s), timeout_s)
        except LateError:
            self.gate.answered(timeout_s)  # at least so long
            raise
        self.gate.answered(seconds)
        return max(0, min(count, len(keys)))

    def get(self, keys: Sequence[bytes], expected_bytes: int, timeout_s: float) -> list[bytes | None]:
        """See ``PageStore.batch_get``.

        Args:
            expected_bytes: what is priced if nothing comes in time.

        Raises:
            LateError, StoreUnavailableError
        """
        try:
            values, seconds = self._timed(lambda: self.store.batch_get(keys, timeout_s), timeout_s)
        except LateError:
            self.gate.transferred(expected_bytes, timeout_s)  # at least so long
            raise
        size = sum(len(value) for value in values if value is not None)
        if size:
            self.gate.transferred(size, seconds)
        return values

    def set(self, items: Sequence[StoreItem], timeout_s: float) -> set[bytes]:
        """See ``PageStore.batch_set``.

        Raises:
            LateError, StoreUnavailableError
        """
        taken, _ = self._timed(lambda: self.store.batch_set(items, timeout_s), timeout_s)
        return taken

    def _timed(self, call: Callable[[], T], timeout_s: float, *, at_once: bool = False) -> tuple[T, float]:
        """What ``call`` returns, and the seconds that it took."""
        began = self.clock()
        try:
            result = call()
        except StoreUnavailableError as error:
            took = self.clock() - began
            late = took >= 0.8 * timeout_s
            if not late or took >= _SURELY_S:
                self.circuit.failed(str(error), at_once=at_once)
            if late:
                raise LateError(str(error)) from error
            raise
        self.used_at = self.clock()
        self.circuit.succeeded()
        return result, self.used_at - began
