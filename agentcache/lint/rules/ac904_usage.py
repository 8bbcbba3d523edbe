"""AC904: answers that do not say what was cached; seen by ``usage_watch``, judged by nobody."""

from __future__ import annotations

from agentcache.lint.rules.base import Rule

RULE = Rule(
    code="AC904",
    name="usage-not-reported",
    what="Answers are recorded in the file, and some have no usage, or a usage that does not say how many tokens were cached.",
    why=(
        "The linter says what a cache could have reused. Only the answer says what was reused. Without it a cache that is "
        "switched off, too small or split over servers looks like one that works. It is told once a file; a file of requests "
        "without answers is not meant."
    ),
    bad='{"messages": [...], "response": {"choices": [...], "usage": null}}, of a stream without stream_options.include_usage',
    good=(
        '{"messages": [...], "response": {"choices": [...], "usage": {"prompt_tokens": 900, "prompt_tokens_details": '
        '{"cached_tokens": 880}}}}'
    ),
    fix_safety=(
        "Nothing to fix in the prompt: ask for usage (include_usage in streams), have the server report cached tokens, and "
        "record it."
    ),
)
