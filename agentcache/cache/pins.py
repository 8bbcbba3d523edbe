"""Promises to keep pages for a time, such as the length of a tool call.

Pins degrade and never deadlock: newer ones are worth more, over the budget the oldest lapse to ordinary cache, and a request
that needs the room ends them too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from agentcache.cache.events import EventLog, PinLapsed
from agentcache.cache.prefix_tree import Node, PrefixTree


@dataclass(frozen=True, slots=True)
class Pin:
    """A promise to keep ``pages`` pages, up to ``node``, until a time on the caller's clock."""

    number: int
    node: Node
    until: float
    pages: int


class Pins:
    """The pins on one tree, oldest first.

    Args:
        budget: how many pages they may keep in all.
    """

    def __init__(self, tree: PrefixTree, budget: int, events: EventLog) -> None:
        self.budget = budget
        self._tree = tree
        self._events = events
        self.ended_in: set[bytes] = set()
        """Namespaces in which pins have ended, for whoever watches over quotas to empty."""
        self._pins: OrderedDict[int, Pin] = OrderedDict()
        self._by_time: list[tuple[float, int]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._pins)

    def __iter__(self) -> Iterator[Pin]:
        return iter(self._pins.values())

    def __contains__(self, pin: Pin) -> bool:
        """Whether ``pin`` has not lapsed."""
        return self._pins.get(pin.number) is pin

    def add(self, node: Node, until: float) -> Pin | None:
        """Pin the chain that ends at ``node``, or as much of its beginning as the budget allows; ``None`` for none of it."""
        while node.parent is not None and (node.depth > self.budget or not node.has_page):
            node = node.parent
        if node.is_root:
            return None
        pin = Pin(next(self._numbers), node, until, node.depth)
        self._tree.pin(pin.node)
        self._pins[pin.number] = pin
        heappush(self._by_time, (until, pin.number))
        while self._tree.num_with_pin > self.budget:
            self.lapse_oldest("budget")
        return pin

    def remove(self, pin: Pin) -> None:
        """End a pin; does nothing when it has lapsed."""
        if pin in self:
            self._lapse(pin, "unpinned")

    def expire(self, now: float) -> None:
        """End the pins whose time is over."""
        while (until := self.next_expiry()) is not None and until <= now:
            self._lapse(self._pins[self._by_time[0][1]], "expired")

    def next_expiry(self) -> float | None:
        """When the next pin ends, if there is one."""
        while self._by_time and self._by_time[0][1] not in self._pins:
            heappop(self._by_time)
        return self._by_time[0][0] if self._by_time else None

    def idle_in(self, space: bytes) -> Iterator[Pin]:
        """Pins of one namespace that keep something which no lease needs, oldest first."""
        return (pin for pin in self if pin.node.chain.space == space and not pin.node.held)

    def lapse_oldest(self, reason: str) -> bool:
        """End the oldest pin; whether there was one."""
        oldest = next(iter(self), None)
        if oldest is not None:
            self._lapse(oldest, reason)
        return oldest is not None

    def lapse(self, pin: Pin, reason: str) -> None:
        """End a pin before its time."""
        if pin in self:
            self._lapse(pin, reason)

    def _lapse(self, pin: Pin, reason: str) -> None:
        del self._pins[pin.number]
        self._tree.unpin(pin.node, lapsed=reason != "unpinned")
        self.ended_in.add(pin.node.chain.space)
        self._events.add(PinLapsed(pin.pages, reason))
