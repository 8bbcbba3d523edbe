"""What findings are made of: a place in a request, and the sentences that belong to a code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentcache.lint.finding import Location
from agentcache.server.findings.codes import HELP, NAMES
from agentcache.server.findings.said import SaidReplies


@dataclass(frozen=True, slots=True)
class Spot:
    """A token of a prompt, and where it comes from.

    Attributes:
        char: in the text at ``path``, where that is known.
    """

    token: int
    path: str | None = None
    char: int | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """What all findings of one request share.

    Attributes:
        session: the session's id; ``None`` for a request without one.
        root: its namespace.
        said: replies that were generated here.
    """

    page_size: int
    session: str | None = None
    root: bytes = b""
    said: SaidReplies | None = None

    def of(self, code: str, spot: Spot) -> dict[str, Any]:
        """Fields of a ``Finding``: what follows from its code and its place."""
        location = Location(
            file="request" if self.session is None else f"sessions/{self.session}",
            path=spot.path,
            char=spot.char,
            token=spot.token,
            page=spot.token // self.page_size,
        )
        fields = {"code": code, "name": NAMES[code], "location": location, "session": self.session}
        return {**fields, "help": HELP.get(code)}


def lost(tokens: int, kind: str) -> Mapping[str, Any]:
    """The fields that say what a finding cost."""
    return {"tokens_lost": max(0, tokens), "tokens_lost_kind": kind}
