"""Python warnings for prompts that cannot be reused, at the line of the user's code that sent them.

They obey Python's own filters (``warnings.filterwarnings("error", category=PrefixBreakWarning)``, pytest's
``filterwarnings``); ``AGENTCACHE_WARNINGS=error|ignore|default`` overrules them for this SDK alone.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from agentcache_sdk._codes import CODES
from agentcache_sdk.types import Finding

Mode = Literal["error", "ignore", "default"]
_INSIDE = (__package__ or "agentcache_sdk", "agentcache.local")
"""Modules whose lines are nobody's to change: the SDK, and the client that runs it in one process with the engine."""
MIN_TOKENS_LOST = 64
"""Findings that cost fewer tokens than this are not worth a line on somebody's terminal."""


class CacheWarning(UserWarning):
    """Something keeps a prompt from being reused.

    Attributes:
        finding: the data behind it, in the shape that the linter and the server use.

    >>> import warnings
    >>> from agentcache_sdk import CacheWarning
    >>> warnings.filterwarnings("error", category=CacheWarning)  # in a test suite: make them failures
    """

    def __init__(self, message: str, finding: Finding) -> None:
        super().__init__(message, finding)
        self.finding = finding

    def __str__(self) -> str:
        return str(self.args[0])


class AlignmentWarning(CacheWarning):
    """AC5xx: where prompts stop being equal does not fit the pages."""


class PrefixBreakWarning(CacheWarning):
    """AC2xx, AC3xx, AC4xx, AC6xx, AC8xx: a beginning that was computed before had to be computed again."""


class VolatileWarning(CacheWarning):
    """AC1xx: text that changes from call to call stands before text that does not."""


class TemplateWarning(CacheWarning):
    """AC7xx: the chat template itself changes the beginning of the prompt."""


_BY_GROUP: dict[str, type[CacheWarning]] = {
    "1": VolatileWarning,
    "2": PrefixBreakWarning,
    "3": PrefixBreakWarning,
    "4": PrefixBreakWarning,
    "5": AlignmentWarning,
    "6": PrefixBreakWarning,
    "7": TemplateWarning,
    "8": PrefixBreakWarning,
}


def category(code: str) -> type[CacheWarning]:
    """The warning class of a code such as ``AC101``."""
    return _BY_GROUP.get(code[2:3], CacheWarning)


def warning_mode() -> Mode:
    """``AGENTCACHE_WARNINGS``; the only place where the SDK reads the environment.

    Raises:
        ValueError: a value that is none of the three.
    """
    value = os.environ.get("AGENTCACHE_WARNINGS") or "default"
    if value not in ("error", "ignore", "default"):
        raise ValueError(f"AGENTCACHE_WARNINGS: got {value!r}, expected error, ignore or default")
    return cast(Mode, value)


@dataclass(frozen=True, eq=False)
class Suppression:
    """What a ``suppress`` block is silent about."""

    codes: tuple[str, ...]
    reason: str


_SUPPRESSED: ContextVar[tuple[Suppression, ...]] = ContextVar("agentcache_suppressed", default=())


