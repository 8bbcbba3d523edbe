"""What stands in a prompt for what is no text: a picture, a document, the result of a provider's own tool.

A placeholder is the same for the same part and differs for others, so that two requests part where their pictures do.  How
many tokens a model would make of the part is not known here: it counts for the few that the placeholder has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xxhash import xxh3_64_hexdigest

from agentcache.errors import RequestError

_LETTERS = str.maketrans("0123456789abcdef", "klmnopqrstuvwxyz")
"""So that a placeholder is no number that could be taken for an id or a time."""
_ASIDE = ("cache_control",)
"""Fields that say nothing about what a part shows."""


class Placeholders:
    """Parts and tools that are no text, as text."""

    def text(self, part: Mapping[str, Any], refusal: RequestError) -> str:
        kind = part.get("type")
        if not isinstance(kind, str):
            raise refusal
        return placeholder(kind, part)

    def tool(self, tool: Mapping[str, Any], refusal: RequestError) -> dict[str, Any]:
        kind, name = tool.get("type"), tool.get("name")
        if not isinstance(kind, str):
            raise refusal
        rest = {key: value for key, value in tool.items() if key not in ("type", "name", *_ASIDE)}
        return {"name": name if isinstance(name, str) and name else kind, "description": kind, "parameters": rest}


def placeholder(kind: str, part: Mapping[str, Any]) -> str:
    """``[image: qkxwnlvo…]``"""
    shown = {key: value for key, value in part.items() if key not in _ASIDE}
    text = json.dumps(shown, sort_keys=True, default=str)
    return f"[{kind}: {xxh3_64_hexdigest(text.encode()).translate(_LETTERS)}]"
