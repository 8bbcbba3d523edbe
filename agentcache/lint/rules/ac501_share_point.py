"""AC501: what sessions share ends inside a page."""

from __future__ import annotations

from agentcache.lint.rules.base import Judgement, Rule, SharePoint


def judge(point: SharePoint) -> Judgement | None:
    """Two or more sessions share at least a page, and not a whole number of pages."""
    if point.fork or point.tokens < point.page_size or point.tail == 0:
        return None
    padding = point.page_size - point.tail
    place = f"the end of {point.path}" if point.ends_string else f"character {point.char} of {point.path}"
    return Judgement(
        severity="info",
        tokens_lost=point.tail * (point.sessions - 1),
        message=(
            f"{point.sessions} sessions share {point.tokens} tokens, {point.tail} more than whole pages of {point.page_size}: "
            "a cache that reuses only whole pages computes those again for each session"
        ),
        help=f"{padding} more tokens before {place} (or {point.tail} fewer) would end the shared part with a page",
    )


RULE = Rule(
    code="AC501",
    name="unaligned-share-point",
    what="The place where two or more sessions stop having the same prompt lies inside a page.",
    why=(
        "Caches keep whole pages. What sessions share beyond the last page boundary sits in a page whose rest differs, so most "
        "engines compute it again for every session. agentcache copies the equal beginning of that page and loses nothing; the "
        "figure is what the others lose, an upper bound."
    ),
    bad="system text of 1,702 tokens, page size 16: 106 pages and 6 tokens that are computed again for each session",
    good="10 tokens of useful text more, or 6 fewer: 1,712 tokens are 107 pages, 1,696 are 106",
    fix_safety="Shown, never applied: padding is text that the model reads.",
    judge=judge,
)
