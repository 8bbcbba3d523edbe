"""Continuous batching: each step decides anew who runs (Yu et al., Orca, OSDI 2022) on paged memory (Kwon et al., 2023).

One step::

    plan:   1. every running sequence that has its prompt behind it decodes one token (pages run out -> preempt the last)
            2. running prompts go on, oldest first, inside what is left of the token budget
            3. who waits is admitted, preempted ones first, while budget, seats and pages last
    run:    one forward pass over all chunks                                               (the runner)
    commit: keys and values are valid now; full pages are published; forks split off

Running sequences are kept in order of arrival, and victims are taken from the end.  The oldest therefore always moves on,
so everything that was admitted finishes.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from operator import attrgetter

from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager, Refusal
from agentcache.errors import QueueFullError
from agentcache.request import Request, Sequence, SequenceState
from agentcache.scheduler.plan import Chunk, StepPlan
from agentcache.scheduler.policy import Policy, first_come

_BY_RANK = attrgetter("rank", "index")
_LOOK_AHEAD = 64
"""How many waiting sequences one step looks at."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``token_budget``: rows of one step.  Decodes always run; prompts get the rest, and at least a page."""

    token_budget: int
    max_running: int
    max_waiting: int


class Scheduler:
    """Queues and their sequences; every sequence in ``running`` holds a lease, no other does."""

    def __init__(self, manager: CacheManager, limits: Limits, policy: Policy = first_come) -> None:
        self.manager = manager
        self.limits = limits
        self.policy = policy
        self.waiting: list[Sequence] = []
        self.preempted: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self._arrivals = 0

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.preempted or self.waiting)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) + len(self.preempted)

    # -- in and out -----------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request whose sequences are made; the first of them computes the prompt, the others follow it.

        Raises:
            QueueFullError: too many wait.
        """
        if len(self.waiting) >= self.limits.max_waiting:
            raise QueueFullError(f"{len(self.waiting)} requests wait, and no more than {self.limits.max_waiting} may")
        self._arrivals += 1
        for sequence in request.sequences:
            sequence.rank = self._arrivals
        for follower in request.sequences[1:]:
            follower.state = SequenceState.FOLLOWING
        insort(self.waiting, request.sequences[0], key=self.policy)

    def finish(self, sequence: Sequence) -> None:
        """Take ``sequence`` out, in whatever state it is, and give its pages back.  Idempotent."""
        if sequence.state is SequenceState.FINISHED:
            return
        for queue in (self.running, self.preempted, self.waiting):
            if sequence in queue:
                queue.remove(sequence)
        sequence.state = SequenceState.FINISHED
        if sequence.lease is not None:
            sequence.lease.release()
            sequence.lease = None

    # -- planning -------------------------------------------------------------------------------------------------

    def plan(self) -> StepPlan:
        """The next step; empty when nothing can run."""
        plan = StepPlan()
        decoding = [sequence for sequence in self.running if _decodes(sequence)]
        for sequence in decoding:
            if sequence.state is SequenceState.RUNNING:  # an earlier one may have taken its pages meanwhile
                self._plan_decode(plan, sequence)
        budget = self.limits.token_budget - len(plan.chunks)
        budget = max(budget, min(self.manager.page_size, self.limits.token_budget))
        for sequence in self.running:
            if budget > 0 and not _decodes(sequence):
                budget -= self._plan_prefill(plan, sequence, budget)
        self._admit(plan, budget)
        return plan

    def _plan_decode(self, plan: StepPlan, sequence: Sequence) -> None:
        lease = _lease(sequence)
        try:
            while not lease.extend(len(sequence.tokens)):
                victim = self.running[-1]
                self._preempt(victim)
                if victim is sequence:
                    return
        except Exception as error:  # noqa: BLE001  whatever broke, it breaks this sequence and no other
            plan.failed.append((sequence, error))
            return
        plan.copies += lease.take_copies()
        plan.chunks.append(_chunk(sequence, lease.computed, 1, (sequence,)))

    def _plan_prefill(self, plan: StepPlan, sequence: Sequence, budget: int) -> int:
        """Rows taken.  A full hit has nothing left to compute and redoes its last token, read-only."""
        lease = _lease(sequence)
        total = len(sequence.tokens)
        start = min(lease.computed, total - 1)
        count = min(total - start, budget)
        samples: tuple[Sequence, ...] = ()
        if start + count == total and sequence.max_tokens > 0:
            followers = (s for s in sequence.request.sequences if s.state is SequenceState.FOLLOWING)
            samples = (sequence, *followers)
        plan.copies += lease.take_copies()
        plan.chunks.append(_chunk(sequence, start, count, samples))
        return count

    def _preempt(self, sequence: Sequence) -> None:
        """Take the pages back; what was published stays as cache, and the rest is computed again later."""
        self.running.remove(sequence)
        _lease(sequence).release()
        sequence.lease = None
        sequence.state = SequenceState.PREEMPTED
        sequence.preemptions += 1
        self.num_preemptions += 1
        if sequence.output_len == 0:
            sequence.prompt_logprobs = None  # collected again from the start
        insort(self.preempted, sequence, key=_BY_RANK)

    # -- admission ------------------------------------------------------------------------------------------------

    def _admit(self, plan: StepPlan, budget: int) -> None:
        taken = sum(map(_seats, self.running))
        for queue in (self.preempted, self.waiting):
            for sequence in queue[:_LOOK_AHEAD]:
                if budget <= 0 or taken + _seats(sequence) > self.limits.max_running:
                    return
                try:
                    lease = self._acquire(sequence)
                except Exception as error:  # noqa: BLE001  see _plan_decode
                    plan.failed.append((sequence, error))
                    continue
                if lease is Refusal.NO_ROOM:
                    return  # nobody overtakes one that waits for room, or it would wait for ever
                if isinstance(lease, Lease):
                    queue.remove(sequence)
                    self._start(sequence, lease)
                    taken += _seats(sequence)
                    budget -= self._plan_prefill(plan, sequence, budget)

    def _acquire(self, sequence: Sequence) -> Lease | Refusal:
        # Once output exists, all prompt figures were reported, and nothing forces the prompt to be computed any more.
        every_position = sequence.params.prompt_logprobs is not None and sequence.output_len == 0
        return self.manager.acquire(
            sequence.tokens,
            reuse=not every_position,
            spare=len(self.running),  # every running sequence can take one more page before anyone is preempted
            first=sequence.cached_tokens is None,
        )

    def _start(self, sequence: Sequence, lease: Lease) -> None:
        sequence.lease = lease
        sequence.state = SequenceState.RUNNING
        if sequence.cached_tokens is None:
            sequence.cached_tokens = lease.cached_tokens
            sequence.cached_pages = lease.cached_pages
            sequence.tier_tokens = lease.tier_tokens
            sequence.miss = lease.miss
        insort(self.running, sequence, key=_BY_RANK)

    # -- after the step -------------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan) -> None:
        """The forward pass of ``plan`` is done: publish, and let followers fork off a finished prompt."""
        for chunk in plan.chunks:
            sequence = chunk.sequence
            lease = _lease(sequence)
            lease.commit(max(chunk.end, lease.computed), output_from=sequence.prompt_len)
            sequence.computed_tokens += chunk.count
            for follower in chunk.samples[1:]:
                follower.lease = lease.fork(follower.tokens)
                follower.state = SequenceState.RUNNING
                follower.cached_tokens = 0  # the prompt of a request counts once
                insort(self.running, follower, key=_BY_RANK)

    def check(self) -> list[str]:
        """What is broken, in sentences; empty when all is well."""
        faults = self.manager.check()
        for name, queue, state in (
            ("running", self.running, SequenceState.RUNNING),
            ("preempted", self.preempted, SequenceState.PREEMPTED),
            ("waiting", self.waiting, SequenceState.WAITING),
        ):
            order = self.policy if queue is self.waiting else _BY_RANK
            if queue != sorted(queue, key=order):
                faults.append(f"{name} sequences are out of order")
            faults += [f"a {name} sequence is {s.state.value}" for s in queue if s.state is not state]
            must = queue is self.running
            faults += [
                f"a {name} sequence has{'' if s.lease else ' no'} lease" for s in queue if bool(s.lease) is not must
            ]
        taken = sum(map(_seats, self.running))
        if taken > self.limits.max_running:
            faults.append(f"{taken} seats are taken of {self.limits.max_running}")
        leased = sum(s.lease is not None for s in self.running)
        if leased != self.manager.num_leases:
            faults.append(f"{self.manager.num_leases} leases are open, {leased} sequences run")
        pool = self.manager.pool.num_pages
        faults += [
            f"a sequence of {len(s.tokens)} tokens waits for a pool of {pool} pages that can never hold it"
            for s in (*self.preempted, *self.waiting)
            if self.manager.pages_for(len(s.tokens)) > pool
        ]
        return faults


def _lease(sequence: Sequence) -> Lease:
    assert sequence.lease is not None, "a running sequence holds a lease"
    return sequence.lease


def _decodes(sequence: Sequence) -> bool:
    """Whether all that is left to run is the token it drew last."""
    return sequence.output_len > 0 and _lease(sequence).computed == len(sequence.tokens) - 1


def _seats(sequence: Sequence) -> int:
    """Running seats that a sequence takes: its own, and those of the sequences that wait to follow it."""
    if sequence.index or sequence.output_len:
        return 1  # they follow the first one, until it has drawn a token
    return 1 + sum(s.state is SequenceState.FOLLOWING for s in sequence.request.sequences)


def _chunk(sequence: Sequence, start: int, count: int, samples: tuple[Sequence, ...]) -> Chunk:
    lease = _lease(sequence)
    return Chunk(sequence, start, count, write_from=lease.computed, pages=lease.pages, samples=samples)