@contextmanager
def suppress(*codes: str, reason: str) -> Iterator[None]:
    """No warnings of these codes for calls made inside the block; ``reason`` is for whoever reads the code.

    It holds for the tasks that are started inside, and for nobody else: other threads and tasks go on warning.  A stream,
    or a coroutine, that is made inside may be read or awaited behind it.

    Args:
        codes: codes, or beginnings of codes: ``"AC101"``, ``"AC5"``.

    Raises:
        ValueError: a code that is none, none at all, or an empty reason.

    >>> from agentcache_sdk import Client, suppress
    >>> client = Client("http://127.0.0.1:8100")
    >>> with suppress("AC101", reason="the demonstration is about the clock"):
    ...     session = client.session(system="Now: 2026-01-05 10:31:07. " + "Read before you write. " * 40)
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError(f"suppress: got {reason!r} as reason, expected a sentence that says why")
    if not codes:
        raise ValueError("suppress: got no code, expected one such as AC101, or its beginning, such as AC1")
    mine = Suppression(code_prefixes("suppress", codes), reason)
    _SUPPRESSED.set((*_SUPPRESSED.get(), mine))
    try:
        yield
    finally:
        # Not by the token: a generator may leave the block in another context than it entered it in.
        _SUPPRESSED.set(tuple(other for other in _SUPPRESSED.get() if other is not mine))


def code_prefixes(name: str, codes: str | Iterable[str]) -> tuple[str, ...]:
    """``codes`` (one, or any iterable of them) checked.

    Raises:
        ValueError: one that is neither a code nor the beginning of one.
    """
    given = (codes,) if isinstance(codes, str) else tuple(codes)
    for code in given:
        if not isinstance(code, str) or not re.fullmatch(r"AC\d{0,3}", code):
            raise ValueError(
                f"{name}: got {code!r}, expected a warning code such as AC101, or its beginning, such as AC1"
            )
    return given


@dataclass(frozen=True)
class CallSite:
    """The user's line that called into the SDK, and what was suppressed there.

    Taken when a method is called, not when the warning is known: by then a coroutine may run as a task of its own,
    with none of the user's frames on the stack.
    """

    filename: str
    line: int
    module: str
    registry: dict[Any, Any]
    suppressed: tuple[Suppression, ...] = ()

    @classmethod
    def here(cls) -> CallSite:
        """The innermost frame outside this package."""
        frame = sys._getframe(1)
        while frame.f_back and _inside(frame.f_globals.get("__name__", "")):
            frame = frame.f_back
        scope = frame.f_globals
        registry = scope.setdefault("__warningregistry__", {})
        place = frame.f_code.co_filename, frame.f_lineno, scope.get("__name__", "<unknown>")
        return cls(*place, registry, _SUPPRESSED.get())

    def silences(self, code: str) -> bool:
        """Whether the call was made, or is being answered, inside a ``suppress`` for ``code``."""
        return any(code.startswith(block.codes) for block in (*self.suppressed, *_SUPPRESSED.get()))


def _inside(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in _INSIDE)


Key = tuple[str | int | None, ...]


@dataclass
class WarningSink:
    """Decides which findings one session (or one client's stateless calls) reports, each once.

    Attributes:
        ignore: codes, or beginnings of codes.
        by_site: once for each line that calls, rather than once in all.
        seen: what was said: code and path, and with ``by_site`` the line.

    Raises:
        ValueError: a code that is none, or a threshold below 0.
    """

    ignore: str | Iterable[str] = ()
    min_tokens_lost: int = MIN_TOKENS_LOST
    seen: set[Key] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    by_site: bool = False

    def __post_init__(self) -> None:
        self.ignore = code_prefixes("ignore", self.ignore)
        if not isinstance(self.min_tokens_lost, int) or self.min_tokens_lost < 0:
            raise ValueError(f"min_tokens_lost: got {self.min_tokens_lost!r}, expected a number of tokens, at least 0")

    def copy(self) -> WarningSink:
        """For a fork: what the parent has said is not said again by every branch."""
        return WarningSink(self.ignore, self.min_tokens_lost, set(self.seen), by_site=self.by_site)

    def concerns(self, finding: Finding) -> bool:
        """Whether it is neither legitimate nor ignored nor too small."""
        if finding.verdict == "legitimate" or finding.code.startswith(tuple(self.ignore)):
            return False
        return finding.tokens_lost is None or finding.tokens_lost >= self.min_tokens_lost

    def emit(self, finding: Finding, site: CallSite, detail: str = "") -> None:
        """Warn at ``site``, unless it does not concern anybody, is suppressed, or was said before.

        Raises:
            CacheWarning: when filters or ``AGENTCACHE_WARNINGS`` turn warnings into errors.
        """
        if not self.concerns(finding) or site.silences(finding.code):
            return
        key: Key = (finding.code, finding.location.path)
        if self.by_site:
            key = (*key, site.filename, site.line)
        with self.lock:
            if key in self.seen:
                return
            self.seen.add(key)
        warning = category(finding.code)(describe(finding, detail), finding)
        mode = warning_mode()
        if mode == "ignore":
            return
        if mode == "error":
            raise warning
        warnings.warn_explicit(warning, type(warning), site.filename, site.line, site.module, site.registry)

    def emit_all(self, findings: Iterable[Finding], site: CallSite) -> None:
        for finding in findings:
            self.emit(finding, site)


def describe(finding: Finding, detail: str = "") -> str:
    """First line: code, name and place, the same on every run; sentences, figures and texts follow on lines of their own."""
    place = f" at {finding.location.path}" if finding.location.path else ""
    lines = [f"{finding.code}{' ' + finding.name if finding.name else ''}{place}"]
    told = finding.model_extra or {}
    if sentence := detail or told.get("message"):
        lines.append(str(sentence))
    if finding.tokens_lost is not None:
        kind = {"estimate": "about ", "upper_bound": "up to "}.get(finding.tokens_lost_kind or "", "")
        lines.append(f"{kind}{finding.tokens_lost:,} tokens cannot be reused")
    if finding.before is not None and finding.after is not None:
        lines.append(f"was {finding.before!r}, now {finding.after!r}")
    elif finding.before is not None or finding.after is not None:
        lines.append(f"the text is {(finding.after if finding.before is None else finding.before)!r}")
    if advice := _advice(finding):
        lines.append(f"fix: {advice}")
    return "\n  ".join(lines)


def _advice(finding: Finding) -> str | None:
    """This SDK's own words, except where the server's have figures in them."""
    helped = (finding.model_extra or {}).get("help")
    known = CODES.get(finding.code)
    if known is None or (helped and finding.code.startswith("AC5")):
        return helped
    return known.fix
