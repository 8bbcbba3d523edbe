"""AC802: a lease on pages had run out before the next turn came; found by a running server."""

from __future__ import annotations

from agentcache.lint.rules.base import Rule

RULE = Rule(
    code="AC802",
    name="lease-expired",
    what="A lease on a conversation's pages ran out, and they were gone when the next turn came. Found with --live.",
    why=(
        "A lease says how long a conversation is worth its pages. One that ends a minute before the tool does has held the "
        "pages from others and saved nothing."
    ),
    bad='session.pin(ttl="60s")\nrun_tests()          # takes three minutes\nsession.send(result)',
    good='with session.waiting("tests", expect_s=300):\n    result = run_tests()\nsession.send(result)',
    fix_safety="Nothing in a file can be changed: ask for a longer lease, or say how long a tool is expected to run.",
)
