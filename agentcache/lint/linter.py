"""Compares each request with what came before it and lets the rules say why they part.

Two prefix indexes are kept: *actual*, of the requests as they are, and *mended*, of those that had defects as they would be
without them.  What a defect costs is measured, not guessed::

    request ── match actual ──► reused 21            lost to the defect: 1,184 - 21
       └ edit by the rule, render again ── match both ──► reused 1,184

Mending one defect after another and charging each with what it alone adds counts every lost token once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from xxhash import xxh3_64_intdigest

from agentcache.errors import RequestError
from agentcache.lint.mending import Mender
from agentcache.lint.parting import part
from agentcache.lint.prefix_index import MAX_TOKENS, PrefixIndex, Reuse
from agentcache.lint.prompt import SHARED_ROLES, Prompt, PromptMaker
from agentcache.lint.records import Record, Unreadable
from agentcache.lint.report import PageShare, Report, RequestFigures, legitimate_losses
from agentcache.lint.rules import RULES, ac903_unreadable
from agentcache.lint.rules.base import BodyEdit, NoEdit, Rule
from agentcache.lint.sessions import Session, SessionBook
from agentcache.lint.share_points import SharePoints
from agentcache.lint.tallies import Account, Explained, Tallies
from agentcache.lint.usage_watch import UsageWatch

_KNOWN_HEADS = 10_000
_MOST_UNREADABLE = 1_000
"""Records that are named; what more there is of them is counted."""


_FOREIGN = (
    "its recorded token ids are not what this tokenizer and template make of its messages: name the model that was served "
    "with --tokenizer, or its template with --template; requests of this file that have ids were left out"
)


class Repairs(Protocol):
    """Hears how each request would have to read."""

    def note(self, explained: Explained, lost: int) -> None:
        """``explained.prompt`` becomes ``explained.mended`` by its cause's edit, and that saves ``lost`` tokens."""
        ...  # pragma: no cover


