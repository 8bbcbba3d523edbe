"""Which messages of two histories are the same, and which were taken out, put in or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from agentcache.lint.prompt import Prompt

_REACH = 64
"""Messages that may be taken out or put in, at most, for two histories still to be compared."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """::

        earlier:  [ at messages, the same in both )[ gone messages )[ again: the same again )…
        later:    [ at messages, the same in both )[ new messages  )[ again: the same again )…

    Attributes:
        again: how many messages follow that are the same again.
        again_chars: the text in them.
        meets: a reply is among them: it is the same conversation that goes on (two may well ask the same).
        moved: the first message that is gone stands further behind in the later request.
    """

    at: int
    gone: int
    new: int
    again: int
    again_chars: int
    meets: bool
    moved: bool

    @property
    def appends_only(self) -> bool:
        """The later history is the earlier one and more, or its beginning."""
        return not self.gone and not self.new


def align(earlier: Prompt, later: Prompt) -> Alignment:
    """Where two histories part, and where the same messages come again."""
    mine, theirs = earlier.digests, later.digests
    at = _run(mine, theirs)
    if at in (len(mine), len(theirs)):
        return Alignment(at, 0, 0, 0, 0, meets=False, moved=False)
    chars = [_chars(message) for message in later.messages]
    best = (0, 0, 0, (1, 1))  # characters again, fewest messages between, fewest new, (gone, new)
    for gone, new in _meetings(mine[at : at + _REACH], theirs[at : at + _REACH]):
        run = _run(mine[at + gone :], theirs[at + new :])
        text = sum(chars[at + new : at + new + run])
        best = max(best, (text, -(gone + new), -new, (gone, new))) if run else best
    gone, new = best[3]
    again = _run(mine[at + gone :], theirs[at + new :])
    behind = later.messages[at + new : at + new + again]
    return Alignment(
        at,
        gone,
        new,
        again,
        best[0] if again else 0,
        meets=any(message["role"] == "assistant" for message in behind),
        moved=mine[at] in theirs[at:],
    )


def _meetings(mine: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
    """How many messages could be skipped in each so that the next are the same."""
    places: dict[int, int] = {}
    for index, digest in enumerate(theirs):
        places.setdefault(digest, index)
    meetings = [(gone, places[digest]) for gone, digest in enumerate(mine) if digest in places]
    if len(mine) > 1 and len(theirs) > 1 and mine[1] == theirs[1]:
        meetings.append((1, 1))
    return meetings


def _run(mine: Sequence[int], theirs: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=False)))


def _chars(message: dict[str, object]) -> int:
    calls = message.get("tool_calls")
    return len(str(message.get("content") or "")) + (len(str(calls)) if calls else 0)
