"""From a sequence's own pages to pages of the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentcache.cache.events import EventLog, PageEvicted, PageStored
from agentcache.cache.hashing import pack_tokens, page_key
from agentcache.cache.pages import PagePool
from agentcache.cache.prefix_tree import Node, PrefixTree

if TYPE_CHECKING:
    from agentcache.cache.lease import Lease


class Publisher:
    """Moves what leases have computed into the tree; used by the manager alone."""

    def __init__(self, tree: PrefixTree, pool: PagePool, events: EventLog) -> None:
        self._tree = tree
        self._pool = pool
        self._events = events

    def publish(self, lease: Lease, output_from: int | None) -> None:
        """Put every full page that ``lease`` has computed into the tree.

        Args:
            output_from: pages that reach beyond this position hold generated tokens.
        """
        full = lease.computed // self._tree.page_size
        node = lease.node
        while lease.publishing and lease.depth < full:
            node = self._publish_next(lease, node, output_from)
        if node is not lease.node:  # nothing is evicted meanwhile, so what is in between needs no hold of its own
            self._move(lease, node)

    def _publish_next(self, lease: Lease, parent: Node, output_from: int | None) -> Node:
        """Put one page under ``parent``, or behind the gate where the public part ends; the node that is last now."""
        index = lease.depth
        page = lease.pages[index]
        key = lease.tokens.key(index)
        output = output_from is not None and (index + 1) * self._tree.page_size > output_from
        parent = self._tree.enter(parent, lease.tokens)
        known = self._tree.get(key)
        node = self._tree.insert(parent, key, lease.tokens.page_bytes(index), page, output=output)
        if node is None:  # another page has this key: everything from here on stays the sequence's own
            lease.publishing = False
            return parent
        if known is None:
            self._events.add(PageStored(key, parent.key, page))
            self._drop_superseded(node)
        elif node.page == page:
            self._pool.drop(page)  # a fork of this sequence published the page that both held
        else:
            # Someone computed the same page at the same time.  The page table is append-only, so the twin stays in use
            # and is freed with the lease.
            lease.twins.append(page)
        lease.depth = index + 1
        return node

    def _move(self, lease: Lease, node: Node) -> None:
        before = lease.node
        self._tree.hold(node)
        lease.node = node
        self._tree.release(before)

    def _enter(self, lease: Lease) -> None:
        """Step behind the gate where the public part of a sequence ends."""
        node = self._tree.enter(lease.node, lease.tokens)
        if node is not lease.node:
            self._move(lease, node)

    def keep_tail(self, lease: Lease) -> Node | None:
        """Publish the partly filled last page, if what it holds is certain and nobody else holds it; the node, if so.

        ::

            pages:  | published .......... | t t t . . . |        tail: the t, computed - depth * page_size of them
                                           ^ depth * page_size    ^ computed
        """
        size = self._tree.page_size
        start = lease.depth * size
        certain = lease.publishing and not lease.copying
        if not certain or not 0 < lease.computed - start < size:
            return None
        page = lease.pages[lease.depth]
        tokens = pack_tokens(lease.tokens[start : lease.computed])
        self._enter(lease)
        if self._pool.refs(page) > 1 or self._tree.covers(lease.node, tokens):
            return None
        key = page_key(lease.node.key, tokens)
        node = self._tree.insert(lease.node, key, tokens, page, output=True)
        if node is None or node.page != page:
            return None
        self._pool.share(page)
        self._tree.hold(node)
        self._tree.release(node)
        self._events.add(PageStored(key, lease.node.key, page))
        self._drop_superseded(node)
        return node

    def _drop_superseded(self, node: Node) -> None:
        shorter = self._tree.superseded(node)
        if shorter is not None:
            self._tree.remove(shorter)
            self._pool.drop(shorter.page)
            self._events.add(PageEvicted(shorter.key, shorter.page, "superseded", self._tree.clock - shorter.used))
