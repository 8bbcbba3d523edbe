"""AC6, AC7 and AC8: what the cache did not have any more, or never had under this name, though the prompt is as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentcache.cache.explain import Miss
from agentcache.lint.finding import Finding, Verdict
from agentcache.server.findings.spot import Basis, Spot, lost
from agentcache.sessions.transcript import Transcript

_GONE = {"evicted": "AC801", "expired": "AC802"}
_ELSEWHERE = {"model": "AC601", "salt": "AC602"}
_ABSENT = frozenset({"cold", "diverged", "below_page"})


@dataclass(frozen=True, slots=True)
class Known:
    """What was known of a prompt before it was sent.

    Attributes:
        kept: its first tokens that were read or drawn in earlier requests (or turns).
        replies: earlier replies in it.
        restored: it is a session's that came from a snapshot or from another server: another process may have computed it.
    """

    kept: int
    replies: int
    restored: bool = False


def cache_finding(
    miss: Miss, told: Mapping[str, Any], known: Known, prompt_tokens: int, basis: Basis
) -> Finding | None:
    """What the cache itself lost.

    Args:
        miss: as the engine found it.
        told: the same as the response says it, by when ``cold`` may have become ``salt`` or ``model``.
    """
    code, spot = told["code"], Spot(miss.at_token, told["path"])
    if code in _GONE:
        return _gone(miss, code, known, basis.of(_GONE[code], spot))
    if code in _ELSEWHERE:
        return _elsewhere(told, known, prompt_tokens, basis.of(_ELSEWHERE[code], spot))
    if code == "disabled":
        verdict: Verdict = "unavoidable" if "off" in miss.detail else "legitimate"
        message = f"nothing of this prompt was looked up in the cache: {miss.detail}"
        return Finding(**basis.of("AC804", Spot(0)), severity="info", verdict=verdict, message=message)
    if code in _ABSENT and known.kept - miss.at_token >= basis.page_size:
        return _absent(miss, known, basis, spot)
    return None


def _gone(miss: Miss, code: str, known: Known, base: dict[str, Any]) -> Finding:
    """Pages whose eviction is remembered; of a chain that long was evicted, its end may be forgotten already."""
    tokens, exact = miss.gone_tokens, miss.gone_all
    if known.kept - miss.at_token > tokens:
        tokens, exact = known.kept - miss.at_token, False
    what = "made room for others" if code == "evicted" else "was evicted after the lease that kept it had run out"
    verdict: Verdict = "unavoidable" if code == "evicted" else "waste"
    if miss.flushed:
        what, verdict = "was flushed", "legitimate"
    return Finding(
        **base,
        severity="info" if miss.flushed else "warning",
        verdict=verdict,
        **lost(tokens, "exact" if exact else "upper_bound"),
        message=f"the prompt was cached beyond token {miss.at_token}, and what was there {what}",
    )


def _absent(miss: Miss, known: Known, basis: Basis, spot: Spot) -> Finding:
    """Tokens that were read or drawn before, and neither are cached nor known to have been evicted."""
    where = f"beyond token {miss.at_token}, though its first {known.kept} tokens were read or generated before"
    if known.restored:
        code, why = "AC803", "the session came from a snapshot or from another server, and this one has not computed it"
    else:
        code, why = "AC801", "it was evicted so long ago that the server does not remember when"
    return Finding(
        **basis.of(code, spot),
        severity="warning",
        verdict="unavoidable",
        **lost(known.kept - miss.at_token, "upper_bound"),
        message=f"nothing of the prompt is cached {where}: {why}",
    )


def _elsewhere(told: Mapping[str, Any], known: Known, prompt_tokens: int, base: dict[str, Any]) -> Finding:
    """A conversation that moved lost its cache; a first request may well belong where it is."""
    return Finding(
        **base,
        severity="info",
        verdict="waste" if known.replies else "legitimate",
        **lost(prompt_tokens - 1, "upper_bound"),
        message=f"nothing is reused: {told['detail']}",
    )


def template_finding(miss: Mapping[str, Any], before: Transcript, basis: Basis) -> Finding:
    """AC702 for a template break: what it can have cost at most."""
    at = int(miss["at_token"])
    return Finding(
        **basis.of("AC702", Spot(at, miss["path"])),
        severity="warning",
        verdict="unavoidable",
        before=miss["was"],
        after=miss["now"],
        **lost(len(before) - at, "upper_bound"),
        message="the chat template does not render a longer conversation as a continuation of a shorter one",
    )


def fork_finding(miss: Miss | None, forked_at: int, cached: int, basis: Basis) -> Finding | None:
    """AC503: a fork's first turn that computed the part of the page again in which the fork lies.

    ::

        parent   | page | page | p p p |
        fork     | page | page | . . . |        forked_at: three tokens behind the last page boundary
                               [ tail  ]
    """
    boundary = forked_at - forked_at % basis.page_size
    # The token that was drawn last is computed with what follows it, here as in the session that was forked.
    missing = forked_at - 1 - cached
    if miss is None or not boundary <= cached or missing <= 0:
        return None
    return Finding(
        **basis.of("AC503", Spot(cached)),
        severity="info",
        **lost(missing, "exact"),
        message=f"the fork at token {forked_at} lies inside a page, and {missing} tokens of that page were computed again",
    )
