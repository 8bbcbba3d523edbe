"""The tree for the explorer page: surveyed in slices, seldom enough to cost the engine next to nothing, and kept meanwhile."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from agentcache.cache.hashing import TOKEN_BYTES, unpack_tokens
from agentcache.cache.manager import CacheManager
from agentcache.server.cache_tree import Survey
from agentcache.server.ui.trails import Trails
from agentcache.server.ui.tree_json import Box, add_up, box_json, largest, more_json

if TYPE_CHECKING:
    from agentcache.cache.tiers import Tier
    from agentcache.server.context import Context
    from agentcache.sessions.session import Session

SLICE_PAGES = 1_000
"""Pages that the engine is asked to walk over between two steps: under a millisecond, a few in a tree of short branches."""
_SHARE = 50
"""A survey is made again after so many times as long as the last one kept the engine, at the earliest."""
_AT_LEAST_S = 1.0
_VIEWS = 32
_FORGET_S = 60.0
"""A view that nobody asked for so long is dropped: it holds on to pages that have left."""
_TEXTS = 20_000
_SESSIONS = 200
_NOTES = 4096
_EXCERPT = 220
_LAST_TOKENS = 16


def own_roots(context: Context, key: str | None) -> dict[bytes, str | None]:
    """Namespaces of a key, and the salt of each: those it was served in, and the one without a salt."""
    desk = context.desk
    sessions = desk.store.of(desk.home(key, None).owner)
    return (
        {context.root(key, None): None}
        | {session.home.root: session.home.salt for session in sessions}
        | dict(desk.namespaces.of(key))
    )


@dataclass(slots=True)
class View:
    """What one key may see of the tree, as of ``made`` (Unix seconds)."""

    made: float
    stamp: tuple[int, ...]
    due: float
    tops: list[Box]
    by_key: dict[str, Box]
    spaces: list[dict[str, Any]]
    clock: int
    engine_s: float
    others: int
    texts: dict[tuple[bytes, bytes], tuple[str, str]] = field(default_factory=dict)
    """By packed tokens: decoding them again for every look would cost more than all the rest."""
    asked: float = 0.0
    """When somebody looked last, on ``time.monotonic``'s clock."""


