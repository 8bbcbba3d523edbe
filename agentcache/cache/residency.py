"""Which whole pages this server has, and in which tier, told as it changes.

Both who routes requests to several servers and who publishes events read it; a page that is only partly filled is not told::

    insert, evict, reset ── tree ─────────┐
    put, pop ────────────── HostTier ─────┤──► Residency ──► listeners, in the order in which it happened
    written, removed ────── DiskTier ─────┘

Pages that an earlier run left on a disk are told when they are first used, since only their files know what they hold; that
such a page leaves may be told although it never was.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agentcache.cache.manager import CacheManager
    from agentcache.cache.prefix_tree import Node
    from agentcache.cache.tokens import PagedTokens

logger = logging.getLogger(__name__)

DEVICE = "device"


class PageArrived(NamedTuple):
    """``tier`` now has the page: ``device``, ``host`` or ``disk``.

    Attributes:
        key: of the page (``cache.hashing``).
        parent: key of the page before it, across the gate where a public beginning ends; for a first page, ``root``.
        root: key of the namespace that the page counts for; what is public has one of its own.
        tokens: packed ids of the page.
        tier: where it arrived; it may be in others as well, and may be told again while it is there.
    """

    key: bytes
    parent: bytes
    root: bytes
    tokens: bytes
    tier: str


class PageLeft(NamedTuple):
    """``tier`` has the page no more; another tier may."""

    key: bytes
    tier: str


class AllLeft(NamedTuple):
    """``tier`` is empty now."""

    tier: str


Residence = PageArrived | PageLeft | AllLeft

Listener = Callable[[Residence], None]
"""Is called in the midst of a step, on the engine's thread or a tier's: it notes what it is told, and does nothing else.
Calls do not overlap."""


class Residency:
    """Tells listeners what the tiers tell it; one that fails is logged and keeps nobody from anything."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()

    def add(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        """Tell it nothing more; a listener that was never added is ignored."""
        with self._lock:
            self._listeners = [each for each in self._listeners if each != listener]

    def __call__(self, event: Residence) -> None:
        with self._lock:
            for listener in self._listeners:
                try:
                    listener(event)
                except Exception:
                    logger.exception("%s was not noted by %r", event, listener)


def lineage(node: Node) -> tuple[bytes, bytes]:
    """Keys of the page before ``node`` and of its namespace, as readers outside know them: gates are ours alone."""
    before = node.parent
    assert before is not None  # it has a page
    if not before.has_page and before.parent is not None:
        before = before.parent
    return before.key, node.chain.space


def arrived(node: Node) -> PageArrived:
    """That the device has the page of ``node``."""
    before, root = lineage(node)
    return PageArrived(node.key, before, root, node.tokens, DEVICE)


def found_at(tokens: PagedTokens, page: int) -> PageArrived:
    """That page ``page`` of a sequence was found below the device; ``tier`` is for the tier to say."""
    before = tokens.key(page - 1) if page else tokens.top
    root = tokens.top if page < tokens.num_public else tokens.root
    return PageArrived(tokens.key(page), before, root, tokens.page_bytes(page), "")


def residents(manager: CacheManager) -> Iterator[PageArrived]:
    """What is told when everything is told anew: whole pages on the device, parents first, and in host memory.

    Only on the engine's thread, or before it starts.
    """
    nodes = sorted(manager.tree.nodes(), key=lambda node: node.depth)
    yield from (arrived(node) for node in nodes if not node.tail)
    if manager.lower is not None:
        yield from manager.lower.residents()


def watch_residency(manager: CacheManager, listener: Listener) -> None:
    """Tell ``listener`` of every whole page that is there now, and from then on of each that comes or goes.

    Only on the engine's thread, or before it starts.
    """
    for page in residents(manager):
        listener(page)
    manager.watched().add(listener)
