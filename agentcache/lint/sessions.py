"""Puts requests into sessions: chats whose later requests repeat the earlier ones and add to them."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from agentcache.lint.leaves import strings_of
from agentcache.lint.prompt import SHARED_ROLES, Prompt
from agentcache.lint.records import Body, Record
from agentcache.lint.times import mask_times

_SHARING_A_MESSAGE = 8
"""Sessions remembered for one message; many agents may be given the same task."""
_KEPT_DIGESTS = 100_000
_KEPT_CHARS = 32_000_000
"""Characters of prompts kept for comparison, over all sessions; the sessions used longest ago go first."""
_PROMPT_CHARS = 5_000
"""What a prompt takes beside its text, in characters: pages, places, messages."""


@dataclass(slots=True)
class Session:
    """One chat.

    Attributes:
        number: counted from 0 in order of appearance.
        scope, named: as its records say.
        label: what its requests call it, or ``#1``, ``#2``, … where they do not say.
        last: its latest request.
        mended: the same request as it would be without the defects that were found.
        answered: ``mended`` with its reply behind it, where the file says how it was generated.
        blamed: account of the last defect that cost something in it.
        accounts: of all defects that were found in it.
        digests: the messages of its latest request but for the system's, each as a hash.
        system: the rest of that request's text: what the system says, and the tools.
    """

    number: int
    label: str
    scope: str | None = None
    named: bool = False
    last: Prompt | None = None
    mended: Prompt | None = None
    answered: Prompt | None = None
    blamed: Hashable = None
    accounts: set[Hashable] = field(default_factory=set)
    digests: tuple[int, ...] = ()
    system: str = ""

    @property
    def chars(self) -> int:
        prompts = (self.last, self.mended, self.answered)
        kept = {id(prompt): len(prompt.text) + _PROMPT_CHARS for prompt in prompts if prompt is not None}
        return sum(kept.values())


@dataclass(slots=True)
class SessionBook:
    """All sessions, of which the recently used ones can be compared with.

    A request belongs to the session that it names.  Otherwise it belongs to the one whose latest prompt it begins with, or
    with which it shares at least two messages, or its first message and most words of the system text; the system's own
    messages are not counted, and times are left aside.  ``prompt_cache_key`` and ``user`` keep sessions apart that name
    different ones.
    """

    kept_chars: int = _KEPT_CHARS
    count: int = 0
    _recent: OrderedDict[int, Session] = field(default_factory=OrderedDict)
    _named: dict[str, int] = field(default_factory=dict)
    _by_message: dict[tuple[str | None, int], tuple[int, ...]] = field(default_factory=dict)
    _masked: dict[int, int] = field(default_factory=dict)
    _sweep_at: int = _KEPT_DIGESTS
    _chars: int = 0

    def assign(self, record: Record, continued: Session | None = None) -> Session:
        """The session of ``record``, a new one if it begins one.

        Args:
            continued: the session whose latest prompt it begins with, if there is one.
        """
        name, scope = record.session, record.scope
        digests = self._digests(record.body)
        system = " ".join(string.value for string in strings_of(record.body) if string.role in SHARED_ROLES)
        if name is not None:
            session = self._find_named(name)
        elif continued is not None and not continued.named and continued.scope == scope:
            session = continued
        else:
            session = self._find_continued(scope, digests, system)
        if session is None:
            label = name or scope or f"#{self.count + 1}"
            session = Session(self.count, label, scope=scope, named=name is not None)
            self.count += 1
            self._recent[session.number] = session
        if name is not None:
            self._named[name] = session.number
        session.digests, session.system = digests, system
        if name is None:
            for digest in digests:
                others = [number for number in self._by_message.get((scope, digest), ()) if number != session.number]
                self._by_message[scope, digest] = (*others[1 - _SHARING_A_MESSAGE :], session.number)
        return session

    def get(self, number: int | None) -> Session | None:
        """The session of that number, if it is still remembered."""
        return None if number is None else self._recent.get(number)

    def keep(self, session: Session, last: Prompt, mended: Prompt, answered: Prompt | None = None) -> None:
        """``last`` is the session's latest request from now on."""
        self._chars -= session.chars
        session.last, session.mended, session.answered = last, mended, answered
        self._chars += session.chars
        self._recent[session.number] = session
        self._recent.move_to_end(session.number)
        while self._chars > self.kept_chars and len(self._recent) > 1:
            _, oldest = self._recent.popitem(last=False)
            self._chars -= oldest.chars
        if len(self._by_message) > self._sweep_at:
            self._forget_gone()
            self._sweep_at = 2 * len(self._by_message) + _KEPT_DIGESTS

    def _digests(self, body: Body) -> tuple[int, ...]:
        """A hash a message; texts that differ only by a time have the same."""
        if len(self._masked) > _KEPT_DIGESTS:
            self._masked.clear()
        digests = []
        for message in body.get("messages") or ():
            if message["role"] not in SHARED_ROLES:
                text = json.dumps(message, sort_keys=True)
                raw = _digest(text)
                if raw not in self._masked:  # replayed messages are most of a long chat
                    self._masked[raw] = _digest(mask_times(text))
                digests.append(self._masked[raw])
        return tuple(digests)

    def _find_named(self, name: str) -> Session | None:
        return self.get(self._named.get(name))

    def _find_continued(self, scope: str | None, digests: tuple[int, ...], system: str) -> Session | None:
        if not digests:
            return None
        numbers = {number for digest in digests for number in self._by_message.get((scope, digest), ())}
        best: tuple[tuple[bool, int, int], Session] | None = None
        for session in filter(None, map(self.get, numbers)):
            common = len(set(digests) & set(session.digests))
            similar = _are_similar(session.system, system)
            if common < 2 and not (similar and session.digests[:1] == digests[:1]):
                continue
            rank = (similar, common, session.number)
            if best is None or rank > best[0]:
                best = (rank, session)
        return None if best is None else best[1]

    def _forget_gone(self) -> None:
        self._by_message = {
            key: kept
            for key, numbers in self._by_message.items()
            if (kept := tuple(number for number in numbers if number in self._recent))
        }
        self._named = {name: number for name, number in self._named.items() if number in self._recent}


def _are_similar(a: str, b: str) -> bool:
    """Most words are the same: a system text with a slot that changes, not another agent's."""
    if a == b:
        return True
    mine, theirs = set(a.split()), set(b.split())
    return 2 * len(mine & theirs) >= max(len(mine), len(theirs)) > 0


def _digest(text: str) -> int:
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
