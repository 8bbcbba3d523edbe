"""What a run of the linter found, and what a warm cache would have served meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agentcache.lint.finding import Finding


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """What one request would have reused, served in the order of the file from a cache that keeps everything."""

    file: str
    record: int
    session: str
    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class PageShare:
    """What would have been reused at one page size.

    Attributes:
        cached_tokens: as agentcache counts, which copies the equal beginning of one more page.
        whole_page_tokens: in a cache that reuses whole pages only.
        forgotten_pages: let go because the index was full: then a cache that keeps everything would have reused more.
    """

    page_size: int
    cached_tokens: int = 0
    whole_page_tokens: int = 0
    forgotten_pages: int = 0


@dataclass(slots=True)
class Report:
    """Everything that a run found.

    Attributes:
        findings: of the selected rules, by file, record and token.
        requests: one entry a readable request, in order; empty when they were not to be kept.
        count: readable requests.
        shares: one entry a page size, in the order given.
        unreadable: how many records could not be read.
        legitimate: tokens that legitimate changes (compactions) cost, by code, whether selected or not.
        ignored: what records asked not to be told of: file, record and code or beginning of one -> whether there was any.
    """

    findings: list[Finding]
    requests: list[RequestFigures]
    count: int
    sessions: int
    unreadable: int
    prompt_tokens: int
    shares: tuple[PageShare, ...]
    legitimate: dict[str, int] = field(default_factory=dict)
    ignored: dict[tuple[str, int, str], bool] = field(default_factory=dict)

    @property
    def cached_tokens(self) -> int:
        return self.shares[0].cached_tokens


def legitimate_losses(findings: Iterable[Finding]) -> dict[str, int]:
    """Tokens that legitimate changes cost, by code."""
    losses: dict[str, int] = {}
    for finding in findings:
        if finding.verdict == "legitimate":
            losses[finding.code] = losses.get(finding.code, 0) + (finding.tokens_lost or 0)
    return losses
