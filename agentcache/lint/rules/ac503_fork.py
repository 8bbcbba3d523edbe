"""AC503: a conversation branches inside a page."""

from __future__ import annotations

from agentcache.lint.rules.base import Judgement, Rule, SharePoint


def judge(point: SharePoint) -> Judgement | None:
    """Branches of one conversation share more than whole pages."""
    if not point.fork or point.tail == 0:
        return None
    return Judgement(
        severity="info",
        tokens_lost=point.tail * (point.sessions - 1),
        message=(
            f"{point.sessions} branches of the conversation share {point.tokens} tokens, {point.tail} more than whole pages "
            f"of {point.page_size}: a cache that reuses only whole pages computes those again for each branch"
        ),
        help="branch where a turn ends, use smaller pages, or leave it: no more than a page is lost for a branch",
    )


RULE = Rule(
    code="AC503",
    name="fork-inside-page",
    what="A conversation goes on in several ways, and the place where they part lies inside a page.",
    why=(
        "Caches keep whole pages. The tokens between the last page boundary and the fork are computed again for every branch, "
        "unless the cache copies the equal beginning of the page, as agentcache does. It is never more than a page a branch, "
        "and a conversation branches where it branches, so the rule is off unless it is selected."
    ),
    bad="branches part at token 1,702, page size 16: 106 pages and 6 tokens that are computed again for each branch",
    good="branches part at token 1,696: 106 pages, nothing is computed again",
    fix_safety="Shown, never applied: where a conversation branches is what it is about.",
    optional=True,
    judge=judge,
)
