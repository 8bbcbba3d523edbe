"""AC804: prompts that are never looked up in the cache; found by a running server."""

from __future__ import annotations

from agentcache.lint.rules.base import Rule

RULE = Rule(
    code="AC804",
    name="never-cached",
    what="Requests are never looked up in the cache, because it is off. Found with --live.",
    why="Every prompt is computed from its first token, however often it was sent.",
    bad="agentcache serve --no-prefix-cache",
    good="agentcache serve",
    fix_safety=(
        "Nothing in a file can be changed. A request that asks for the log-probabilities of its prompt is computed whole as "
        "well; that is what it asked for, and it is not reported."
    ),
)
