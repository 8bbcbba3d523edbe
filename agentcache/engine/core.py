"""The step loop: plan, run, commit, emit.  Single-threaded and torch-free; ``loop.py`` gives it a thread.

A request's life::

    add ──► waiting ──► running: chunks of prompt ──► first token ──► one token a step ──► finished
               ▲            │ pages ran out                                                  │
               └─preempted◄─┘                          lease released, pages stay as cache ◄─┘
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from agentcache.cache.fetching import FarTier
from agentcache.cache.manager import CacheManager
from agentcache.cache.pages import PageLoad
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.detokenizer import TextStream
from agentcache.engine.bounds import Bounds, check_request
from agentcache.engine.health import StepHealth
from agentcache.engine.isolation import probe, run_apart
from agentcache.engine.stats import EngineStats, Metrics
from agentcache.errors import AgentCacheError
from agentcache.faults import Clock, Faults
from agentcache.request import FinishReason, Output, Request, Sequence, SequenceState, TokenLogprob
from agentcache.scheduler.plan import Chunk, Runner, StepPlan, StepResult
from agentcache.scheduler.preemption import Costs
from agentcache.scheduler.scheduler import Scheduler

logger = logging.getLogger(__name__)

MakeText = Callable[[tuple[str, ...], frozenset[int]], TextStream]
"""Makes the incremental detokeniser of one sequence from its stop strings and the control tokens that it shows."""


@dataclass(slots=True)
class EngineCore:
    """Everything that serves requests, driven by ``step``.

    Args:
        scheduler: queues and pages.
        runner: runs the forward pass and draws tokens.
        make_text: see ``MakeText``.  The engine makes text of sequences with stop strings only.
        eos_token_ids: tokens that end a sequence unless its request ignores them.
        bounds: limits that requests are held to.
        clock: seconds; only for figures and for probes of a broken engine, never for decisions about requests.
        seeds: where seeds of requests that bring none come from.
    """

    scheduler: Scheduler
    runner: Runner
    make_text: MakeText
    eos_token_ids: frozenset[int]
    bounds: Bounds
    clock: Clock = field(default_factory=Clock)
    faults: Faults = field(default_factory=Faults)
    seeds: random.Random = field(default_factory=random.Random)
    metrics: Metrics = field(default_factory=Metrics)
    health: StepHealth = field(default_factory=StepHealth)
    _requests: dict[str, Request] = field(default_factory=dict)

    @property
    def manager(self) -> CacheManager:
        return self.scheduler.manager

    @property
    def far(self) -> FarTier | None:
        """The tier that answers later, if there is one."""
        return self.manager.far

    @property
    def has_work(self) -> bool:
        lower = self.manager.lower
        return self.scheduler.has_work or (lower is not None and lower.owes)

    # -- requests -------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue ``request``.

        Raises:
            RequestError: it can never be served.
            QueueFullError: too many wait.
        """
        room = self.room(request)
        request.arrival = self.clock()
        seed = request.params.seed if request.params.seed is not None else self.seeds.getrandbits(63)
        prompt = request.tokens or PagedTokens(request.prompt, self.manager.page_size, request.root)
        request.sequences = [
            Sequence(
                request=request,
                index=index,
                tokens=prompt if index == 0 else prompt.copy(),
                prompt_len=len(request.prompt),
                max_tokens=room,
                seed=seed + index,
                text=self.make_text(request.params.stop, request.params.shown_tokens) if request.params.stop else None,
                constraint=request.params.grammar.start() if request.params.grammar is not None else None,
            )
            for index in range(request.params.n)
        ]
        self.scheduler.add(request)
        self._requests[request.request_id] = request

    def room(self, request: Request) -> int:
        """How many tokens the request may generate: what it asked for, or the room left.

        Raises:
            RequestError: a bad token id, or a prompt that leaves no room in the context or in the whole pool.
        """
        check_request(request, self.bounds)
        room = self.bounds.capacity - len(request.prompt)
        asked = request.params.max_tokens
        return room if asked is None else min(asked, room)

    def abort(self, request_id: str) -> None:
        """End a request at once, whatever it is doing; unknown ids are ignored (it may just have finished)."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        for sequence in request.sequences:
            if sequence.state is not SequenceState.FINISHED:
                self._end(sequence, Output(sequence.index, "", finish_reason=FinishReason.ABORT))

    def fail_all(self, reason: str) -> None:
        """End every request with an error, whatever else is broken; used when the engine stops."""
        for request in list(self._requests.values()):
            for sequence in request.sequences:
                if sequence.state is SequenceState.FINISHED:
                    continue
                try:
                    self._fail(sequence, reason)
                except Exception:
                    logger.exception("request %s left something behind", request.request_id)
                    self._send(sequence, _error(sequence, reason))

    def save(self, timeout_s: float) -> None:
        """Write what should outlive the process, for at most ``timeout_s`` seconds."""
        if self.manager.lower is not None:
            began = self.clock()
            self.manager.lower.save(self.manager.tree, timeout_s / 2)
            self.manager.lower.close(timeout_s - (self.clock() - began))

    # -- one step -------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run one step; ``False`` when there was nothing to do."""
        started = self.clock()
        self.manager.expire_pins(started)
        self._reckon()
        stored = self.manager.store_some()
        plan = self.scheduler.plan(admit=not self.health.failing)
        self._note_admissions(plan, started)
        for sequence, error in plan.failed:
            logger.error("request %s failed in planning", sequence.request.request_id, exc_info=error)
            self._fail(sequence, "the engine failed to get pages for this request")
        if plan.failed:
            plan.chunks = [chunk for chunk in plan.chunks if chunk.sequence.state is SequenceState.RUNNING]
        if not plan.chunks:
            return self._probe() or bool(plan.failed) or stored
        loads = any(isinstance(copy, PageLoad) for copy in plan.copies)
        try:
            if loads:
                self.faults.trip("host_copy")
            self.faults.trip("forward")
            result = run_apart(self.runner, plan, self._blame)
            self.faults.trip("sampler")
        except Exception:
            logger.exception("a step of %d sequences failed", len(plan.chunks))
            self.metrics.counters["failed_steps"] += 1
            self.health.failed(self.clock())
            for chunk in plan.chunks:
                self._fail(chunk.sequence, "the step that this request was part of failed")
            return True
        self.health.succeeded()
        rows = self.scheduler.commit(plan)
        now = self.clock()
        self.metrics.counters["steps"] += 1
        self.metrics.counters["computed_tokens"] += rows
        self.metrics.histograms["step_time_seconds"].observe(now - started)
        if not loads:  # filling pages from below is no prefill
            self.metrics.prefill.observe(_prompt_rows(plan), rows, now - started)
        self._emit(plan, result, now)
        return True

    def _reckon(self) -> None:
        """Tell the tiers what computing a token costs, and the scheduler what swapping a page costs beside that, once both were
        measured."""
        lower, token = self.manager.lower, self.metrics.prefill.seconds_per_token
        if lower is not None:
            lower.token_s = token
        if self.scheduler.costs.page is not None and lower is not None and lower.copy_s is not None and token:
            self.scheduler.costs = Costs(page=2 * lower.copy_s / token)  # out, and in again

    def _probe(self) -> bool:
        """While steps fail, see from time to time whether they still do; ``False`` when it is not time for that."""
        due, now = self.health.next_probe(), self.clock()
        if due is None or now < due:
            return False
        try:
            self.faults.trip("forward")
            probe(self.manager, self.runner)
        except Exception:
            logger.exception("steps still fail")
            self.health.failed(now)
            if self.health.gives_up(now):
                self._turn_away()
        else:
            logger.info("steps work again")
            self.health.succeeded()
        return True

    def _turn_away(self) -> None:
        for sequence in (*self.scheduler.preempted, *self.scheduler.waiting):
            self._fail(sequence, f"this request waited for an engine that does not work: {self.health.reason}")

    def _note_admissions(self, plan: StepPlan, now: float) -> None:
        for chunk in plan.chunks:
            sequence = chunk.sequence
            if sequence.index == 0 and sequence.first_scheduled is None:  # a request counts once
                sequence.first_scheduled = now
                self.metrics.admissions.append(now)
                self.metrics.counters["prompt_tokens"] += sequence.prompt_len
                cached = sequence.cached_tokens or 0
                self.metrics.counters["cached_tokens"] += cached
                self.metrics.saved_prefill_seconds += cached * self.metrics.prefill.seconds_per_token
                for tier, tokens in sequence.tier_tokens.items():
                    self.metrics.counters[f"cached_tokens_{tier}"] += tokens
                self.metrics.histograms["queue_time_seconds"].observe(now - sequence.request.arrival)
                self.metrics.histograms["request_prompt_tokens"].observe(sequence.prompt_len)

    def _emit(self, plan: StepPlan, result: StepResult, now: float) -> None:
        gaps: Counter[float] = Counter()  # since the token before; most of a step have the same
        for chunk, drawn, prompt_logprobs in zip(plan.chunks, result.samples, result.prompt_logprobs, strict=True):
            if prompt_logprobs is not None and chunk.sequence.output_len == 0:
                _collect(chunk, prompt_logprobs)
            for sequence, sample in zip(chunk.samples, drawn, strict=True):
                if sequence is not chunk.sequence:
                    sequence.prompt_logprobs = chunk.sequence.prompt_logprobs
                if sequence.last_token is not None:
                    gaps[now - sequence.last_token] += 1
                try:
                    self._accept(sequence, sample, now)
                except Exception as error:
                    logger.exception("request %s failed after its step", sequence.request.request_id)
                    ours = isinstance(error, AgentCacheError)
                    reason = str(error) if ours else "the engine failed to turn a token of this request into text"
                    self._fail(sequence, reason)
            if chunk.sequence.max_tokens == 0 and chunk.end == len(chunk.sequence.tokens):
                for sequence in chunk.sequence.request.sequences:  # nothing is drawn, so the followers end here too
                    sequence.prompt_logprobs = chunk.sequence.prompt_logprobs
                    self._end(sequence, _final(sequence, "", FinishReason.LENGTH))
        for gap, times in gaps.items():
            self.metrics.histograms["inter_token_latency_seconds"].observe(gap, times)

    def _accept(self, sequence: Sequence, sample: TokenLogprob, now: float) -> None:
        """Append a drawn token and tell what it added, or how it ended the sequence."""
        params = sequence.request.params
        token = sample.token
        if sequence.constraint is not None:
            sequence.constraint.advance(token)
        sequence.tokens.append(token)
        self.metrics.counters["generation_tokens"] += 1
        if sequence.last_token is None and sequence.index == 0:
            self.metrics.histograms["time_to_first_token_seconds"].observe(now - sequence.request.arrival)
        sequence.last_token = now
        text = sequence.text
        logprobs = (sample,) if params.logprobs is not None else ()
        if token in params.stop_token_ids or (token in self.eos_token_ids and not _goes_on(sequence)):
            stop = token if token in params.stop_token_ids else None
            held = "" if text is None else text.flush()
            self._end(sequence, _final(sequence, held, FinishReason.STOP, stop_reason=stop, end=token))
            return
        shown, stopped_by = "", None
        if text is not None:
            delta = text.push(token)
            shown, stopped_by = delta.text, delta.stopped_by
        if stopped_by is not None:
            final = _final(sequence, shown, FinishReason.STOP, (token,), logprobs, stop_reason=stopped_by)
            self._end(sequence, final)
        elif (reason := self._over(sequence)) is not None:
            shown += "" if text is None else text.flush()
            self._end(sequence, _final(sequence, shown, reason, (token,), logprobs))
        else:
            figures = _first_prompt_logprobs(sequence)
            output = Output(
                sequence.index, shown, (token,), logprobs, prompt_logprobs=figures, spelled=text is not None
            )
            self._send(sequence, output)

    def _over(self, sequence: Sequence) -> FinishReason | None:
        """How a sequence ends that no token has ended: its reply is complete and no end token may come, or it has no room."""
        full, constraint = sequence.output_len >= sequence.max_tokens, sequence.constraint
        no_end_token = full or sequence.params.ignore_eos or not self.eos_token_ids
        if no_end_token and constraint is not None and constraint.finished:
            return FinishReason.STOP
        return FinishReason.LENGTH if full else None

    # -- endings --------------------------------------------------------------------------------------------------

    def _fail(self, sequence: Sequence, reason: str) -> None:
        """End a sequence with an error, and those that wait for it to compute their prompt."""
        followers = [s for s in sequence.request.sequences if s.state is SequenceState.FOLLOWING]
        for failed in (sequence, *(followers if sequence.index == 0 else ())):
            self._end(failed, _error(failed, reason))

    def _blame(self, sequence: Sequence, error: Exception) -> None:
        ours = isinstance(error, AgentCacheError)
        self._fail(sequence, str(error) if ours else "this request made its step fail")

    def _end(self, sequence: Sequence, output: Output) -> None:
        assert output.finish_reason is not None
        request = sequence.request
        self.scheduler.finish(sequence)
        if request.bookmark is not None and sequence.index == 0:
            request.bookmark.tokens = sequence.tokens
        self.metrics.finished[output.finish_reason.value] += 1
        self.metrics.histograms["request_generation_tokens"].observe(sequence.output_len)
        if all(s.state is SequenceState.FINISHED for s in request.sequences):
            self._requests.pop(request.request_id, None)
        self._send(sequence, output)

    @staticmethod
    def _send(sequence: Sequence, output: Output) -> None:
        try:
            sequence.request.sink(output)
        except Exception:
            logger.exception("the receiver of request %s failed", sequence.request.request_id)

    # -- looking in -----------------------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        self.manager.expire_pins(self.clock())
        pages = self.manager.counts()
        counters: dict[str, float] = dict(self.metrics.counters)
        counters["preemptions"] = self.scheduler.num_preemptions
        counters["swapped_pages"] = self.scheduler.num_swapped_pages
        counters["saved_prefill_seconds"] = self.metrics.saved_prefill_seconds
        return EngineStats(
            free_pages=pages.free,
            live_pages=pages.live,
            cached_pages=pages.cached,
            pinned_pages=pages.pinned,
            total_pages=pages.total,
            running=len(self.scheduler.running),
            waiting=self.scheduler.num_waiting,
            counters=counters,
            finished=dict(self.metrics.finished),
            misses=dict(self.manager.events.misses),
            evictions=dict(self.manager.events.evictions),
            histograms={name: histogram.copy() for name, histogram in self.metrics.histograms.items()},
            seconds_per_admission=self.metrics.seconds_per_admission(self.clock()),
            tiers=self.manager.lower.stats() if self.manager.lower is not None else (),
            far=self.far.far_stats() if self.far is not None else None,
        )

    def heal(self) -> bool:
        """Check everything while nothing runs; where something is broken, log it and start from an empty cache.

        Returns:
            Whether something was broken.
        """
        faults = self.check()
        for fault in faults:
            logger.error("an invariant is broken: %s", fault)
        if faults:
            logger.error("the cache index is made anew; requests are served as before, from a cold cache")
            self.metrics.counters["index_rebuilds"] += 1
            self.manager.reset()
        return bool(faults)

    def check(self) -> list[str]:
        """What is broken, in sentences; empty when all is well."""
        faults = self.scheduler.check()
        over = [i for i, r in self._requests.items() if all(s.state is SequenceState.FINISHED for s in r.sequences)]
        return faults + [f"request {request_id} is finished but still listed" for request_id in over]


