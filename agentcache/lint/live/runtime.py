"""What the cache itself lost, seen over many requests, and what the server's own figures advise (AC801 to AC804)."""

from __future__ import annotations

import math
from datetime import datetime, timezone

from agentcache.lint.finding import Finding, Location
from agentcache.lint.live.merging import Seen
from agentcache.lint.live.server import Answer
from agentcache.lint.rules import find_rule

_SOON_S = 600
"""Seconds after its start in which a server is asked for conversations that it held before."""


def told(seen: Seen, answer: Answer, url: str) -> Finding:
    """The finding for a defect, with advice from the server's figures where it is one of the cache's own."""
    words = _WORDS.get(seen.finding.code)
    return seen.told(url, answer.requests, **(words(seen, answer) if words else {}))


def _evicted(seen: Seen, answer: Answer) -> dict[str, str]:
    return {
        "message": "what was cached of prompts was evicted before they came again",
        "help": _more_pages(seen, answer),
    }


def _more_pages(seen: Seen, answer: Answer) -> str:
    pages, missing = answer.cache, _missing_tokens(seen)
    rest = "pin sessions that wait, or announce long tools with wait"
    if pages.evictions.get("quota", 0) > pages.evictions.get("room", 0) and pages.namespace_pages is not None:
        return (
            f"the key's share is {pages.namespace_pages:,} pages (--namespace-pages), and about "
            f"{math.ceil(missing / pages.page_size):,} more were asked for again; or {rest}"
        )
    needed = pages.total + math.ceil(missing / pages.page_size)
    below = "--disk-dir" if pages.host_pages else "--host-pages, --disk-dir"
    pinned = f" {pages.pinned:,} of them are pinned." if pages.pinned * 4 >= pages.total else ""
    return (
        f"the working set of about {needed * pages.page_size:,} tokens needs {needed:,} pages, the pool has {pages.total:,} "
        f"(--num-pages).{pinned} More pages, or a tier below them ({below}), keep it; else {rest}"
    )


def _missing_tokens(seen: Seen) -> int:
    """Tokens that were evicted and asked for again; of each conversation the most that it missed at once."""
    most: dict[object, int] = {}
    for row, lost in zip(seen.rows, seen.lost, strict=False):
        miss = row.miss or {}
        conversation = row.session or (str(miss.get("path")), str(miss.get("now")))
        most[conversation] = max(most.get(conversation, 0), lost or 0)
    return sum(most.values())


def _lease_ended(seen: Seen, answer: Answer) -> dict[str, str]:
    sessions = len({row.session for row in seen.rows})
    whose = "a session" if sessions == 1 else f"{sessions} sessions"
    return {"message": f"leases of {whose} had run out, and the pages were needed, before the next turn came"}


def _never_cached(seen: Seen, answer: Answer) -> dict[str, str]:
    if answer.cache.enabled:
        return {}
    return {
        "message": "the prefix cache is off, so nothing is ever reused",
        "help": "start the server without --no-prefix-cache",
    }


_WORDS = {"AC801": _evicted, "AC802": _lease_ended, "AC804": _never_cached}


def held_elsewhere(answer: Answer, url: str) -> Finding | None:
    """AC803 of conversations without sessions: several came that had grown to different lengths somewhere else.

    A prompt may hold replies that were written by hand, as examples; those are the same number each time.
    """
    rows = answer.continued
    rule = find_rule("AC803")
    if rule is None or len({row.replies for row in rows}) < 2:
        return None
    first = min(row.started for row in rows)
    began = datetime.fromtimestamp(answer.server.started, timezone.utc)
    since = f"it was started at {began:%Y-%m-%d %H:%M:%S} UTC"
    if 0 <= first - answer.server.started < _SOON_S:
        since += f", {first - answer.server.started:.0f} s before the first of them came"
    return Finding(
        code=rule.code,
        name=rule.name,
        severity="warning",
        confidence="suspected",
        location=Location(file=url),
        tokens_lost=sum(row.prompt_tokens - row.cached_tokens for row in rows),
        tokens_lost_kind="upper_bound",
        message=(
            f"conversations go on here whose replies this server has not generated, and nothing of them is cached "
            f"({len(rows)} of {answer.requests} requests, the latest {rows[0].request_id})"
        ),
        help=f"send a conversation to the server that served its last turn, and keep that one running ({since})",
    )
