"""Everything that must hold of queues, seats and promises, recounted from scratch."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from agentcache.request import SequenceState
from agentcache.scheduler.preemption import final_length

if TYPE_CHECKING:
    from agentcache.scheduler.scheduler import Scheduler

_BY_RANK = attrgetter("rank", "index")


def check_scheduler(scheduler: Scheduler) -> list[str]:
    """What is broken, in sentences; empty when all is well."""
    faults = scheduler.manager.check()
    faults += scheduler.waiting.check()
    for name, queue, state in (
        ("running", scheduler.running, SequenceState.RUNNING),
        ("preempted", scheduler.preempted, SequenceState.PREEMPTED),
        ("waiting", list(scheduler.waiting), SequenceState.WAITING),
    ):
        if state is not SequenceState.WAITING and queue != sorted(queue, key=_BY_RANK):
            faults.append(f"{name} sequences are out of order")
        faults += [f"a {name} sequence is {s.state.value}" for s in queue if s.state is not state]
        must = queue is scheduler.running
        if must:
            faults += [f"a {name} sequence still waits for pages" for s in queue if s.errand is not None]
        faults += [f"a {name} sequence has{'' if s.lease else ' no'} lease" for s in queue if bool(s.lease) is not must]
    taken = scheduler.taken()
    if taken > scheduler.limits.max_running:
        faults.append(f"{taken} seats are taken of {scheduler.limits.max_running}")
    leased = sum(s.lease is not None for s in scheduler.running)
    if leased != scheduler.manager.num_leases:
        faults.append(f"{scheduler.manager.num_leases} leases are open, {leased} sequences run")
    if scheduler.secured != {sequence for sequence in scheduler.running if sequence.secured}:
        faults.append("room is promised to others than those who run and come back")
    return faults + _check_fetches(scheduler) + _check_bounds(scheduler)


def _check_fetches(scheduler: Scheduler) -> list[str]:
    far = scheduler.manager.far
    if far is None:
        return []
    errands = [s.errand for s in (*scheduler.preempted, *scheduler.waiting) if s.errand is not None]
    return far.check([errand.fetch for errand in errands if errand.fetch is not None])


def _check_bounds(scheduler: Scheduler) -> list[str]:
    pool = scheduler.manager.pool.num_pages
    most = scheduler.limits.max_preemptions
    return [
        f"a sequence of {final_length(s)} tokens waits for a pool of {pool} pages that can never hold it"
        for s in (*scheduler.preempted, *scheduler.waiting)
        if scheduler.manager.pages_for(final_length(s)) > pool
    ] + [
        f"a sequence was preempted {s.preemptions} times, and no more than {most} times may be"
        for s in (*scheduler.preempted, *scheduler.running)
        if s.preemptions > most
    ]
