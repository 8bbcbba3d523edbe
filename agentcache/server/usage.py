"""What a request cost: OpenAI's ``usage`` and the ``agentcache`` object.

A request may have several prompts, each with ``n`` sequences.  Prompt figures count once a prompt (those of its first
sequence, which computed or found it); work is summed over all sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache.cache.tiers import TIERS
from agentcache.request import SequenceReport


@dataclass(frozen=True, slots=True)
class Notes:
    """What the ``agentcache`` object says beside the figures.

    Attributes:
        source: ``template``: the ids came from rendering; ``transcript``: from what was generated before.
        share_points: where the cache knows sequences that part from the prompt (of several prompts, the first).
        foreign_replies: earlier replies in what was not cached that were not generated here.
    """

    session: str | None = None
    source: str = "template"
    miss: dict[str, Any] | None = None
    share_points: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    foreign_replies: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """Reports of every choice, prompt-major, ``n`` a prompt."""

    reports: Sequence[SequenceReport]
    n: int
    page_size: int

    @property
    def _firsts(self) -> Sequence[SequenceReport]:
        return self.reports[:: self.n]

    @property
    def cached_tokens(self) -> int:
        return sum(report.cached_tokens for report in self._firsts)

    def usage(self) -> dict[str, Any]:
        prompt = sum(report.prompt_tokens for report in self._firsts)
        completion = sum(report.completion_tokens for report in self.reports)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def _tiers(self, firsts: Sequence[SequenceReport]) -> dict[str, int]:
        """Cached tokens by where they were found; the one token that a full hit redoes counts for the device."""
        below = {name: sum(report.tier_tokens.get(name, 0) for report in firsts) for name in TIERS}
        return {"device": max(0, self.cached_tokens - sum(below.values())), **below}

    def cache_report(self, notes: Notes) -> dict[str, Any]:
        """The ``agentcache`` object.  ``alignment`` cuts each prompt at its last page boundary::

        [ static_tokens: whole pages, shareable ......... | tail_tokens ]
        """
        firsts = self._firsts
        tails = [report.prompt_tokens % self.page_size for report in firsts]
        prompt_tokens = sum(report.prompt_tokens for report in firsts)
        return {
            "session": notes.session,
            "source": notes.source,
            "page_size": self.page_size,
            "prompt_tokens": prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "cached_pages": sum(report.cached_pages for report in firsts),
            "partial_tokens": sum(report.partial_tokens for report in firsts),
            "computed_tokens": sum(report.computed_tokens for report in self.reports),
            "preemptions": sum(report.preemptions for report in self.reports),
            "tiers": self._tiers(firsts),
            "miss": notes.miss,
            "alignment": {
                "static_tokens": prompt_tokens - sum(tails),
                "tail_tokens": sum(tails),
                "share_points": notes.share_points,
            },
            "findings": notes.findings,
        }
