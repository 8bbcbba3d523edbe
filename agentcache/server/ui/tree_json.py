"""A tree of runs, cut down to what a page can draw: the largest parts of it, and what is left out in sums.

::

    run ─┬─ run ─┬─ run
         │       └─ and 12 more        pages, tokens and hits of the twelve and of everything below them
         └─ run
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from agentcache.server.cache_tree import Run

MAX_DEPTH = 64
"""Runs below each other that are drawn; deeper ones are left out in sums."""


@dataclass(slots=True, eq=False)
class Box:
    """A run as the page draws it, with sums of everything from it on down.

    Attributes:
        run: ``None`` for pages that only a lower tier has (``below``).
        below: the tier that has them, nearest first, and how many pages each.
        host, disk: how many of the run's pages have a copy there.
        sessions: ids of the sessions whose transcript goes through it.
    """

    key: bytes
    parent: Box | None
    namespace: int
    start: int
    run: Run | None
    pages: int
    tokens: int
    head: bytes
    last: bytes = b""
    below: str | None = None
    host: int = 0
    disk: int = 0
    sessions: list[str] = field(default_factory=list)
    children: list[Box] = field(default_factory=list)
    all_pages: int = 0
    all_tokens: int = 0
    all_hits: int = 0
    all_used: int = 0
    all_runs: int = 0
    all_live: int = 0
    all_pinned: int = 0
    all_below: int = 0


def add_up(boxes: Sequence[Box]) -> None:
    """Fill the sums; ``boxes`` are in order, parents first."""
    for box in boxes:
        run = box.run
        box.all_pages, box.all_tokens, box.all_runs = box.pages, box.tokens, 1
        box.all_hits = run.hits if run else 0
        box.all_used = run.used if run else 0
        box.all_live = run.live if run else 0
        box.all_pinned = run.pinned if run else 0
        box.all_below = box.pages if run is None else 0
    for box in reversed(boxes):
        above = box.parent
        if above is not None:
            above.all_pages += box.all_pages
            above.all_tokens += box.all_tokens
            above.all_runs += box.all_runs
            above.all_hits += box.all_hits
            above.all_used = max(above.all_used, box.all_used)
            above.all_live += box.all_live
            above.all_pinned += box.all_pinned
            above.all_below += box.all_below


def largest(tops: Sequence[Box], limit: int) -> tuple[list[Box], dict[Box | None, list[Box]]]:
    """The ``limit`` boxes with most pages from them on down, parents first and siblings in the tree's own order, which does
    not change while pages come and go; and those left out beside them, by parent."""
    chosen: set[Box] = set()
    waiting = [(-top.all_pages, number, 0, top) for number, top in enumerate(tops)]
    heapify(waiting)
    order = len(waiting)
    while waiting and len(chosen) < limit:
        _, _, depth, box = heappop(waiting)
        chosen.add(box)
        for child in box.children if depth + 1 < MAX_DEPTH else ():
            heappush(waiting, (-child.all_pages, order, depth + 1, child))
            order += 1
    shown: list[Box] = []
    left_out: dict[Box | None, list[Box]] = {}
    stack: list[tuple[Box | None, Box]] = [(None, top) for top in reversed(tops)]
    while stack:
        above, box = stack.pop()
        if box in chosen:
            shown.append(box)
            stack += [(box, child) for child in reversed(box.children)]
        else:
            left_out.setdefault(above, []).append(box)
    return shown, left_out


def box_json(box: Box, texts: tuple[str, str], last_use: float | None) -> dict[str, Any]:
    run = box.run
    beginning, end = texts
    return {
        "id": box.key.hex(),
        "parent": None if box.parent is None else box.parent.key.hex(),
        "namespace": box.namespace,
        "start": box.start,
        "tokens": box.tokens,
        "pages": box.pages,
        "live": run.live if run else 0,
        "pinned": run.pinned if run else 0,
        "host": box.host,
        "disk": box.disk,
        "below": box.below,
        "hits": box.all_hits,
        "ended_here": run.hits if run else 0,
        "last_use": last_use,
        "sessions": box.sessions,
        "text": beginning,
        "end": end,
        "subtree": {"pages": box.all_pages, "tokens": box.all_tokens, "runs": box.all_runs, "below": box.all_below},
    }


def more_json(parent: Box | None, boxes: Sequence[Box]) -> dict[str, Any]:
    """What stands for the boxes left out under ``parent``."""
    return {
        "id": f"{'' if parent is None else parent.key.hex()}+",
        "parent": None if parent is None else parent.key.hex(),
        "namespace": boxes[0].namespace,
        "more": len(boxes),
        "hits": sum(box.all_hits for box in boxes),
        "live": sum(box.all_live for box in boxes),
        "pinned": sum(box.all_pinned for box in boxes),
        "subtree": {
            "pages": sum(box.all_pages for box in boxes),
            "tokens": sum(box.all_tokens for box in boxes),
            "runs": sum(box.all_runs for box in boxes),
            "below": sum(box.all_below for box in boxes),
        },
    }