def _collect(chunk: Chunk, prompt_logprobs: list[TokenLogprob]) -> None:
    sequence = chunk.sequence
    if sequence.prompt_logprobs is None:
        sequence.prompt_logprobs = [None]  # nothing comes before the first token
    sequence.prompt_logprobs += prompt_logprobs


def _first_prompt_logprobs(sequence: Sequence) -> tuple[TokenLogprob | None, ...] | None:
    """The prompt's figures go out once, with the first output."""
    if sequence.prompt_logprobs is None or sequence.output_len > 1:
        return None
    return tuple(sequence.prompt_logprobs)


def _goes_on(sequence: Sequence) -> bool:
    """Whether it goes on behind an end token; nothing fits behind the end of a grammar."""
    return sequence.params.ignore_eos and sequence.constraint is None


def _error(sequence: Sequence, reason: str) -> Output:
    return Output(sequence.index, "", finish_reason=FinishReason.ERROR, error=reason)


def _final(
    sequence: Sequence,
    text: str,
    reason: FinishReason,
    token_ids: tuple[int, ...] = (),
    logprobs: tuple[TokenLogprob, ...] = (),
    *,
    stop_reason: str | int | None = None,
    end: int | None = None,
) -> Output:
    return Output(
        sequence.index,
        text,
        token_ids,
        logprobs,
        finish_reason=reason,
        stop_reason=stop_reason,
        end_token=end,
        report=sequence.report(),
        prompt_logprobs=_first_prompt_logprobs(sequence),
        spelled=sequence.text is not None,
    )


def _prompt_rows(plan: StepPlan) -> int:
    """How many rows of a step are prompt tokens."""
    prompts = [chunk for chunk in plan.chunks if chunk.start < chunk.sequence.prompt_len]
    return sum(min(chunk.end, chunk.sequence.prompt_len) - chunk.start for chunk in prompts)
