"""What the requests of a test say about its cache, in sentences."""

from __future__ import annotations

from agentcache_sdk.testing.requests import Request

_ADVICE = {
    "evicted": "pages made room for others; a lease (`session.waiting`, `session.pin`) or more pages keep them",
    "expired": "pages made room for others after their lease had ended",
    "salt": "the same beginning was sent under another cache_salt",
}


def append_only_report(requests: list[Request]) -> list[str]:
    """One sentence for each request that changed what had been said."""
    return [
        f"request {request.number} breaks its prefix at token {broken.at_token} of {request.prompt_tokens}"
        f"{' in ' + broken.path if broken.path else ''}: it goes on from request {broken.since}, which has"
        f" {broken.was!r} there, and it has {broken.now!r}; {broken.tokens_lost} tokens are lost"
        for request in requests
        if (broken := request.broken) is not None
    ]


def misses_report(requests: list[Request], allowed: set[str]) -> list[str]:
    """One sentence for each request that computed what was known, or whose system text begins as no other does."""
    problems = []
    for request in requests:
        miss = request.miss
        if miss is None or request.broken is not None:
            continue
        if request.forgotten > 1 and miss.code not in allowed:
            why = _ADVICE.get(miss.code, miss.detail)
            problems.append(
                f"request {request.number} computed {request.forgotten} tokens again that had been computed before:"
                f" {miss.code} at token {miss.at_token} of {request.prompt_tokens}; {why}"
            )
        elif miss.code == "diverged" and miss.at_token < request.rendered.head and "diverged" not in allowed:
            problems.append(
                f"request {request.number} begins differently from those before it: diverged at token {miss.at_token} of"
                f" {request.prompt_tokens} in {miss.path}, which was {miss.was!r} and is {miss.now!r}"
            )
    return problems
