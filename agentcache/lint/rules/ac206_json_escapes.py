"""AC206: the same JSON with other escapes."""

from __future__ import annotations

import json

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import Cause, Rule
from agentcache.lint.texts.writing import Rewritten, escapes_differ, find_rewritten, same_but_for_escapes


def explain(parting: Parting) -> Cause | None:
    """The two requests part in a character that one spells and the other escapes."""
    found = find_rewritten(parting, same_but_for_escapes, escapes_differ)
    if found is None:
        return None
    return found.cause(
        "the same text with other escapes",
        "write JSON in one way: json.dumps(…, ensure_ascii=False) everywhere, or nowhere",
        "safe" if _are_the_same_json(found) else "unsafe",
    )


def _are_the_same_json(found: Rewritten) -> bool:
    try:
        return bool(json.loads(found.before) == json.loads(found.after))
    except (ValueError, RecursionError):
        return False


RULE = Rule(
    code="AC206",
    name="json-escapes",
    what="A text is the same as in the earlier request, but for characters that one writes as they are and the other escapes.",
    why=(
        "é and \\u00e9 are the same to whoever parses the JSON, and other tokens to the model. One part of a program that "
        "escapes and one that does not are enough: a tool's result that is stored and written again, for instance."
    ),
    bad='{"role": "tool", "content": "{\\"city\\": \\"Z\\\\u00fcrich\\"}"} for a result that was sent as "Zürich" before',
    good='{"role": "tool", "content": "{\\"city\\": \\"Zürich\\"}"}: the same text each time',
    fix_safety="Safe where both texts are JSON and say the same; otherwise unsafe. It is written as in the earlier request.",
    precedence=18,
    explain=explain,
)
