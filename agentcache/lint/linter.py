"""Compares each request with what came before it and lets the rules say why they part.

Two prefix indexes are kept: *actual*, of the requests as they are, and *mended*, of the same requests without the defects
found so far.  What a defect costs is measured, not guessed::

    request ── match actual ──► reused 21            lost to the defect: 1,184 - 21
       └ edit by the rule, render again ── match mended ──► reused 1,184

Mending one defect after another and charging each with what it alone adds counts every lost token once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentcache.errors import ChatTemplateError
from agentcache.lint.finding import Finding
from agentcache.lint.leaves import replace_at, string_at
from agentcache.lint.parting import Parting, part
from agentcache.lint.prefix_index import PrefixIndex
from agentcache.lint.prompt import Prompt, PromptMaker
from agentcache.lint.records import Record, Unreadable
from agentcache.lint.rules import ac903_unreadable
from agentcache.lint.rules.base import Cause, Rule, TextEdit
from agentcache.lint.sessions import Session, SessionBook
from agentcache.lint.share_points import SharePoints
from agentcache.lint.tallies import Explained, Tallies

_MOST_DEFECTS = 32
"""Defects of one request that are told apart; each costs a rendering."""


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """What one request would have reused, served in the order of the file from a cache that keeps everything."""

    file: str
    record: int
    session: str
    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class Report:
    """Everything that a run found.

    Attributes:
        findings: by file, record and token.
        requests: one entry a readable request, in order.
        unreadable: how many records could not be read.
    """

    findings: list[Finding]
    requests: list[RequestFigures]
    sessions: int
    unreadable: int

    @property
    def prompt_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self.requests)

    @property
    def cached_tokens(self) -> int:
        return sum(request.cached_tokens for request in self.requests)


class Linter:
    """Takes records one by one; ``report()`` at the end.

    Args:
        maker: renders requests.
        rules: the rules that judge.
        page_size: tokens a page.
    """

    def __init__(self, maker: PromptMaker, rules: Sequence[Rule], page_size: int) -> None:
        self._maker = maker
        self._rules = rules
        self._page_size = page_size
        self._actual = PrefixIndex(page_size)
        self._mended = PrefixIndex(page_size)
        self._sessions = SessionBook()
        self._share_points = SharePoints(page_size)
        self._tallies = Tallies(page_size)
        self._requests: list[RequestFigures] = []
        self._unreadable: list[Unreadable] = []

    def add_all(self, records: Iterable[Record | Unreadable]) -> None:
        for record in records:
            self.add(record)

    def add(self, record: Record | Unreadable) -> None:
        """Take the next request of the workload."""
        if isinstance(record, Unreadable):
            self._unreadable.append(record)
            return
        try:
            prompt = self._maker.make(record)
        except ChatTemplateError as error:
            self._unreadable.append(Unreadable(record.file, record.line, f"the chat template refuses it: {error}"))
            return
        session = self._sessions.assign(record)
        reuse = self._actual.match(prompt.tokens)
        found = self._mend(prompt, session)
        mended = found[-1].mended if found else prompt
        self._charge(prompt, session, reuse.tokens, found)
        self._suspect(prompt, session)
        if session.last is None:
            self._compare_sessions(prompt, session, None if found else reuse.owner)
        self._requests.append(RequestFigures(record.file, record.line, session.label, len(prompt.tokens), reuse.tokens))
        self._actual.publish(prompt.tokens, session.number)
        self._mended.publish(mended.tokens, session.number)
        self._sessions.keep(session, prompt, mended)

    def report(self) -> Report:
        findings = [
            *self._tallies.findings(),
            *self._share_points.findings(self._rules),
        ]
        if ac903_unreadable.RULE in self._rules:
            findings += [ac903_unreadable.report(record) for record in self._unreadable]
        files = {request.file: None for request in self._requests}
        order = {file: index for index, file in enumerate(files)}
        findings.sort(
            key=lambda f: (order.get(f.location.file, -1), f.location.record or 0, f.location.token or 0, f.code)
        )
        return Report(findings, self._requests, self._sessions.count, len(self._unreadable))

    # -- defects that make two requests part ----------------------------------------------------------------------

    def _mend(self, prompt: Prompt, session: Session) -> list[Explained]:
        """Explain one parting after another, each time making the request as it should have been there."""
        found: list[Explained] = []
        while len(found) < _MOST_DEFECTS:
            mended = found[-1].mended if found else prompt
            explained = self._explain_next(mended, session, found)
            if explained is None:
                break
            found.append(explained)
        return found

    def _explain_next(self, prompt: Prompt, session: Session, found: list[Explained]) -> Explained | None:
        known = {(explained.rule.code, explained.cause.place) for explained in found}
        edits = [explained.cause.edit for explained in found]
        for other, parting in self._partings(prompt, session):
            rule, cause = self._explain(parting)
            if rule is None or cause is None or (rule.code, cause.place) in known:
                continue
            if (mended := self._apply(prompt, cause.edit)) is not None:
                token = None if edits else parting.token
                earlier = parting.earlier.record.reference
                return Explained(rule, cause, earlier, other.number, _char_before(cause, edits), token, mended)
        return None

    def _partings(self, prompt: Prompt, session: Session) -> Iterator[tuple[Session, Parting]]:
        """Where it parts from the session's last request, and from the request that shares most with it."""
        if session.mended is not None and (parting := part(session.mended, prompt, session.number)):
            yield session, parting
        best = self._sessions.get(self._mended.match(prompt.tokens).owner)
        if best is None or best is session or best.mended is None:
            return
        if parting := part(best.mended, prompt, None):
            yield best, parting

    def _explain(self, parting: Parting) -> tuple[Rule, Cause] | tuple[None, None]:
        for rule in self._rules:
            if rule.explain is not None and (cause := rule.explain(parting)) is not None:
                return rule, cause
        return None, None

    def _apply(self, prompt: Prompt, edit: TextEdit) -> Prompt | None:
        """``prompt`` with ``edit`` made in its record, rendered again."""
        start, end = prompt.string_offset(edit.leaf, edit.start), prompt.string_offset(edit.leaf, edit.end)
        if start is None or end is None:
            return None
        record = prompt.record
        old = string_at(record.body, edit.leaf.keys)
        body = replace_at(record.body, edit.leaf.keys, old[:start] + edit.content + old[end:])
        return self._maker.make(replace(record, body=body))

    def _charge(self, prompt: Prompt, session: Session, reused: int, found: list[Explained]) -> None:
        """Write what each defect adds to the loss to its account."""
        for explained in found:
            now = self._mended.match(explained.mended.tokens).tokens
            self._tallies.confirm(explained, prompt, session, max(0, now - reused))
            reused = max(reused, now)

    def _suspect(self, prompt: Prompt, session: Session) -> None:
        for rule in self._rules:
            if rule.suspect is not None:
                for suspicion in rule.suspect(prompt):
                    self._tallies.suspect(rule, suspicion, prompt, session)

    # -- where sessions part --------------------------------------------------------------------------------------

    def _compare_sessions(self, prompt: Prompt, session: Session, owner: int | None) -> None:
        """Note where a session's first request parts from the session that shares most with it, ``owner``."""
        other = self._sessions.get(owner)
        parting = None
        if other is not None and other is not session and other.last is not None:
            parting = part(other.last, prompt, None)
        self._share_points.add(prompt, session, other, parting)


def _char_before(cause: Cause, edits: Sequence[TextEdit]) -> int:
    """The cause's character, in the string as it was before ``edits``."""
    char = cause.char
    for edit in reversed(edits):
        if edit.leaf.keys == cause.edit.leaf.keys and char >= edit.start + len(edit.content):
            char -= len(edit.content) - (edit.end - edit.start)
    return char
