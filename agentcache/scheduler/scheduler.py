"""Continuous batching: each step decides anew who runs (Yu et al., Orca, OSDI 2022) on paged memory (Kwon et al., 2023).

One step::

    plan:   1. every running sequence that has its prompt behind it gets room for one token (pages run out -> preemption.py)
            2. it decodes that token
            3. running prompts go on, oldest first, inside what is left of the token budget (chunks: Sarathi, OSDI 2024)
            4. who waits is admitted, preempted ones first, while budget, seats and pages last (waiting.py, policy.py)
    run:    one forward pass over all chunks                                               (the runner)
    commit: keys and values are valid now; full pages are published; forks split off
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from operator import attrgetter

from agentcache.cache.fetching import Errand
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager, Refusal
from agentcache.errors import QueueFullError
from agentcache.request import Request, Sequence, SequenceState
from agentcache.scheduler.check import check_scheduler
from agentcache.scheduler.outlook import announced_keys, keep_found, look_up, pages_to_grow, room
from agentcache.scheduler.plan import Chunk, StepPlan
from agentcache.scheduler.policy import Policy, Waiter, first_come
from agentcache.scheduler.preemption import Costs, Victim, Way, choose_victim, secure, settled
from agentcache.scheduler.waiting import WaitingQueue

_BY_RANK = attrgetter("rank", "index")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step, the queues and preemption are held to.

    Attributes:
        token_budget: rows of one step.  Decodes always run; prompts get the rest, and at least a page.
        max_running: sequences that hold pages at once.
        max_waiting: requests that may wait for their first admission.
        max_overtakes: how often a waiting request may be overtaken by later ones of its class, for each ``token_budget`` tokens
            that it has to compute (rounded up).
        look_ahead: how many waiting requests of a class one step looks up and tries.
        max_preemptions: how often one sequence may be preempted.
    """

    token_budget: int
    max_running: int
    max_waiting: int
    max_overtakes: int = 12
    look_ahead: int = 64
    max_preemptions: int = 4


