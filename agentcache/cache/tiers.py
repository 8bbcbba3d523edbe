"""What stands below the device: pages as tiers have them, what every tier does, and the nearest one, host memory.

A stored page is found by its chain key and compared by its tokens and its parent's key, as in the tree; a walk that starts at
the namespace root therefore never takes a page of other tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from agentcache.cache.residency import Listener, PageArrived, PageLeft

TIERS = ("host", "disk", "store")
"""Names of all tiers that there can be below the device, nearest first."""

Data = memoryview | bytes | bytearray
"""Keys and values of one page in all layers, as the page's owner packs them."""


class PageIO(Protocol):
    """Moves the content of device pages; the torch one is ``agentcache.model.kv_store.KVStore``."""

    def read_page(self, page: int) -> Data:
        """A copy of a page's keys and values in host memory, at once or behind the step (``StoredPage.whole``)."""
        ...

    def write_page(self, page: int, data: Data) -> None:
        """Fill a page with what ``read_page`` gave."""
        ...


def at_once() -> None:
    """Nothing has to be waited for."""


class StoredPage(NamedTuple):
    """A page below the device: ``tokens`` are packed ids, ``parent`` is the key of the page before it or of the root."""

    key: bytes
    parent: bytes
    tokens: bytes
    data: Data
    whole: Callable[[], None] = at_once
    """Returns once all of ``data`` has arrived.  Whoever reads the bytes calls it, on any thread; whoever gives them back to
    the device need not, since a device keeps its copies in order."""
    before: bytes = b""
    root: bytes = b""
    """What ``residency.PageArrived`` says of it as ``parent`` and ``root``; empty where nobody is told of it: it is only partly
    filled, or comes back from a tier."""

    def follows(self, parent: bytes, tokens: bytes) -> bool:
        """Whether it is the page of these tokens behind that key, and not another one whose key is the same by chance."""
        return (self.parent, self.tokens) == (parent, tokens)

    def arrived(self, tier: str) -> PageArrived:
        return PageArrived(self.key, self.before, self.root, self.tokens, tier)


class PageName(NamedTuple):
    """A page by everything that it must agree with: its key, the key of what stands before it, and its packed tokens."""

    key: bytes
    parent: bytes
    tokens: bytes


class TierStats(NamedTuple):
    """``used`` and ``capacity`` in ``unit`` (``pages`` or ``bytes``); ``counts`` of what happened, by name."""

    name: str
    pages: int
    used: int
    capacity: int
    unit: str
    counts: Mapping[str, int]


class Tier(Protocol):
    """One place below the device.  All of it is called on the engine's thread, and none of it waits for a network."""

    name: str
    durable: bool
    listener: Listener | None
    """Whom it tells of whole pages that come and go (``residency``)."""

    def put(self, page: StoredPage) -> None:
        """Take a page in, or only note that it was wanted again when it is there."""
        ...

    def get(self, key: bytes, parent: bytes, tokens: bytes) -> StoredPage | None:
        """The page, if it is there, whole, and of these tokens."""
        ...

    def __contains__(self, key: bytes) -> bool:
        """Whether ``get`` can give it now."""
        ...

    def lacks(self, key: bytes) -> bool:
        """Whether the page should be ``put`` here."""
        ...

    def touch(self, key: bytes) -> None:
        """The page was used."""
        ...

    def seen(self, page: PageArrived) -> None:
        """A page was found, here or elsewhere; a tier that has it but did not know what it holds tells of it now."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether another page can be taken in at once, or none has to be."""
        ...

    def catch_up(self, deadline: float) -> bool:
        """Wait until ``has_room``; whether that was before ``deadline`` (``time.monotonic``)."""
        ...

    def close(self, timeout_s: float) -> None:
        """Finish what is owed, for at most so long."""
        ...

    def stats(self) -> TierStats: ...


class HostTier:
    """The most recently used pages in host memory, at most ``capacity`` of them."""

    name = "host"
    durable = False
    has_room = True

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.listener: Listener | None = None
        self._pages: OrderedDict[bytes, StoredPage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, key: bytes) -> bool:
        return key in self._pages

    def lacks(self, key: bytes) -> bool:
        return key not in self._pages

    def put(self, page: StoredPage) -> None:
        self._pages[page.key] = page
        self._pages.move_to_end(page.key)
        if self.listener is not None and page.root:
            self.listener(page.arrived(self.name))
        if len(self._pages) > self.capacity:
            key, oldest = self._pages.popitem(last=False)
            if self.listener is not None and oldest.root:
                self.listener(PageLeft(key, self.name))

    def get(self, key: bytes, parent: bytes, tokens: bytes) -> StoredPage | None:
        page = self._pages.get(key)
        return page if page is not None and page.follows(parent, tokens) else None

    def touch(self, key: bytes) -> None:
        if key in self._pages:
            self._pages.move_to_end(key)

    def seen(self, page: PageArrived) -> None:
        """It told of each when it came."""

    def residents(self) -> Iterator[PageArrived]:
        """Whole pages, in the order in which they would leave."""
        return (page.arrived(self.name) for page in self._pages.values() if page.root)

    def catch_up(self, deadline: float) -> bool:
        return True

    def close(self, timeout_s: float) -> None:
        self._pages.clear()

    def stats(self) -> TierStats:
        return TierStats(self.name, len(self), len(self), self.capacity, "pages", {})
