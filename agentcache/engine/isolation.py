"""Keeping the failure of one sequence from the others, and finding out whether steps work at all."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.errors import EngineFailingError
from agentcache.request import Request, SamplingParams, Sequence, SequenceState
from agentcache.scheduler.plan import Chunk, Runner, StepPlan, StepResult

logger = logging.getLogger(__name__)

_MOST_BLAMED = 4
"""Sequences that one step may lose one by one; when more have no finite logits, the model or its memory is broken."""


def run_apart(runner: Runner, plan: StepPlan, fail: Callable[[Sequence, Exception], None]) -> StepResult:
    """Run ``plan``; a sequence that an error names (``error.sequence``) is failed, and the others run again without it.

    Running again is safe: nothing of the step was published, and the same keys and values are written to the same slots.
    The copies were made before anything was computed, and are not made again, since their sources may be free by now.

    Raises:
        Exception: whatever the runner raised that names nobody, or too many, or leaves nobody.
    """
    for _ in range(_MOST_BLAMED):
        try:
            return runner.run(plan)
        except Exception as error:
            blamed = getattr(error, "sequence", None)
            if not isinstance(blamed, Sequence):
                raise
            logger.exception("request %s is taken out of its step", blamed.request.request_id)
            fail(blamed, error)
            plan.copies = []
            plan.chunks = [_without_failed(chunk) for chunk in plan.chunks if _runs(chunk.sequence)]
            if not plan.chunks:
                raise
    return runner.run(plan)


def _runs(sequence: Sequence) -> bool:
    return sequence.state is SequenceState.RUNNING


def _without_failed(chunk: Chunk) -> Chunk:
    chunk.samples = tuple(s for s in chunk.samples if s.state is not SequenceState.FINISHED)
    return chunk


def probe(manager: CacheManager, runner: Runner) -> None:
    """Run a step of one token that is nobody's; it leaves nothing behind.

    Raises:
        Exception: steps still fail, or there is no room for a page.
    """
    tokens = PagedTokens([0], manager.page_size, b"probe")
    lease = manager.acquire(tokens, reuse=False, first=False)
    if not isinstance(lease, Lease):
        raise EngineFailingError(f"no page for a probe: {lease.value}")
    try:
        request = Request("probe", [0], SamplingParams(temperature=0.0), b"probe", sink=lambda _: None)
        sequence = Sequence(request, 0, tokens, prompt_len=1, max_tokens=1, seed=0, lease=lease)
        chunk = Chunk(sequence, 0, 1, write_from=0, pages=lease.pages, samples=(sequence,))
        runner.run(StepPlan([chunk], lease.take_copies()))
    finally:
        lease.release()