class Scheduler:
    """Queues and their sequences; every sequence in ``running`` holds a lease, no other does.

    Args:
        manager: pages and what is cached in them.
        limits: see ``Limits``.
        policy: who is tried first among those who wait.
        costs: of preempting; decides between victims, and in which way they give their pages back.
    """

    def __init__(
        self, manager: CacheManager, limits: Limits, policy: Policy = first_come, costs: Costs | None = None
    ) -> None:
        self.manager = manager
        self.limits = limits
        self.costs = costs or Costs()
        self.waiting = WaitingQueue(
            policy, look_ahead=limits.look_ahead, patience=self._patience, look_up=self._look_up
        )
        self.preempted: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.num_swapped_pages = 0
        self.processed = 0
        """Tokens of all steps so far: the clock that waiting is measured in."""
        self.secured: set[Sequence] = set()
        """Running sequences that were promised room."""
        self._arrivals = 0
        self._announced: set[bytes] = set()

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
        self.waiting.add(request.sequences[0], self.processed)

    def finish(self, sequence: Sequence) -> None:
        """Take ``sequence`` out, in whatever state it is, and give its pages back.  Idempotent."""
        if sequence.state is SequenceState.RUNNING:
            self.running.remove(sequence)
            self.secured.discard(sequence)
        elif sequence.state is SequenceState.PREEMPTED:
            self.preempted.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.withdraw(sequence)
        sequence.state = SequenceState.FINISHED
        if sequence.lease is not None:
            sequence.lease.release()
            sequence.lease = None
        self._end_errand(sequence)

    @staticmethod
    def _end_errand(sequence: Sequence) -> None:
        if sequence.errand is not None:
            sequence.errand.end()
            sequence.errand = None

    # -- planning -------------------------------------------------------------------------------------------------

    def plan(self, *, admit: bool = True) -> StepPlan:
        """The next step; empty when nothing can run.

        Args:
            admit: whether anybody who does not run yet may begin.
        """
        plan = StepPlan()
        decoding: list[Sequence] = []
        prompts: list[Sequence] = []
        for sequence in self.running:
            (decoding if _decodes(sequence) else prompts).append(sequence)
        grown = [s for s in decoding if s.lease is not None and self._may_grow(plan, s)]
        for sequence in grown:
            if sequence.lease is not None:  # another may have needed its pages
                plan.chunks.append(_chunk(sequence, len(sequence.tokens) - 1, 1, (sequence,)))
        self._share_budget(plan, [s for s in prompts if s.lease is not None], admit=admit)
        return plan

    def _share_budget(self, plan: StepPlan, prompts: list[Sequence], *, admit: bool) -> None:
        """Give the rows that decoding leaves to prompts.

        The oldest that runs gets at least half of them, so that it moves on.  The others, shortest rest first, and those who
        wait get the other half, so that a short prompt is not kept waiting by a long one; what they leave is the oldest's.
        """
        budget = max(self.limits.token_budget - len(plan.chunks), self._least_budget)
        others = budget
        if prompts:
            others -= min(max(budget // 2, self._least_budget), max(1, _rest(prompts[0])))
        left = others
        for sequence in sorted(prompts[1:], key=_rest):
            if left > 0:
                left -= self._plan_prefill(plan, sequence, left)
        if admit and (self.preempted or self.waiting):
            left = self._admit(plan, left)
        if prompts:
            self._plan_prefill(plan, prompts[0], budget - others + left)

    @property
    def _least_budget(self) -> int:
        """Rows that prompts get in every step: enough to end a page."""
        return min(self.manager.page_size, self.limits.token_budget)

    def _plan_prefill(self, plan: StepPlan, sequence: Sequence, budget: int) -> int:
        """Rows taken.  A full hit has nothing left to compute and redoes its last token, read-only.

        A chunk that is not the last of its prompt ends where a page ends, if the budget reaches so far::

            pages:    | ........ | ........ | ........ | ....
            chunks:        [ first          |          | last ]
        """
        lease = _lease(sequence)
        size, total = self.manager.page_size, len(sequence.tokens)
        start = min(lease.computed, total - 1)
        end = min(total, start + budget)
        if end < total and size <= self.limits.token_budget:
            end -= end % size
        if end <= start:
            return 0  # the budget does not reach the end of a page any more: next step
        samples: tuple[Sequence, ...] = ()
        if end == total and sequence.max_tokens > 0:
            followers = (s for s in sequence.request.sequences if s.state is SequenceState.FOLLOWING)
            samples = (sequence, *followers)
        plan.copies += lease.take_copies()
        plan.chunks.append(_chunk(sequence, start, end - start, samples))
        return end - start

    # -- room to grow ---------------------------------------------------------------------------------------------

    def _may_grow(self, plan: StepPlan, sequence: Sequence) -> bool:
        """Make room for the next token of ``sequence``; ``False`` when it was preempted, failed, or must wait a step."""
        lease = _lease(sequence)
        upto = len(sequence.tokens)
        try:
            need = pages_to_grow(self.manager, lease, upto)
            while need:
                if self._is_free(sequence, need) and lease.extend(upto):
                    plan.copies += lease.take_copies()
                    return True
                if not self._make_room(sequence):
                    return False
                need = pages_to_grow(self.manager, lease, upto)  # who shared the tail may be gone
        except Exception as error:  # noqa: BLE001  whatever broke, it breaks this sequence and no other
            plan.failed.append((sequence, error))
            return False
        return True

    def _is_free(self, sequence: Sequence, need: int) -> bool:
        """Whether ``sequence`` may take ``need`` pages: its own by promise, or promised to nobody."""
        if len(sequence.tokens) <= sequence.secured:
            return True
        return room(self.manager) - self._promised() >= need

    def _promised(self) -> int:
        """Pages that are promised to running sequences and not yet theirs."""
        return sum(map(self._owed, self.secured)) if self.secured else 0

    def _owed(self, sequence: Sequence) -> int:
        held = len(sequence.lease.pages) if sequence.lease is not None else 0
        return max(0, self.manager.pages_for(sequence.secured) - held)

    def _make_room(self, sequence: Sequence) -> bool:
        """Preempt somebody for ``sequence``; ``False`` when it cannot go on in this step, or is the victim itself."""
        unsettled = [s for s in self.running if not settled(s)]
        candidates = unsettled if settled(sequence) or len(self.running) == 1 else unsettled[1:]
        victim = choose_victim(self.manager, candidates, self.costs, self._host_room)
        if victim is None:  # all others are settled: they end without its help, and then there is room
            return False
        self._preempt(victim)
        return victim.sequence is not sequence

    @property
    def _host_room(self) -> int:
        """Pages of one victim that host memory can take."""
        return self.manager.lower.swap_pages if self.manager.lower is not None else 0

    def _preempt(self, victim: Victim) -> None:
        """Take the pages back, in the way that costs less: copied to the host, or left as cache and computed again."""
        sequence = victim.sequence
        lease = _lease(sequence)
        self.running.remove(sequence)
        self.secured.discard(sequence)
        sequence.valid_before = lease.computed
        sequence.recomputed += lease.computed  # until it is known how much of it stayed
        if self.costs.way(victim, self._host_room) is Way.SWAP:
            self.num_swapped_pages += lease.swap_out()
        else:
            lease.release()
        sequence.lease = None
        sequence.state = SequenceState.PREEMPTED
        sequence.preemptions += 1
        self.num_preemptions += 1
        if sequence.output_len == 0:
            sequence.prompt_logprobs = None  # collected again from the start
        insort(self.preempted, sequence, key=_BY_RANK)

    # -- admission ------------------------------------------------------------------------------------------------

    def _admit(self, plan: StepPlan, budget: int) -> int:
        """Begin what can begin; the rows that are left of ``budget``.

        While pages of a preempted sequence are fetched, others that were preempted may come back before it, and nobody begins
        anew: it waits for its own pages only, and no more than once for each time that it was preempted.
        """
        seats = self.limits.max_running - self.taken()
        fetching = False
        for sequence in self.preempted[: self.limits.look_ahead]:
            if budget < self._least_budget or seats < _seats(sequence):
                return budget
            pending = sequence.errand is not None and sequence.errand.pending
            lease = Refusal.FETCHING if pending else self._try(plan, sequence)
            fetching |= lease is Refusal.FETCHING
            if lease is Refusal.NO_ROOM:
                return budget  # nobody overtakes one that waits for room, or it would wait for ever
            if isinstance(lease, Lease):
                self.preempted.remove(sequence)
                self._resume(sequence, lease)
                seats -= _seats(sequence)
                budget -= self._plan_prefill(plan, sequence, budget)
        if budget < self._least_budget or seats < 1 or fetching or not self.waiting:
            return budget
        self._announced = announced_keys(self.manager)
        for waiter in self.waiting.candidates(self.processed):
            sequence = waiter.sequence
            if seats < _seats(sequence):
                return budget
            if self._surely_too_large(waiter):
                keep_found(self.manager, waiter)
                return budget
            lease = Refusal.IN_FLIGHT if waiter.held_up else self._try(plan, sequence)
            if lease is Refusal.NO_ROOM:
                return budget
            if isinstance(lease, Lease):
                self.waiting.admit(sequence)
                self._start(sequence, lease)
                seats -= _seats(sequence)
                budget -= self._plan_prefill(plan, sequence, budget)
            if budget < self._least_budget or seats < 1:
                return budget
        return budget

    def taken(self) -> int:
        """Seats that are taken, or kept for sequences that follow one that runs."""
        ahead = [s for s in self.running if not s.index and len(s.request.sequences) > 1]
        return len(self.running) + sum(_seats(sequence) - 1 for sequence in ahead)

    def _look_up(self, waiter: Waiter) -> None:
        if self.manager.enabled and waiter.sequence.params.prompt_logprobs is None:
            look_up(self.manager, waiter, self._announced)
        else:
            waiter.uncached = waiter.total

    def _patience(self, waiter: Waiter) -> int:
        return self.limits.max_overtakes * -(-waiter.uncached // self.limits.token_budget)

    def _surely_too_large(self, waiter: Waiter) -> bool:
        """Whether even what ``acquire`` could not have would not do; saves walking a long prompt in every step."""
        need = self.manager.pages_for(waiter.total) - waiter.pages
        return need > room(self.manager) - self._spare(waiter.sequence)

    def _try(self, plan: StepPlan, sequence: Sequence) -> Lease | Refusal | None:
        """A lease, or why not now; ``None`` when something broke."""
        # Once output exists, all prompt figures were reported, and nothing forces the prompt to be computed any more.
        every_position = sequence.params.prompt_logprobs is not None and sequence.output_len == 0
        try:
            return self.manager.acquire(
                sequence.tokens,
                reuse=not every_position,
                spare=self._spare(sequence),
                first=sequence.cached_tokens is None,
                errand=self._errand(sequence),
            )
        except Exception as error:  # noqa: BLE001  see _may_grow
            plan.failed.append((sequence, error))
            return None

    def _errand(self, sequence: Sequence) -> Errand | None:
        """What ``sequence`` asks, once for each admission, of a tier that answers later; ``None`` where there is none."""
        if sequence.errand is None and self.manager.far is not None:
            sequence.errand = Errand()
        return sequence.errand

    def _spare(self, sequence: Sequence) -> int:
        """Pages that must be left when ``sequence`` begins: promises, and one for each that runs, so that admitting somebody
        does not preempt somebody in the next step."""
        spare = self._promised() + len(self.running)
        if sequence.preemptions:
            growth = secure(sequence, self.limits.max_preemptions)
            spare += max(0, self.manager.pages_for(growth) - self.manager.pages_for(len(sequence.tokens)))
        return spare

    def _start(self, sequence: Sequence, lease: Lease) -> None:
        self._end_errand(sequence)
        sequence.lease = lease
        sequence.state = SequenceState.RUNNING
        if sequence.cached_tokens is None:
            sequence.cached_tokens = lease.cached_tokens
            sequence.cached_pages = lease.cached_pages
            sequence.tier_tokens = lease.tier_tokens
            sequence.miss = lease.miss
        insort(self.running, sequence, key=_BY_RANK)

    def _resume(self, sequence: Sequence, lease: Lease) -> None:
        kept = min(lease.computed, sequence.valid_before)
        sequence.recomputed -= kept
        sequence.secured = secure(sequence, self.limits.max_preemptions)
        self.secured.add(sequence)
        lease.publishing &= not settled(sequence)
        self._start(sequence, lease)

    # -- after the step -------------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan) -> int:
        """The forward pass of ``plan`` is done: publish, and let followers fork off a finished prompt.

        Returns:
            Rows of the step.
        """
        rows = plan.num_tokens
        self.processed += rows
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
        return rows

    def check(self) -> list[str]:
        """What is broken, in sentences; empty when all is well."""
        return check_scheduler(self)


def _lease(sequence: Sequence) -> Lease:
    assert sequence.lease is not None, "a running sequence holds a lease"
    return sequence.lease


def _decodes(sequence: Sequence) -> bool:
    """Whether all that is left to run is the token it drew last."""
    length = len(sequence.tokens)
    return length > sequence.prompt_len and _lease(sequence).computed == length - 1


def _rest(sequence: Sequence) -> int:
    """Tokens of its prompt that are left to compute."""
    return len(sequence.tokens) - _lease(sequence).computed


def _seats(sequence: Sequence) -> int:
    """Running seats that a sequence takes: its own, and those of the sequences that wait to follow it."""
    if sequence.index or sequence.output_len:
        return 1  # they follow the first one, until it has drawn a token
    return 1 + sum(s.state is SequenceState.FOLLOWING for s in sequence.request.sequences)


def _chunk(sequence: Sequence, start: int, count: int, samples: tuple[Sequence, ...]) -> Chunk:
    lease = _lease(sequence)
    return Chunk(sequence, start, count, write_from=lease.computed, pages=lease.pages, samples=samples)
