"""What a rule is: its page in the manual, and the functions by which it judges.

A rule is one file with one ``RULE``.  Which of the three functions it gives says what it looks at:

* ``explain`` a parting: why do these two requests stop being equal here?  It answers with the edit that makes the later
  one as it should have been.  The linter renders that, matches it against the cache again, and so measures the loss.
* ``suspect`` a prompt: what in this single request looks as if it will differ next time?
* ``judge`` a share point: what is wrong with the place where different sessions stop being equal?
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from agentcache.lint.finding import Severity
from agentcache.lint.leaves import Leaf
from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replace characters ``[start, end)`` of a rendered string by ``content``."""

    leaf: Leaf
    start: int
    end: int
    content: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Why two requests part, by one rule.

    Attributes:
        place: equal for requests that show the same defect, so that it is reported once.
        edit: makes the later request as it should have been.
        char: first character that differs, counted in the rendered string.
        before, after: what the two requests say there.
    """

    place: Hashable
    edit: TextEdit
    char: int
    severity: Severity
    before: str
    after: str
    message: str
    help: str


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Something in one request that will probably differ in the next.

    Attributes:
        place: equal for requests that have the same slot at the same place.
        value: what the slot holds; a request that holds the same there speaks against the suspicion.
        char: where it starts in the rendered string ``leaf``.
    """

    place: Hashable
    value: str
    leaf: Leaf
    char: int
    severity: Severity
    after: str
    message: str
    help: str


@dataclass(frozen=True, slots=True)
class SharePoint:
    """A place up to which two or more sessions have the same prompt, and where they part.

    ::

        page:      |   0   |   1   |   2   |
        session A: [ ===== shared ==== )aaaaa…
        session B: [ ===== shared ==== )bbb…          tokens = 19, page_size = 8, tail = 3

    Attributes:
        tokens: how many tokens are shared.
        path: the last string that is shared, wholly or up to ``char`` (``None`` when the template changed it).
        ends_string: the string is shared wholly; what differs begins behind it.
        sessions: how many sessions have all of the shared tokens.
    """

    tokens: int
    page_size: int
    path: str
    char: int | None
    ends_string: bool
    sessions: int

    @property
    def tail(self) -> int:
        """Shared tokens beyond the last page boundary."""
        return self.tokens % self.page_size


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is wrong with a share point.

    Attributes:
        tokens_lost: at most, over all sessions.
    """

    severity: Severity
    tokens_lost: int
    message: str
    help: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        code: ``AC`` and three digits; the stable interface.
        name: a word or two, the stable name.
        what: what it reports.
        why: why that costs something.
        bad, good: the same request with and without it.
        fix_safety: what a fix would change, and whether it can be applied without looking.
    """

    code: str
    name: str
    what: str
    why: str
    bad: str
    good: str
    fix_safety: str
    explain: Callable[[Parting], Cause | None] | None = None
    suspect: Callable[[Prompt], Iterable[Suspicion]] | None = None
    judge: Callable[[SharePoint], Judgement | None] | None = None
