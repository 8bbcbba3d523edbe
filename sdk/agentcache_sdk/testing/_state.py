"""Everything that the engine keeps between requests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache_sdk.testing._http import Refusal
from agentcache_sdk.testing._page_cache import PageCache, Why
from agentcache_sdk.testing._rendering import Prompt, ReplyMemory
from agentcache_sdk.testing._sessions import HeldSession, SessionStore
from agentcache_sdk.testing._tokens import decode
from agentcache_sdk.testing.requests import Request
from agentcache_sdk.testing.script import ScriptExhausted, Scripts

EPOCH = 1_767_225_600.0
"""Where the clock begins, in Unix seconds: 2026 in UTC."""
_SHOWN = 40


@dataclass(frozen=True)
class HttpCall:
    """One call of HTTP; ``status`` is ``None`` where no answer came."""

    method: str
    path: str
    body: dict[str, Any]
    status: int | None


@dataclass(frozen=True)
class Setup:
    """What the engine pretends to run."""

    model: str
    page_size: int
    pages: int
    max_model_len: int
    sessions: bool

    @property
    def capacity(self) -> int:
        """Tokens that a prompt and its reply may have together."""
        return min(self.max_model_len, self.pages * self.page_size)


@dataclass
class State:
    """
    Attributes:
        ever: all that was ever computed, which nothing is evicted from: what a perfect cache would still have.
        beginnings: first pages by owner and the namespaces that they were sent in.
        exhausted: requests that no script had a reply for.
        lock: held while a request is looked at, and while a piece of a stream is made.
    """

    setup: Setup
    scripts: Scripts
    cache: PageCache
    ever: PageCache
    clock: float = EPOCH
    memory: ReplyMemory = field(default_factory=ReplyMemory)
    requests: list[Request] = field(default_factory=list)
    calls: list[HttpCall] = field(default_factory=list)
    exhausted: list[ScriptExhausted] = field(default_factory=list)
    beginnings: dict[tuple[str, tuple[int, ...]], set[str]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    lock: threading.RLock = field(default_factory=threading.RLock)
    store: SessionStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = SessionStore(self.now, self.end_lease)

    @classmethod
    def of(cls, setup: Setup, scripts: Scripts) -> State:
        return cls(setup, scripts, PageCache(setup.page_size, setup.pages), PageCache(setup.page_size))

    def now(self) -> float:
        return self.clock

    def advance(self, seconds: float) -> None:
        self.clock += seconds
        self.cache.lapse(self.clock)

    def root(self, owner: str, salt: str | None) -> str:
        """Namespace of pages; no salt and the salt "" differ."""
        return f"{owner}/{'-' if salt is None else '=' + salt}"

    def check_model(self, name: Any) -> None:
        if name is not None and name != self.setup.model:
            message = f"model: got {name!r}, expected {self.setup.model!r}"
            raise Refusal(404, message, param="model", code="model_not_found")

    def check_size(self, tokens: Sequence[int], param: str) -> None:
        if len(tokens) >= self.setup.capacity:
            message = (
                f"the prompt has {len(tokens)} tokens, and {self.setup.capacity} are all that prompt and reply"
                " together may have"
            )
            raise Refusal(400, message, param=param, code="context_length_exceeded")

    def end_lease(self, session: HeldSession) -> None:
        if session.pin is not None:
            self.cache.unpin(session.pin)
        session.pin = session.lease_until = None

    def pinned_until(self, session: HeldSession) -> float | None:
        """When the lease of a session ends; ``None`` when nothing is kept for it."""
        pin = session.pin
        return session.lease_until if pin is not None and pin in self.cache.pins and pin.pages else None

    def hold(self, session: HeldSession, until: float, tokens: Sequence[int]) -> int:
        """Lease the pages of ``tokens``, the session's transcript; how many there are to keep."""
        old = session.pin
        session.lease_until = until
        # The last token of a reply may not have been computed.
        session.pin = self.cache.pin(session.root, tokens[:-1] if session.turns else tokens, until)
        if old is not None:
            self.cache.unpin(old)
        return len(session.pin.pages)

    def follow(self, session: HeldSession, tokens: Sequence[int]) -> None:
        """Move a running lease to where the session's transcript now ends."""
        until, pin = session.lease_until, session.pin
        if until is None:
            return
        if until <= self.now() or (pin is not None and pin.pages and pin not in self.cache.pins):
            self.end_lease(session)
            return
        self.hold(session, until, tokens)

    def why(self, owner: str, root: str, prompt: Prompt) -> dict[str, Any] | None:
        """The ``miss`` of an answer: with the message that the first uncached token is in, and its text."""
        why = self.cache.why(root, prompt.tokens)
        if why is None:
            return None
        why = self._elsewhere(why, owner, root, prompt.tokens)
        index, path = prompt.place(why.at_token) if prompt.spans else (None, "prompt")
        return {
            "code": why.code,
            "at_token": why.at_token,
            "detail": why.detail,
            "message_index": index,
            "path": path,
            "was": decode(why.was)[:_SHOWN] if why.was else None,
            "now": decode(prompt.tokens[why.at_token : why.at_token + _SHOWN])[:_SHOWN],
        }

    def note_beginning(self, owner: str, root: str, tokens: Sequence[int]) -> None:
        self.beginnings.setdefault((owner, self._first_page(tokens)), set()).add(root)

    def _elsewhere(self, why: Why, owner: str, root: str, tokens: Sequence[int]) -> Why:
        page = self._first_page(tokens)
        known = self.beginnings.get((owner, page), set()) - {root}
        if why.code == "cold" and why.at_token == 0 and known and len(page) == self.setup.page_size:
            return Why("salt", 0, "this key has sent this beginning under another salt")
        return why

    def _first_page(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(tokens[: self.setup.page_size])