class TreeViews:
    """One view a key, made anew when something has changed and enough time has passed.  Used on the event loop."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._views: OrderedDict[str | None, View] = OrderedDict()
        self._lock = asyncio.Lock()
        self._clock_at: deque[tuple[int, float]] = deque(maxlen=_NOTES)
        """When the tree's clock stood where: it counts operations, and people ask for times."""

    async def view(self, key: str | None) -> View:
        """
        Raises:
            EngineStoppedError: nothing can be looked at any more.
        """
        async with self._lock:
            now = time.monotonic()
            for other in [other for other, seen in self._views.items() if now - seen.asked > _FORGET_S]:
                del self._views[other]
            view = await self._current(key)
            view.asked = now
            return view

    async def _current(self, key: str | None) -> View:
        view = self._views.get(key)
        if view is not None and time.monotonic() < view.due:
            return view
        sessions = self._sessions(key)
        stamp, clock = await self._stamp(sessions)
        if not self._clock_at or self._clock_at[-1][0] != clock:
            self._clock_at.append((clock, time.time()))
        if view is not None and view.stamp == stamp:
            view.due = time.monotonic() + _AT_LEAST_S
            return view
        made = await self._make(key, sessions, stamp)
        if view is not None:
            made.texts = view.texts
        self._views[key] = made
        self._views.move_to_end(key)
        if len(self._views) > _VIEWS:
            self._views.popitem(last=False)
        return made

    def _sessions(self, key: str | None) -> list[Session]:
        """The sessions of a key, those used last first."""
        owned = list(self._context.desk.store.of(self._context.desk.home(key, None).owner))
        owned.sort(key=lambda session: session.expires_at - session.ttl_s, reverse=True)
        return owned[:_SESSIONS]

    async def _stamp(self, sessions: Sequence[Session]) -> tuple[tuple[int, ...], int]:
        """Figures that change with whatever the view shows, and the tree's clock."""
        engine = self._context.engine

        def look(manager: CacheManager) -> tuple[int, int, int]:
            return manager.tree.clock, len(manager.tree), len(manager.pins)

        clock, pages, pins = await engine.inspect(look)
        stats = engine.stats()
        said = hash(tuple((session.id, len(session.transcript)) for session in sessions))
        below = sum(tier.pages for tier in stats.tiers)
        return (int(stats.counters.get("steps", 0)), clock, pages, pins, below, said), clock

    async def _make(self, key: str | None, sessions: Sequence[Session], stamp: tuple[int, ...]) -> View:
        context = self._context
        salts = own_roots(context, key)
        numbers = {root: number for number, root in enumerate(salts)}
        began = time.perf_counter()
        engine_s = 0.0

        def start(manager: CacheManager) -> tuple[Survey, int, int, tuple[Tier, ...]]:
            others = len(manager.tree) - sum(manager.tree.sizes.get(root, 0) for root in salts)
            tiers = () if manager.lower is None else manager.lower.near
            return Survey(manager, salts.keys()), others, manager.tree.clock, tiers

        survey, others, clock, tiers = await context.engine.inspect(start)
        while not survey.done:

            def walk(manager: CacheManager) -> float:
                began = time.perf_counter()
                survey.advance(manager, SLICE_PAGES)
                return time.perf_counter() - began

            engine_s += await context.engine.inspect(walk)
        boxes = await run_in_threadpool(self._boxes, survey, numbers, sessions, tiers)
        # Nothing but the slices keeps the engine, but what follows them keeps other threads of this process.
        kept = max(engine_s, (time.perf_counter() - began) / 4)
        return View(
            made=time.time(),
            stamp=stamp,
            due=time.monotonic() + max(_AT_LEAST_S, _SHARE * kept),
            tops=[box for box in boxes if box.parent is None],
            by_key={box.key.hex(): box for box in boxes},
            spaces=[{"id": numbers[root], "salt": salt} for root, salt in salts.items()],
            clock=clock,
            engine_s=engine_s,
            others=others,
        )

    def _boxes(
        self, survey: Survey, numbers: dict[bytes, int], sessions: Sequence[Session], tiers: Sequence[Tier]
    ) -> list[Box]:
        """Off the event loop: runs with the tiers that have copies of them, and the sessions that go through them."""
        boxes: list[Box] = []
        by_run: dict[int, Box] = {}
        for run in survey.runs:
            parent = None if run.parent is None else by_run[run.parent.number]
            box = Box(run.keys[0], parent, numbers[run.root], run.start, run, run.pages, run.tokens, run.head, run.last)
            for tier in tiers:
                copies = sum(map(tier.__contains__, run.keys))
                if tier.durable:
                    box.disk += copies
                else:
                    box.host += copies
            by_run[run.number] = box
            boxes.append(box)
            if parent is not None:
                parent.children.append(box)
        trails = Trails(boxes, tiers, self._context.engine.info.page_size)
        for session in sessions:
            if session.home.root in numbers and len(session.transcript):
                tokens = self._context.engine.paged(session.transcript.ids, session.home.root, session.bookmark)
                trails.follow(session.id, tokens, numbers[session.home.root])
        boxes += trails.below()
        add_up(boxes)
        return boxes

    def to_json(self, view: View, under: str | None, limit: int) -> dict[str, Any]:
        """At most ``limit`` boxes, of the part ``under`` a box where one of that id is still there.  Off the event loop."""
        focus = view.by_key.get(under) if under is not None else None
        tops = view.tops if focus is None else [focus]
        shown, left_out = largest(tops, limit)
        above: list[Box] = []
        at = focus.parent if focus is not None else None
        while at is not None:
            above.append(at)
            at = at.parent
        return {
            "page_size": self._context.engine.info.page_size,
            "made": round(view.made, 3),
            "engine_ms": round(view.engine_s * 1e3, 2),
            "focus": None if focus is None else under,
            "above": [self._show(view, box) for box in islice(reversed(above), 32)],
            "namespaces": view.spaces,
            "totals": {
                "pages": sum(box.all_pages - box.all_below for box in view.tops),
                "tokens": sum(box.all_tokens for box in view.tops),
                "runs": sum(box.all_runs for box in view.tops),
                "below": sum(box.all_below for box in view.tops),
                "others": view.others,
            },
            "nodes": [self._show(view, box) for box in shown]
            + [more_json(parent, rest) for parent, rest in left_out.items()],
        }

    def _show(self, view: View, box: Box) -> dict[str, Any]:
        shown = (box.head, box.last)
        texts = view.texts.get(shown)
        if texts is None:
            if len(view.texts) >= _TEXTS:
                view.texts.clear()
            texts = view.texts[shown] = self._texts(box)
        return box_json(box, texts, self._time_of(box.all_used))

    def _texts(self, box: Box) -> tuple[str, str]:
        decode = self._context.engine.tokenizer.decode
        beginning = decode(list(unpack_tokens(box.head)), skip_special_tokens=False)[:_EXCERPT]
        if box.tokens * TOKEN_BYTES <= len(box.head):
            return beginning, ""
        ids = unpack_tokens(box.last)[-_LAST_TOKENS:]
        return beginning, decode(list(ids), skip_special_tokens=False)

    def _time_of(self, used: int) -> float | None:
        """When the tree's clock reached ``used``, as far as somebody was watching; at the latest."""
        notes = self._clock_at
        place = bisect_left(notes, used, key=itemgetter(0))
        if not used or not 0 < place < len(notes):
            return None
        return round(notes[place][1], 1)
