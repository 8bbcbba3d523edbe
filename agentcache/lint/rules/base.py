"""What a rule is: its page in the manual, and the functions by which it judges.

A rule is one file with one ``RULE``.  Which of the functions it gives says what it looks at:

* ``explain`` a parting: why do these two requests stop being equal here?  It answers with the edit that makes the later
  one as it should have been.  The linter renders that, matches it against the cache again, and so measures the loss.
* ``inspect`` a prompt: what in this single request is wrong, or looks as if it will differ next time?
* ``judge`` a share point: what is wrong with the place where different sessions stop being equal?

Rules without any of them are found elsewhere (by the template check, in Python sources, by a running server) and have
their page here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Literal

from agentcache.lint.finding import Confidence, Fix, LossKind, Severity, Verdict
from agentcache.lint.leaves import Leaf
from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.records import Body, Keys

NO_FIX = Fix()
"""Advice for a person."""


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replace characters ``[start, end)`` of a rendered string by ``content``."""

    leaf: Leaf
    start: int
    end: int
    content: str


@dataclass(frozen=True, slots=True)
class BodyEdit:
    """Take ``body`` in place of the later request's (of which it is a changed copy).

    Attributes:
        keys: where the change is.
        puts_back: with text that the later request leaves out: that much of it nobody computed again.
    """

    body: Body
    keys: Keys
    puts_back: bool = False


@dataclass(frozen=True, slots=True)
class NoEdit:
    """Nothing in the request can be changed so that it would not part here (the template does it).

    Attributes:
        keys: the part of the request that the text before the parting belongs to.
        tokens_lost: how many tokens a cache would have reused otherwise, at most.
    """

    keys: Keys
    tokens_lost: int
    kind: LossKind = "upper_bound"


Edit = TextEdit | BodyEdit | NoEdit


@dataclass(frozen=True, slots=True)
class Cause:
    """Why two requests part, by one rule.

    Attributes:
        place: equal for requests that show the same defect, so that it is reported once.
        edit: makes the later request as it should have been.
        char: first character that differs, counted in the rendered string (``TextEdit``) or in the string at the edit's keys;
            ``None`` where no string differs.
        before, after: what the two requests say there.
        fix: how the file can be mended, if it can.
    """

    place: Hashable
    edit: Edit
    char: int | None
    severity: Severity
    before: str
    after: str
    message: str
    help: str
    verdict: Verdict = "waste"
    confidence: Confidence = "confirmed"
    fix: Fix = NO_FIX


@dataclass(frozen=True, slots=True)
class Observation:
    """Something in one request that is wrong, or (``suspected``) will probably differ in the next.

    Attributes:
        place: equal for requests that have the same thing at the same place; it is reported once.
        value: what a suspected slot holds; a request that holds the same there speaks against the suspicion.
        keys: the string that it is in, or another part of the body.
        char: where it starts in that string as the record has it.
        tokens_lost: ``None``: of a suspected slot, all tokens behind it.
    """

    place: Hashable
    keys: Keys
    char: int | None
    severity: Severity
    after: str
    message: str
    help: str
    value: str = ""
    confidence: Confidence = "suspected"
    verdict: Verdict = "waste"
    tokens_lost: int | None = None
    tokens_lost_kind: LossKind = "upper_bound"
    fix: Fix = NO_FIX


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
        fork: a reply stands before it: the sessions are branches of one conversation.
    """

    tokens: int
    page_size: int
    path: str
    char: int | None
    ends_string: bool
    sessions: int
    fork: bool = False

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
        name: two or three words with hyphens, the stable name.
        what: what it reports.
        why: why that costs something.
        bad, good: the same request with and without it.
        fix_safety: what a fix would change, and whether it can be applied without looking.
        precedence: of several rules that can explain a parting the one with the lowest number does.
        optional: off unless it is selected: what it reports is true and nothing is wrong with it.
        looks_at: what ``inspect`` reads: the ``head`` (system text and tools; it is asked once for each), or also the
            ``messages`` from ``prompt.first_new`` on (it is asked for every request).
    """

    code: str
    name: str
    what: str
    why: str
    bad: str
    good: str
    fix_safety: str
    precedence: int = 50
    optional: bool = False
    looks_at: Literal["head", "messages"] = "head"
    explain: Callable[[Parting], Cause | None] | None = None
    inspect: Callable[[Prompt], Iterable[Observation]] | None = None
    judge: Callable[[SharePoint], Judgement | None] | None = None
