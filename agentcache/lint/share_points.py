"""Where different sessions stop having the same prompt."""

from __future__ import annotations

from collections import defaultdict
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
    sessions: set[int] = field(default_factory=set)


class SharePoints:
    """Collects share points as sessions begin.

    Args:
        page_size: tokens a page.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._points: dict[bytes, _Point] = {}
        self._lengths: set[int] = set()
        self._of_session: defaultdict[int, list[bytes]] = defaultdict(list)

    def add(self, prompt: Prompt, session: Session, other: Session | None, parting: Parting | None) -> None:
        """A session begins with ``prompt``, and parts from ``other``, with which it shares most, at ``parting``."""
        if other is not None and parting is not None and (point := self._read(prompt, session, parting)) is not None:
            key = prefix_key(prompt.tokens, point.tokens)
            if key not in self._points:
                self._points[key] = point
                self._lengths.add(point.tokens)
                self._join(key, other.number)
                # Whoever shares more with the other session shares this much as well.
                for longer in [known for known in self._of_session[other.number] if known != key]:
                    if self._points[longer].tokens > point.tokens:
                        for number in self._points[longer].sessions:
                            self._join(key, number)
        for length in self._lengths:
            if length <= len(prompt.tokens) and (key := prefix_key(prompt.tokens, length)) in self._points:
                self._join(key, session.number)

    def _join(self, key: bytes, session: int) -> None:
        if session not in self._points[key].sessions:
            self._points[key].sessions.add(session)
            self._of_session[session].append(key)

    def findings(self, rules: Sequence[Rule]) -> list[Finding]:
        """What the rules say of the share points."""
        found = []
        for point in self._points.values():
            shared = SharePoint(
                point.tokens, self._page_size, point.path, point.char, point.ends_string, len(point.sessions)
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
        location = Location(
            file=prompt.record.file,
            record=prompt.record.line,
            path=last.path,
            char=prompt.string_offset(last, min(char, last.end) - last.start),
            token=token,
            page=token // self._page_size,
        )
        return _Point(
            tokens=token,
            path=last.path,
            char=location.char,
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
