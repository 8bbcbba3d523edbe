"""Where different sessions stop having the same prompt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentcache.cache.hashing import pack_tokens, page_key
from agentcache.cache.tokens import PagedTokens
from agentcache.lint.finding import Finding, Location
from agentcache.lint.parting import Parting, excerpt
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Rule, SharePoint
from agentcache.lint.sessions import Session


@dataclass(slots=True)
class _Point:
    tokens: int
    path: str
    char: int | None
    ends_string: bool
    location: Location
    session: str
    compared_to: str
    before: str
    after: str
    fork: bool = False
    sessions: set[int] = field(default_factory=set)
    more: int = 0
    """Sessions whose numbers are not kept any more."""

    @property
    def count(self) -> int:
        return len(self.sessions) + self.more


_MOST = 500
"""Share points that are kept; those that were met longest ago go first."""
_MOST_SESSIONS = 5_000
"""Sessions whose share points are known by their numbers; what comes before them is only counted."""


class SharePoints:
    """Collects share points as sessions begin, and as conversations branch.

    Args:
        page_size: tokens a page.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._points: dict[bytes, _Point] = {}
        self._lengths: set[int] = set()
        self._of_session: OrderedDict[int, list[bytes]] = OrderedDict()

    def add(self, prompt: Prompt, session: Session, other: Session | None, parting: Parting | None) -> None:
        """A session begins with ``prompt``, and parts from ``other``, with which it shares most, at ``parting``."""
        if other is not None and parting is not None and (point := self._read(prompt, session, parting)) is not None:
            key = prefix_key(prompt.tokens, point.tokens)
            if key not in self._points:
                self._enter(key, point)
                self._join(key, other.number)
                # Whoever shares more with the other session shares this much as well.
                for longer in [known for known in self._of_session.get(other.number, ()) if known != key]:
                    if self._points[longer].tokens > point.tokens:
                        for number in list(self._points[longer].sessions):
                            self._join(key, number)
                        point.more += self._points[longer].more
        for length in list(self._lengths):
            if length <= len(prompt.tokens) and (key := prefix_key(prompt.tokens, length)) in self._points:
                self._join(key, session.number)

    def add_fork(self, prompt: Prompt, session: Session, parting: Parting) -> None:
        """A conversation goes on in another way behind ``parting`` than its last request did."""
        token = parting.token
        if not any(message["role"] == "assistant" for message in prompt.messages[: parting.alignment.at]):
            return
        point = self._read(prompt, session, parting)
        if point is None or not 0 < token < parting.earlier.token_at(parting.earlier.history_end):
            return
        key = prefix_key(prompt.tokens, point.tokens)
        known = self._points.get(key)
        if known is None:
            point.fork = True
            self._enter(key, point)
            known = point
            known.sessions.add(-1)
        elif not known.fork:
            return
        known.sessions.add(-1 - len(known.sessions))  # branches have no numbers of their own

    def _enter(self, key: bytes, point: _Point) -> None:
        if len(self._points) >= _MOST:
            oldest, gone = next(iter(self._points.items()))
            del self._points[oldest]
            for number in gone.sessions:
                if oldest in self._of_session.get(number, ()):
                    self._of_session[number].remove(oldest)
            if all(other.tokens != gone.tokens for other in self._points.values()):
                self._lengths.discard(gone.tokens)
        self._points[key] = point
        self._lengths.add(point.tokens)

    def _join(self, key: bytes, session: int) -> None:
        point = self._points[key]
        if session in point.sessions:
            return
        point.sessions.add(session)
        self._of_session.setdefault(session, []).append(key)
        self._of_session.move_to_end(session)
        if len(point.sessions) > _MOST_SESSIONS:
            point.more += len(point.sessions)
            point.sessions.clear()
        if len(self._of_session) > _MOST_SESSIONS:
            self._of_session.popitem(last=False)

    def findings(self, rules: Sequence[Rule]) -> list[Finding]:
        """What the rules say of the share points."""
        found = []
        for point in self._points.values():
            shared = SharePoint(
                point.tokens,
                self._page_size,
                point.path,
                point.char,
                point.ends_string,
                point.count,
                point.fork,
            )
            for rule in rules:
                judgement = rule.judge(shared) if rule.judge is not None else None
                if judgement is None:
                    continue
                found.append(
                    Finding(
                        code=rule.code,
                        name=rule.name,
                        severity=judgement.severity,
                        location=point.location,
                        session=point.session,
                        compared_to=point.compared_to,
                        before=point.before,
                        after=point.after,
                        tokens_lost=judgement.tokens_lost,
                        tokens_lost_kind="upper_bound",
                        shared_by=shared.sessions,
                        message=judgement.message,
                        help=judgement.help,
                    )
                )
        return found

    def _read(self, prompt: Prompt, session: Session, parting: Parting) -> _Point | None:
        """The share point behind a parting.

        ::

            system text ⟨/s⟩⟨user⟩ Fix the parser         two questions that begin with the same words do not share them
            system text ⟨/s⟩⟨user⟩ Fix the lexer          on purpose: within a page of its beginning, the string's
                                  ^        ^              beginning counts
                            counts         parting

        ``None`` when not one string of theirs is shared: what the template alone prints is nobody's to change.
        """
        char, token = parting.char, parting.token
        inside = parting.leaf
        if inside is not None:
            start = prompt.token_at(inside.start)
            if token - start < self._page_size:
                char, token, inside = inside.start, min(start, token), None
        shared = [leaf for leaf in prompt.leaves if leaf.end <= char]
        last = inside or (shared[-1] if shared else None)
        if last is None or token == 0:
            return None
        inner = prompt.string_offset(last, min(char, last.end) - last.start)
        place = prompt.record.places.find(last.keys, inner)
        location = Location(
            file=prompt.record.file,
            record=place.line or prompt.record.line,
            path=place.json_path,
            char=place.char,
            token=token,
            page=token // self._page_size,
        )
        return _Point(
            tokens=token,
            path=place.path,
            char=place.char,
            ends_string=inside is None,
            location=location,
            session=session.label,
            compared_to=parting.earlier.record.reference,
            before=excerpt(parting.earlier.text, parting.char, parting.char + 1),
            after=excerpt(parting.later.text, parting.char, parting.char + 1),
        )


def prefix_key(tokens: PagedTokens, length: int) -> bytes:
    """A hash of the first ``length`` tokens: equal for equal beginnings."""
    pages = length // tokens.page_size
    parent = tokens.key(pages - 1) if pages else tokens.root
    return page_key(parent, pack_tokens(tokens[pages * tokens.page_size : length]))
