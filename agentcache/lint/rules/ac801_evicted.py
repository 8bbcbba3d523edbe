"""AC801: what was cached had made room for others when it was asked for again; found by a running server."""

from __future__ import annotations

from agentcache.lint.rules.base import Rule

RULE = Rule(
    code="AC801",
    name="evicted",
    what="A prompt was cached, and its pages had been given to others by the time it came again. Found with --live.",
    why=(
        "A pool of pages keeps what was used last. While an agent waits for a tool or a person, other requests push its "
        "conversation out, and the next turn computes all of it again. Nothing is wrong with the prompts: the pages of all "
        "conversations that are alive at the same time are more than the pool has."
    ),
    bad="agentcache serve --num-pages 2000\n40 agents of 1,000 tokens each take turns: 2,500 pages of 16 tokens",
    good="agentcache serve --num-pages 2000 --host-pages 8000\nor: session.pin(ttl=...) for those that wait",
    fix_safety="Nothing in a file can be changed: the server needs more pages or a tier below them, or sessions need pins.",
)