class Linter:
    """Takes records one by one; ``report()`` at the end.

    All rules look at every request, whatever is selected: a defect that is not to be told still hides what is behind it.

    Args:
        maker: renders requests.
        rules: those whose findings are reported.
        page_sizes: tokens a page; findings are at the first.
        keep_requests: keep figures of each request; a hundred thousand take some 20 MB.
        max_tokens: tokens that each index remembers.
        repairs: hears of every defect that is found.

    Raises:
        ValueError: ``maker`` cuts pages of another size than the first one.
    """

    def __init__(
        self,
        maker: PromptMaker,
        rules: Sequence[Rule],
        page_sizes: Sequence[int] | int,
        *,
        keep_requests: bool = True,
        max_tokens: int = MAX_TOKENS,
        repairs: Repairs | None = None,
    ) -> None:
        sizes = (page_sizes,) if isinstance(page_sizes, int) else tuple(page_sizes)
        if maker.page_size != sizes[0]:
            raise ValueError(
                f"prompts are cut into pages of {maker.page_size} tokens, findings are asked for at {sizes[0]}"
            )
        self._maker = maker
        self._rules = frozenset(rule.code for rule in rules)
        self._judges = rules
        self._inspectors = [rule for rule in RULES if rule.inspect]
        self._keep_requests = keep_requests
        self._repairs = repairs
        self._actual = PrefixIndex(sizes[0], max_tokens)
        self._mended = PrefixIndex(sizes[0], max_tokens)
        self._others = [PrefixIndex(size, max_tokens) for size in sizes[1:]]
        self._shares = tuple(PageShare(size) for size in sizes)
        self._sessions = SessionBook()
        self._mender = Mender(maker, self._sessions, self._match)
        self._share_points = SharePoints(sizes[0])
        self._tallies = Tallies(sizes[0])
        self._usage = UsageWatch()
        self._heads: OrderedDict[int, list[Account]] = OrderedDict()
        self._files: dict[str, int] = {}
        self._requests: list[RequestFigures] = []
        self._count = 0
        self._prompt_tokens = 0
        self._unreadable: list[Unreadable] = []
        self._num_unreadable = 0
        self._ignored: dict[tuple[str, int, str], bool] = {}
        self._foreign: dict[str, int] = {}
        """Files whose recorded ids another tokenizer or template made -> the first such record."""

    def add_all(self, records: Iterable[Record | Unreadable]) -> None:
        for record in records:
            self.add(record)

    def add(self, record: Record | Unreadable) -> None:
        """Take the next request of the workload."""
        self._files.setdefault(record.file, len(self._files))
        if isinstance(record, Unreadable):
            self._refuse(record)
            return
        try:
            prompt = self._maker.make(record)
        except RequestError as error:
            self._refuse(Unreadable(record.file, record.line, f"the chat template refuses it: {error}"))
            return
        if _is_foreign(prompt):
            self._foreign.setdefault(record.file, record.line)
        if record.prompt_ids is not None and record.file in self._foreign:
            if self._foreign[record.file] == record.line:
                self._refuse(Unreadable(record.file, record.line, _FOREIGN))
            return
        self._usage.add(record)
        self._ignored.update(dict.fromkeys(((record.file, record.line, code) for code in record.ignored), False))
        reuse = self._actual.match(prompt.tokens)
        session = self._sessions.assign(record, self._continued(prompt, reuse))
        if session.last is not None:
            prompt = replace(prompt, first_new=_common(session.last, prompt))
        self._count_in(prompt, session, reuse)
        found = self._mender.mend(prompt, session)
        self._charge(prompt, session, reuse.tokens, found)
        self._inspect(prompt, session)
        self._compare_sessions(prompt, session, None if found else reuse.owner)
        self._keep(prompt, found, session)

    def report(self) -> Report:
        findings = [
            *self._tallies.findings(),
            *self._share_points.findings(self._judges),
            *self._usage.findings(),
        ]
        legitimate = legitimate_losses(findings)
        findings += [ac903_unreadable.report(record) for record in self._unreadable]
        if (more := self._num_unreadable - len(self._unreadable)) and self._unreadable:
            last = self._unreadable[-1]
            findings.append(ac903_unreadable.report(replace(last, reason=f"{more:,} more records cannot be read")))
        findings = [finding for finding in findings if finding.code in self._rules]
        findings.sort(
            key=lambda f: (self._files.get(f.location.file, -1), f.location.record or 0, f.location.token or 0, f.code)
        )
        for share, index in zip(self._shares, (self._actual, *self._others), strict=True):
            share.forgotten_pages = index.forgotten
        return Report(
            findings,
            self._requests,
            self._count,
            self._sessions.count,
            self._num_unreadable,
            self._prompt_tokens,
            self._shares,
            legitimate,
            self._ignored,
        )

    def _refuse(self, record: Unreadable) -> None:
        self._num_unreadable += 1
        if len(self._unreadable) < _MOST_UNREADABLE:
            self._unreadable.append(record)

    # -- what a warm cache would serve ----------------------------------------------------------------------------

    def _count_in(self, prompt: Prompt, session: Session, reuse: Reuse) -> None:
        record = prompt.record
        self._count += 1
        self._prompt_tokens += len(prompt.tokens)
        if self._keep_requests:
            figures = RequestFigures(record.file, record.line, session.label, len(prompt.tokens), reuse.tokens)
            self._requests.append(figures)
        self._shares[0].cached_tokens += reuse.tokens
        self._shares[0].whole_page_tokens += reuse.whole

    def _keep(self, prompt: Prompt, found: list[Explained], session: Session) -> None:
        """What the cache holds from now on, the reply included where the file says it.

        It would hold the request with one defect less as well: a defect that stays the same from then on costs only once.
        """
        for explained in found[:-1]:
            self._mended.publish(explained.mended.tokens, session.number)
        mended = found[-1].mended if found else prompt
        answer = self._maker.answer(prompt)
        held = prompt if answer is None else answer
        self._actual.publish(prompt.tokens, session.number)
        if answer is not None:
            self._actual.publish(answer.tokens, session.number)
        for index, share in zip(self._others, self._shares[1:], strict=True):
            tokens = self._maker.cut(prompt, index.page_size)
            reuse = index.match(tokens)
            share.cached_tokens += reuse.tokens
            share.whole_page_tokens += reuse.whole
            index.publish(self._maker.cut(held, index.page_size), session.number)
        mended_answer = answer
        if mended is not prompt:
            mended_answer = self._maker.answer(mended)
            self._mended.publish((mended_answer or mended).tokens, session.number)
        if session.last is None:
            self._mender.keep(mended, session)
        self._sessions.keep(session, prompt, mended, mended_answer)

    def _match(self, prompt: Prompt) -> Reuse:
        """What it finds among the requests as they are and as they should have been."""
        return max(self._mended.match(prompt.tokens), self._actual.match(prompt.tokens), key=lambda reuse: reuse.tokens)

    def _continued(self, prompt: Prompt, reuse: Reuse) -> Session | None:
        """The session whose latest prompt this one begins with."""
        session = self._sessions.get(reuse.owner)
        if session is None or session.last is None or not prompt.text.startswith(session.last.text):
            return None
        return session

    # -- defects ---------------------------------------------------------------------------------------------------

    def _charge(self, prompt: Prompt, session: Session, reused: int, found: list[Explained]) -> None:
        """Write what each defect adds to the loss to its account.

        A request without defects may find less than it would had those before it had none: that is their loss as well.
        """
        if not found:
            best = self._match(prompt)
            owner = self._sessions.get(best.owner)
            account = (None if owner is None else owner.blamed) or session.blamed
            if account is not None and best.tokens > reused:
                self._tallies.add(account, best.tokens - reused, session)
        left = len(prompt.tokens) - reused  # no more than this was computed again, however long the mended request is
        for explained in found:
            edit = explained.cause.edit
            if isinstance(edit, NoEdit):
                lost = explained.at + edit.tokens_lost - max(explained.at, reused)
            else:
                now = self._match(explained.mended).tokens
                lost = now - reused
                if isinstance(edit, BodyEdit) and edit.puts_back:
                    lost -= max(0, len(explained.mended.tokens) - len(explained.prompt.tokens))
                reused = max(reused, now)
            lost = max(0, min(lost, left))
            left -= lost
            if self._is_ignored(prompt.record, explained.rule.code):
                continue
            self._tallies.confirm(explained, prompt, session, lost)
            session.accounts.add(explained.account)
            elsewhere = explained.mended.tokens.root != explained.prompt.tokens.root
            if lost or not elsewhere:  # what is asked of another model by right shares nothing by right
                session.blamed = explained.account
            if self._repairs is not None:
                self._repairs.note(explained, lost)

    def _is_ignored(self, record: Record, code: str) -> bool:
        for prefix in record.ignored:
            if code.startswith(prefix):
                self._ignored[record.file, record.line, prefix] = True
                return True
        return False

    def _inspect(self, prompt: Prompt, session: Session) -> None:
        """Let the rules look at what is new in the request."""
        head = _head_of(prompt)
        accounts = self._heads.pop(head, None)
        if accounts is not None:
            self._tallies.repeat(accounts, session)
        seen: list[Account] = []
        for rule in self._inspectors:
            if rule.inspect is None or (accounts is not None and rule.looks_at == "head"):
                continue
            for observation in rule.inspect(prompt):
                if not self._is_ignored(prompt.record, rule.code):
                    account = self._tallies.observe(rule, observation, prompt, session)
                    seen += [account] if rule.looks_at == "head" else []
        self._heads[head] = seen if accounts is None else accounts
        if len(self._heads) > _KNOWN_HEADS:
            self._heads.popitem(last=False)

    # -- where sessions part --------------------------------------------------------------------------------------

    def _compare_sessions(self, prompt: Prompt, session: Session, owner: int | None) -> None:
        """Note where a session's first request parts from the session that shares most with it, ``owner``, and where a
        later one parts from what was said before it."""
        other = self._sessions.get(owner)
        if session.last is not None:
            if other is session and (parting := part(session.last, prompt, session.number)) is not None:
                self._share_points.add_fork(prompt, session, parting)
            return
        parting = None
        if other is not None and other is not session and other.last is not None:
            parting = part(other.last, prompt, None)
        self._share_points.add(prompt, session, other, parting)


def _is_foreign(prompt: Prompt) -> bool:
    """Whether the recorded ids are another model's.  Replies may be recorded in other words than a template has for them, and a
    template's clock goes on, so only requests without replies are looked at, and most ids must be others."""
    ids, messages = prompt.record.prompt_ids, prompt.messages
    if ids is None or prompt.rendered or not messages or any(message["role"] == "assistant" for message in messages):
        return False
    rendered = prompt.maker.make(replace(prompt.record, prompt_ids=None)).tokens
    expected = set(rendered[0 : len(rendered)])
    return 5 * len(expected & set(ids)) < 4 * max(len(expected), len(set(ids)))


def _common(earlier: Prompt, later: Prompt) -> int:
    """How many messages both begin with."""
    pairs = zip(earlier.digests, later.digests, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(earlier.digests), len(later.digests)))


def _head_of(prompt: Prompt) -> int:
    """A hash of what is meant to be the same for many requests."""
    parts = [string.value for string in prompt.strings if string.role in SHARED_ROLES]
    text = "\0".join((prompt.record.dialect, *parts))
    if prompt.record.dialect == "prompt":
        text += prompt.record.file
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
