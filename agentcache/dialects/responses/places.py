"""Where a message stands in the body of a response."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentcache.dialects.joined import Piece

_PART = re.compile(r"\.(content|reasoning_content|tool_calls(?:\[\d+\])?)")


@dataclass(frozen=True)
class Place:
    """In one item, or in several.

    Attributes:
        path: of the first of them.
        parts: paths of its ``content``, ``reasoning_content``, ``tool_calls[0]``, ``tool_calls[1]`` ... where those are
            fields of the body.
        pieces: the strings of the body that ``content`` and ``reasoning_content`` were joined of.
    """

    path: str
    parts: Mapping[str, str] = field(default_factory=dict)
    pieces: Mapping[str, Sequence[Piece]] = field(default_factory=dict)

    def of(self, rest: str) -> str:
        """Of what ``rest`` is in the message."""
        part = _PART.match(rest)
        if part is None:
            return self.path
        return self.parts.get("tool_calls[0]" if part[1] == "tool_calls" else part[1], self.path)
