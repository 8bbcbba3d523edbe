"""``agentcache lint --live URL``: findings of a running server's latest requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentcache.lint.finding import Finding
from agentcache.lint.live.merging import merged
from agentcache.lint.live.runtime import held_elsewhere, told
from agentcache.lint.live.server import Answer, fetch
from agentcache.lint.report import PageShare, Report, legitimate_losses

_LIMIT = 512
_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class LiveReport:
    """What a server says of the latest requests of a key.

    Attributes:
        findings: one a defect, over all requests that show it; the gravest and dearest first.
        requests: how many requests the server remembers of the key.
        with_findings: how many of these have some.
        pages: of the server's cache by state: ``total``, ``free``, ``live``, ``cached``, ``pinned``.
        misses: how many answers carried each code.
        legitimate: tokens that changes cost with which nothing is wrong (a flush, another salt), by code.
    """

    findings: tuple[Finding, ...]
    requests: int
    with_findings: int
    sessions: int
    prompt_tokens: int
    cached_tokens: int
    page_size: int
    pages: Mapping[str, int]
    misses: Mapping[str, int]
    legitimate: Mapping[str, int]

    @property
    def report(self) -> Report:
        """In the shape of a report on files."""
        return Report(
            list(self.findings),
            [],
            self.requests,
            self.sessions,
            0,
            self.prompt_tokens,
            (PageShare(self.page_size, self.cached_tokens, self.cached_tokens),),
            dict(self.legitimate),
        )


def live_findings(url: str, api_key: str | None = None, *, limit: int = _LIMIT) -> LiveReport:
    """Ask the server at ``url`` what kept the latest requests of a key from being reused.

    Args:
        limit: requests with findings that are looked at, at most 512; the newest.

    Raises:
        LiveError: there is nothing to be had; its sentence says why.
    """
    return report_on(fetch(url, api_key, limit), url)


def report_on(answer: Answer, url: str) -> LiveReport:
    """The report on what a server has answered."""
    found = [told(seen, answer, url) for seen in merged(answer.data)]
    if (elsewhere := held_elsewhere(answer, url)) is not None:
        found.append(elsewhere)
    found.sort(key=lambda finding: (_ORDER[finding.severity], -(finding.tokens_lost or 0), finding.code))
    cache = answer.cache
    return LiveReport(
        findings=tuple(found),
        requests=answer.requests,
        with_findings=answer.with_findings,
        sessions=answer.sessions,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        page_size=cache.page_size,
        pages={name: getattr(cache, name) for name in ("total", "free", "live", "cached", "pinned")},
        misses=dict(answer.misses),
        legitimate=legitimate_losses(finding for row in answer.data for finding in row.findings),
    )
