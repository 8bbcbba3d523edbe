"""Who runs and who waits, in the scheduler's order: one key's requests in detail, the others only counted."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from agentcache.request import Sequence, SequenceState

if TYPE_CHECKING:
    from agentcache.engine.loop import AsyncEngine
    from agentcache.scheduler.scheduler import Scheduler

_SHOWN = 100
"""Sequences of a queue that are told in detail; the rest are counted."""


async def queues(engine: AsyncEngine, roots: Collection[bytes]) -> dict[str, Any]:
    """``running``, ``preempted`` and ``waiting``: each how many there are, how many are others', and one's own in order.

    Raises:
        EngineStoppedError: nothing runs any more.
    """
    return await engine.look(lambda scheduler: _look(scheduler, roots, engine.now()))


def _look(scheduler: Scheduler, roots: Collection[bytes], now: float) -> dict[str, Any]:
    expected = {}
    order = []
    size = scheduler.manager.page_size
    for waiter in scheduler.waiting.in_order(scheduler.processed):
        order.append(waiter.sequence)
        expected[waiter.sequence] = (waiter.pages + waiter.below) * size
    return {
        "running": _queue(scheduler.running, roots, now, {}),
        "preempted": _queue(scheduler.preempted, roots, now, {}),
        "waiting": _queue(order, roots, now, expected),
    }


def _queue(
    sequences: list[Sequence], roots: Collection[bytes], now: float, expected: dict[Sequence, int]
) -> dict[str, Any]:
    own = [(place, sequence) for place, sequence in enumerate(sequences) if sequence.request.root in roots]
    return {
        "count": len(sequences),
        "others": len(sequences) - len(own),
        "requests": [_sequence_json(place, sequence, now, expected) for place, sequence in own[:_SHOWN]],
    }


def _sequence_json(place: int, sequence: Sequence, now: float, expected: dict[Sequence, int]) -> dict[str, Any]:
    """``cached_tokens`` of one that was never admitted is what the scheduler last saw of it in the cache."""
    request, lease = sequence.request, sequence.lease
    cached = sequence.cached_tokens
    prefilled = 0 if lease is None else min(lease.computed, sequence.prompt_len)
    waits = sequence.state is SequenceState.WAITING
    return {
        "request": request.request_id,
        "index": sequence.index,
        "place": place,
        "priority": request.priority,
        "session": _session(request.program),
        "prompt_tokens": sequence.prompt_len,
        "cached_tokens": expected.get(sequence, 0) if waits or cached is None else cached,
        "ready_tokens": prefilled,
        "generated_tokens": sequence.output_len,
        "max_tokens": sequence.max_tokens,
        "preemptions": sequence.preemptions,
        "age_s": round(max(0.0, now - request.arrival), 3),
    }


def _session(program: str | None) -> str | None:
    kind, _, name = (program or "").partition(" ")
    return name if kind == "session" else None
