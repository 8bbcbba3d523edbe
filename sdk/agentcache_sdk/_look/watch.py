"""A client's look and its warnings, together: each defect is said once, whoever saw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentcache_sdk._look.look import ClientLook, Glance
from agentcache_sdk.cache_warnings import CallSite, WarningSink
from agentcache_sdk.types import Finding, Turn

_BREAKS = "12346"
"""Groups of codes that name the same thing, a prompt that is not what it was, from different sides."""


@dataclass(frozen=True)
class Watch:
    """Of a client's stateless requests."""

    sink: WarningSink
    look: ClientLook

    def glance(self, body: Mapping[str, Any], site: CallSite) -> Glance:
        """A request about to be sent, looked at and warned about.

        Raises:
            CacheWarning: when warnings are errors; the request is not remembered then.
        """
        glance = self.look.glance(body["messages"], body.get("tools"), body)
        self.sink.emit_all(glance.findings, site)
        return glance

    def answered(self, glance: Glance, turn: Turn, site: CallSite) -> None:
        """Warn about what the answer says or confirms, less what was said before it was sent."""
        sure = glance.ended(turn)
        own = [finding for finding in (*glance.findings, *sure) if self.sink.concerns(finding)]
        told = [finding for finding in turn.cache.findings if not any(_same(finding, mine) for mine in own)]
        self.sink.emit_all([*sure, *told], site)


def _same(theirs: Finding, mine: Finding) -> bool:
    """Whether the server saw what the client saw; the client has both texts, so its name for it is kept."""
    if theirs.code == mine.code and theirs.location.path == mine.location.path:
        return True
    both = theirs.code[2:3], mine.code[2:3]
    if mine.confidence != "confirmed" or not all(group and group in _BREAKS for group in both):
        return False
    return theirs.code == mine.code or _overlap(theirs.location.path, mine.location.path)


def _overlap(one: str | None, other: str | None) -> bool:
    """``messages[0]`` and ``messages[0].content``, but not ``messages[1]`` and ``messages[10]``."""
    if not one or not other:
        return False
    short, long = sorted((one, other), key=len)
    return long == short or (long.startswith(short) and long[len(short)] in ".[")
