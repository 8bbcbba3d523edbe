"""Why a prompt was not cached further than it was."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Miss:
    """The reason, and the first token that it concerns.

    ``code`` is one of: ``cold`` (nothing like it was seen), ``below_page`` (all that is left is shorter than a page),
    ``diverged`` (the cache knows this beginning with another continuation), ``evicted`` (the page was here and made
    room), ``disabled`` (the prefix cache is off, or the request asks for figures that need every position computed).
    """

    code: str
    at_token: int
    detail: str
    message_index: int | None = None
    path: str | None = None
    was: str | None = None
    now: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
