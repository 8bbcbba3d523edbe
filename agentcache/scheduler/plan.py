"""What the scheduler asks of one step, and what the step gives back.  Plain data between scheduler, engine and runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from agentcache.cache.pages import PageCopy, PageLoad
from agentcache.request import Sequence, TokenLogprob


@dataclass(slots=True)
class Chunk:
    """Tokens of one sequence to run in this step.

    ::

        tokens:        0 ............. write_from ......... start + count
        to run:                  [ start ................. start + count )
        keys/values:   [ valid ....... )[ written by this step ........ )

    ``start`` is below ``write_from`` only for a full hit, which redoes its last token as a read-only query: the token's
    keys and values exist already, in a page that others may hold.
    """

    sequence: Sequence
    start: int
    count: int
    write_from: int
    pages: list[int]
    """Page table: slot of position p is ``pages[p // page_size] * page_size + p % page_size``.  Not to be changed."""
    samples: tuple[Sequence, ...] = ()
    """Sequences that sample from the last row: none in the middle of a prompt, ``n`` of them at its end."""

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(slots=True)
class StepPlan:
    """One step: run every chunk in one forward pass, after the copies, which are made in order."""

    chunks: list[Chunk] = field(default_factory=list)
    copies: list[PageCopy | PageLoad] = field(default_factory=list)
    """Pages to copy, or to fill from a lower tier, in this order: one may free what the next one takes."""
    failed: list[tuple[Sequence, Exception]] = field(default_factory=list)
    """Sequences whose pages could not be had because something broke (not because room was short)."""

    @property
    def num_tokens(self) -> int:
        return sum(chunk.count for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class StepResult:
    """``samples[i][j]`` is the token that ``plan.chunks[i].samples[j]`` drew.

    ``prompt_logprobs[i]`` has one entry per row of chunk i whose sequence asked for them: the log-probability of the
    prompt token *after* that row (rows whose successor is not a prompt token give none); ``None`` where not asked.
    """

    samples: list[list[TokenLogprob]]
    prompt_logprobs: list[list[TokenLogprob] | None]


class Runner(Protocol):
    """Runs steps.  The torch runner is ``agentcache.model.runner.ModelRunner``; tests use a fake that replays hashes."""

    def run(self, plan: StepPlan) -> StepResult:
        """Execute copies, then one forward pass, then sampling.  Blocks until the sampled ids are on the host."""
        ...


__all__ = ["Chunk", "Runner", "StepPlan", "StepResult"]
