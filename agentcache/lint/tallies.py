"""Accounts of defects: many requests may show the same one, and it is reported once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from agentcache.lint.finding import Finding, Location
from agentcache.lint.leaves import Leaf
from agentcache.lint.prompt import Prompt
from agentcache.lint.records import Keys
from agentcache.lint.rules.base import Cause, NoEdit, Observation, Rule, TextEdit
from agentcache.lint.sessions import Session

Account = tuple[str, Hashable]
_MOST = 5_000
"""Places that are told apart; what more there is of a rule is counted together."""


@dataclass(slots=True)
class _Confirmed:
    finding: Finding
    tokens_lost: int = 0
    requests: int = 0
    sessions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Observed:
    finding: Finding
    value: str
    repeated: bool = False
    sessions: set[int] = field(default_factory=set)

    @property
    def cleared(self) -> bool:
        return self.repeated and self.finding.confidence == "suspected"


@dataclass(frozen=True, slots=True)
class Explained:
    """A parting of two requests, and what a rule says of it.

    Attributes:
        compared_to: the earlier request.
        other: number of its session.
        char: as ``Cause.char``, but in the request as it is, without the edits before this one.
        token: first token that differs; ``None``: the token of that character.
        at: the token at which they part, in ``prompt``.
        prompt: the later request without the defects that were explained before this one.
        mended: the same without this one as well.
    """

    rule: Rule
    cause: Cause
    compared_to: str
    other: int
    char: int | None
    token: int | None
    at: int
    prompt: Prompt
    mended: Prompt

    @property
    def account(self) -> Account:
        return self.rule.code, self.cause.place


class Tallies:
    """Confirmed and suspected defects by place."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._confirmed: dict[Hashable, _Confirmed] = {}
        self._observed: dict[Hashable, _Observed] = {}

    def confirm(self, explained: Explained, prompt: Prompt, session: Session, lost: int) -> None:
        """One more request, ``prompt``, shows the defect and loses ``lost`` tokens to it."""
        rule, cause = explained.rule, explained.cause
        account = self._open(self._confirmed, explained.account)
        if account not in self._confirmed:
            kind = cause.edit.kind if isinstance(cause.edit, NoEdit) else "exact"
            finding = Finding(
                code=rule.code,
                name=rule.name,
                severity=cause.severity,
                confidence=cause.confidence,
                verdict=cause.verdict,
                location=self._location(prompt, explained),
                session=session.label,
                compared_to=explained.compared_to,
                before=cause.before,
                after=cause.after,
                tokens_lost_kind=kind,
                fix=cause.fix,
                message=cause.message,
                help=cause.help,
            )
            self._confirmed[account] = _Confirmed(finding)
        tally = self._confirmed[account]
        tally.tokens_lost += lost
        tally.requests += 1
        tally.sessions |= {session.number, explained.other}

    def add(self, account: Hashable, lost: int, session: Session) -> None:
        """A request that does not show the defect loses ``lost`` tokens because one before it did."""
        if (tally := self._confirmed.get(account)) is not None:
            tally.tokens_lost += lost
            tally.sessions.add(session.number)

    def observe(self, rule: Rule, seen: Observation, prompt: Prompt, session: Session) -> Account:
        """A request has something at a place.  Of what is only suspected to differ in the next one, the same value again
        clears the place."""
        account = self._open(self._observed, (rule.code, seen.place))
        known = self._observed.get(account)
        if known is not None:
            known.repeated = known.repeated or known.value == seen.value
            known.sessions.add(session.number)
            return account
        location = self._place(prompt, seen.keys, seen.char, None)
        lost = len(prompt.tokens) - (location.token or 0) if seen.tokens_lost is None else seen.tokens_lost
        finding = Finding(
            code=rule.code,
            name=rule.name,
            severity=seen.severity,
            confidence=seen.confidence,
            verdict=seen.verdict,
            location=location,
            session=session.label,
            after=seen.after,
            tokens_lost=lost,
            tokens_lost_kind=seen.tokens_lost_kind,
            fix=seen.fix,
            message=seen.message,
            help=seen.help,
        )
        self._observed[account] = _Observed(finding, seen.value, sessions={session.number})
        return account

    def repeat(self, accounts: Iterable[Account], session: Session) -> None:
        """A request has the same values at these places as an earlier one."""
        for account in accounts:
            if (known := self._observed.get(account)) is not None:
                known.repeated = True
                known.sessions.add(session.number)

    def findings(self) -> list[Finding]:
        """One a defect.  What was confirmed is not suspected as well, and what cost nothing is none."""
        confirmed = [
            tally.finding.model_copy(update={"tokens_lost": tally.tokens_lost, "shared_by": len(tally.sessions)})
            for tally in self._confirmed.values()
            if tally.tokens_lost
        ]
        known = {(finding.code, finding.location.file, finding.location.path) for finding in confirmed}
        observed = [
            tally.finding.model_copy(update={"shared_by": len(tally.sessions)})
            for tally in self._observed.values()
            if not tally.cleared
            and (tally.finding.code, tally.finding.location.file, tally.finding.location.path) not in known
        ]
        return confirmed + observed

    @staticmethod
    def _open(accounts: Mapping[Hashable, object], account: Account) -> Account:
        if account in accounts or len(accounts) < _MOST:
            return account
        return account[0], "more"

    def _location(self, prompt: Prompt, explained: Explained) -> Location:
        edit = explained.cause.edit
        if not isinstance(edit, TextEdit):
            return self._place(prompt, edit.keys, explained.char, explained.token)
        own = prompt.leaf_of(edit.leaf.keys) or edit.leaf
        char = explained.char or 0
        token = prompt.token_at(own.start + char) if explained.token is None else explained.token
        in_string = prompt.string_offset(own, char)
        return self._place(prompt, own.keys, own.skipped + char if in_string is None else in_string, token)

    def _place(self, prompt: Prompt, keys: Keys, char: int | None, token: int | None) -> Location:
        """
        Args:
            char: of the string at ``keys`` as the record has it.
            token: ``None``: the token of that character, as nearly as it can be told.
        """
        leaf = _nearest(prompt, keys) if token is None else None
        if leaf is not None:
            inside = max(0, (char or 0) - leaf.skipped) if leaf.keys == keys else 0
            token = prompt.token_at(min(leaf.start + inside, leaf.end))
        place = prompt.record.places.find(keys, char)
        token = token or 0
        return Location(
            file=prompt.record.file,
            record=place.line or prompt.record.line,
            path=place.json_path,
            char=place.char,
            token=token,
            page=token // self._page_size,
        )


def _nearest(prompt: Prompt, keys: Keys) -> Leaf | None:
    """The string of these keys, or the first one inside what they name."""
    return next((leaf for leaf in prompt.leaves if leaf.keys[: len(keys)] == keys), None)
