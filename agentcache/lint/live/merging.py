"""The same defect shows in many requests; it is told once, with what all of them lost."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from agentcache.lint.finding import Finding, LossKind
from agentcache.lint.live.server import Row

_KINDS: tuple[LossKind, ...] = ("exact", "estimate", "upper_bound")
"""The least sure of several figures says what their sum is."""
_RUNTIME = "AC8"
_SLOT = 32
"""Characters within which two places are one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One defect.

    Attributes:
        finding: as it was found last.
        rows: requests that show it, the newest first.
        lost: tokens that each of them lost; ``None`` where that is not known.
    """

    finding: Finding
    rows: Sequence[Row]
    lost: Sequence[int | None]
    kinds: frozenset[LossKind]

    def told(self, url: str, requests: int, **words: str) -> Finding:
        """One finding for all of them.

        Args:
            requests: how many were looked at.
            words: of the finding, where others fit better.
        """
        known = [lost for lost in self.lost if lost is not None]
        count = len(self.rows)
        message = words.get("message", self.finding.message)
        sessions = {row.session for row in self.rows if row.session is not None}
        return self.finding.model_copy(
            update={
                **words,
                "location": self.finding.location.model_copy(update={"file": url, "record": None}),
                "session": next(iter(sessions)) if len(sessions) == 1 else None,
                "tokens_lost": sum(known) if known else None,
                "tokens_lost_kind": max(self.kinds, key=_KINDS.index) if known and self.kinds else None,
                "message": f"{message} ({count} of {requests} requests, the latest {self.rows[0].request_id})",
            }
        )


def merged(rows: Iterable[Row]) -> list[Seen]:
    """Defects of ``rows``, those that were found last first.  What is legitimate is none.

    Args:
        rows: the newest first.
    """
    groups: dict[Hashable, list[list[tuple[Row, Finding]]]] = {}
    for row in rows:
        for finding in row.findings:
            if finding.verdict != "legitimate":
                _put(groups.setdefault(_place(finding), []), row, finding)
    return [_seen(group) for near in groups.values() for group in near]


def _put(groups: list[list[tuple[Row, Finding]]], row: Row, finding: Finding) -> None:
    """Into the group of the same slot: two clocks part at the first digit that differs, another one each time."""
    for group in groups:
        one, other = group[0][1].location.char, finding.location.char
        runtime = finding.code.startswith(_RUNTIME)
        if runtime or one == other or (one is not None and other is not None and abs(one - other) <= _SLOT):
            group.append((row, finding))
            return
    groups.append([(row, finding)])


def _place(finding: Finding) -> Hashable:
    """What the cache lost has no place in the prompt; everything else is in one string."""
    return finding.code if finding.code.startswith(_RUNTIME) else (finding.code, finding.location.path)


def _seen(group: Sequence[tuple[Row, Finding]]) -> Seen:
    kinds = {found.tokens_lost_kind for _, found in group if found.tokens_lost_kind is not None}
    rows = {row.request_id: row for row, _ in group}
    return Seen(group[0][1], tuple(rows.values()), tuple(found.tokens_lost for _, found in group), frozenset(kinds))
