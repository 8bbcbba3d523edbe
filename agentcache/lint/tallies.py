"""Accounts of defects: many requests may show the same one, and it is reported once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from agentcache.lint.finding import Finding, Location
from agentcache.lint.leaves import Leaf
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, Rule, Suspicion
from agentcache.lint.sessions import Session

_Account = tuple[str, Hashable]


@dataclass(slots=True)
class _Confirmed:
    finding: Finding
    tokens_lost: int = 0
    sessions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Suspected:
    finding: Finding
    value: str
    repeated: bool = False
    sessions: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Explained:
    """A parting of two requests, and what a rule says of it.

    Attributes:
        compared_to: the earlier request.
        other: number of its session.
        char: first character that differs, counted in the rendered string of the request as it is.
        token: first token that differs; ``None``: the token of that character.
        mended: the later request without this defect and those before it.
    """

    rule: Rule
    cause: Cause
    compared_to: str
    other: int
    char: int
    token: int | None
    mended: Prompt


class Tallies:
    """Confirmed and suspected defects by place."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._confirmed: dict[_Account, _Confirmed] = {}
        self._suspected: dict[_Account, _Suspected] = {}

    def confirm(self, explained: Explained, prompt: Prompt, session: Session, lost: int) -> None:
        """One more request, ``prompt``, shows the defect and loses ``lost`` tokens to it."""
        rule, cause = explained.rule, explained.cause
        account = (rule.code, cause.place)
        if account not in self._confirmed:
            finding = Finding(
                code=rule.code,
                name=rule.name,
                severity=cause.severity,
                location=self._location(prompt, cause.edit.leaf, explained.char, explained.token),
                session=session.label,
                compared_to=explained.compared_to,
                before=cause.before,
                after=cause.after,
                tokens_lost_kind="exact",
                message=cause.message,
                help=cause.help,
            )
            self._confirmed[account] = _Confirmed(finding)
        tally = self._confirmed[account]
        tally.tokens_lost += lost
        tally.sessions |= {session.number, explained.other}

    def suspect(self, rule: Rule, suspicion: Suspicion, prompt: Prompt, session: Session) -> None:
        """A request has something at a place that may differ in the next; the same value again clears the place."""
        account = (rule.code, suspicion.place)
        known = self._suspected.get(account)
        if known is not None:
            known.repeated = known.repeated or known.value == suspicion.value
            known.sessions.add(session.number)
            return
        location = self._location(prompt, suspicion.leaf, suspicion.char, None)
        finding = Finding(
            code=rule.code,
            name=rule.name,
            severity=suspicion.severity,
            confidence="suspected",
            location=location,
            session=session.label,
            after=suspicion.after,
            tokens_lost=len(prompt.tokens) - (location.token or 0),
            tokens_lost_kind="upper_bound",
            message=suspicion.message,
            help=suspicion.help,
        )
        self._suspected[account] = _Suspected(finding, suspicion.value, sessions={session.number})

    def findings(self) -> list[Finding]:
        """One a defect.  What was confirmed is not suspected as well."""
        confirmed = [
            tally.finding.model_copy(update={"tokens_lost": tally.tokens_lost, "shared_by": len(tally.sessions)})
            for tally in self._confirmed.values()
        ]
        suspected = [
            tally.finding.model_copy(update={"shared_by": len(tally.sessions)})
            for account, tally in self._suspected.items()
            if account not in self._confirmed and not tally.repeated
        ]
        return confirmed + suspected

    def _location(self, prompt: Prompt, leaf: Leaf, char: int, token: int | None) -> Location:
        """Character ``char`` of a rendered string, in the request as it is."""
        own = prompt.leaf(leaf.path) or leaf
        if token is None:
            token = prompt.token_at(own.start + char)
        in_string = prompt.string_offset(own, char)
        return Location(
            file=prompt.record.file,
            record=prompt.record.line,
            path=own.path,
            char=own.skipped + char if in_string is None else in_string,
            token=token,
            page=token // self._page_size,
        )
