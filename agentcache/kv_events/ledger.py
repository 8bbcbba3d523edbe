"""What readers were told, and what they must be told next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentcache.cache.residency import DEVICE, AllLeft, PageArrived, PageLeft, Residence
from agentcache.kv_events.format import MEDIA, Event, cleared, removed, stored


class Ledger:
    """Which pages of which tier readers know of.

    Only what a batch comes to is told: a page that left and came back meanwhile is no event, and what arrived in any order is
    told in chains, parents first::

        arrived:  c(b)  x(r)  a(r)  b(a)         told:  [a b c]  [x]        x(r): page x, which follows r
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._told: dict[str, set[bytes]] = {tier: set() for tier in MEDIA}
        self._anew = False

    def __len__(self) -> int:
        """Pages that readers know of, one for each tier that has it."""
        return sum(map(len, self._told.values()))

    def start_over(self) -> list[Event]:
        """Take everything back, and have it told anew.

        Once more before the first pages: what is sent before a reader is connected again does not reach it, and until then
        nothing else is true.
        """
        self._anew = True
        events = [removed(list(keys), tier) for tier, keys in self._told.items() if keys and tier != DEVICE]
        for keys in self._told.values():
            keys.clear()
        return [*events, cleared()]

    def settle(self, residences: Iterable[Residence]) -> list[Event]:
        """Events that lead from what readers know to what is so behind ``residences``."""
        latest = self._latest(residences)
        gone: dict[str, list[bytes]] = {}
        events: list[Event] = []
        for tier, pages in latest.items():
            told = self._told[tier]
            gone[tier] = [key for key, page in pages.items() if page is None and key in told]
            told.difference_update(gone[tier])
            come = [page for page in pages.values() if page is not None and page.key not in told]
            told.update(page.key for page in come)
            events += [stored(chain, self._page_size) for chain in chains(come)]
        if events and self._anew:
            self._anew = False
            events.insert(0, cleared())
        return self._removals(gone) + events

    def _latest(self, residences: Iterable[Residence]) -> dict[str, dict[bytes, PageArrived | None]]:
        """By tier and key, the page if it is there, in the order in which they came or went last."""
        latest: dict[str, dict[bytes, PageArrived | None]] = {tier: {} for tier in MEDIA}
        for event in residences:
            pages = latest[event.tier]
            if isinstance(event, AllLeft):
                latest[event.tier] = dict.fromkeys(self._told[event.tier])
                continue
            pages.pop(event.key, None)
            pages[event.key] = None if isinstance(event, PageLeft) else event
        return latest

    def _removals(self, gone: dict[str, list[bytes]]) -> list[Event]:
        """One event a tier.  Where nothing is left at all, the device's is the short one that says so; some readers take
        it for the device's alone, so the other tiers are told in full."""
        lower = [removed(keys, tier) for tier, keys in gone.items() if keys and tier != DEVICE]
        if not gone[DEVICE]:
            return lower
        return [*lower, removed(gone[DEVICE], DEVICE) if len(self) else cleared()]


def chains(pages: Iterable[PageArrived]) -> Iterator[list[PageArrived]]:
    """Pages of one tier in unbranched runs, what a run follows before it."""
    after: dict[bytes, list[PageArrived]] = {}
    keys: set[bytes] = set()
    for page in pages:
        after.setdefault(page.parent, []).append(page)
        keys.add(page.key)
    starts = [page for parent, children in after.items() if parent not in keys for page in children]
    starts.reverse()
    while starts:
        run = [starts.pop()]
        while children := after.get(run[-1].key):
            starts += reversed(children[1:])
            run.append(children[0])
        yield run
