"""AC803: a conversation goes on at a server that did not serve its earlier turns; found by a running server."""

from __future__ import annotations

from agentcache.lint.rules.base import Rule

RULE = Rule(
    code="AC803",
    name="routed-elsewhere",
    what=(
        "A conversation goes on at a server that has computed nothing of it: another one of several, or this one before it "
        "was started anew. Found with --live."
    ),
    why=(
        "What is cached lies in the memory of one server. A balancer that gives each turn to the next server makes every "
        "server compute every conversation, and a restart makes one compute all of them again."
    ),
    bad="turn 1 -> server a\nturn 2 -> server b     computes turn 1 again\nturn 3 -> server a     computes turn 2 again",
    good="a balancer that routes by session or prompt_cache_key:\nturns 1, 2, 3 -> server a",
    fix_safety=(
        "Nothing in a file can be changed: route conversations by a key that stays the same, and give servers that are "
        "restarted a --disk-dir."
    ),
)
