"""AC502: what sessions share is shorter than a page."""

from __future__ import annotations

from agentcache.lint.rules.base import Judgement, Rule, SharePoint


def judge(point: SharePoint) -> Judgement | None:
    """Two or more sessions share a string, and all that they share does not fill a page."""
    if point.fork or point.tokens >= point.page_size:
        return None
    return Judgement(
        severity="info",
        tokens_lost=point.tokens * (point.sessions - 1),
        message=(
            f"{point.sessions} sessions share only their first {point.tokens} tokens, less than a page of {point.page_size}: "
            "a cache that reuses only whole pages reuses nothing"
        ),
        help=(
            "put what sessions have in common (instructions, tools, examples) at the very start, or use smaller pages"
        ),
    )


RULE = Rule(
    code="AC502",
    name="prefix-below-page",
    what="Two or more sessions begin with the same text, but it is shorter than a page.",
    why=(
        "The smallest thing most caches reuse is a page. A shared beginning that does not fill one is computed again for every "
        "session. agentcache copies it out of the other session's page; the figure is what other engines lose, an upper bound."
    ),
    bad='{"role": "system", "content": "Be brief."}, with the common instructions at the end of each user message',
    good='{"role": "system", "content": "Be brief. <the common instructions>"}, with only the question in the user message',
    fix_safety="Shown, never applied: moving instructions changes what the model reads where.",
    judge=judge,
)
