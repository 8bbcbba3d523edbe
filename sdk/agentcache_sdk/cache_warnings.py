"""Python warnings for prompts that cannot be reused, at the line of the user's code that sent them.

They obey Python's own filters (``warnings.filterwarnings("error", category=PrefixBreakWarning)``, pytest's
``filterwarnings``); ``AGENTCACHE_WARNINGS=error|ignore|default`` overrules them for this SDK alone.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from agentcache_sdk.types import Finding

Mode = Literal["error", "ignore", "default"]
PACKAGE = __package__ or "agentcache_sdk"
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


@dataclass(frozen=True)
class CallSite:
    """The user's line that called into the SDK.

    Taken when a method is called, not when the warning is known: by then a coroutine may run as a task of its own,
    with none of the user's frames on the stack.
    """

    filename: str
    line: int
    module: str
    registry: dict[Any, Any]

    @classmethod
    def here(cls) -> CallSite:
        """The innermost frame outside this package."""
        frame = sys._getframe(1)
        while frame.f_back and _inside(frame.f_globals.get("__name__", "")):
            frame = frame.f_back
        scope = frame.f_globals
        registry = scope.setdefault("__warningregistry__", {})
        return cls(frame.f_code.co_filename, frame.f_lineno, scope.get("__name__", "<unknown>"), registry)


def _inside(module: str) -> bool:
    return module == PACKAGE or module.startswith(PACKAGE + ".")


@dataclass
class WarningSink:
    """Decides which findings one session (or one client's stateless calls) reports, each (code, path) once."""

    ignore: tuple[str, ...] = ()
    min_tokens_lost: int = MIN_TOKENS_LOST
    seen: set[tuple[str, str | None]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def copy(self) -> WarningSink:
        """For a fork: what the parent has said is not said again by every branch."""
        return WarningSink(self.ignore, self.min_tokens_lost, set(self.seen))

    def emit(self, finding: Finding, site: CallSite, detail: str = "") -> None:
        """Warn at ``site``, unless ignored, legitimate, too small or said before.

        Raises:
            CacheWarning: when filters or ``AGENTCACHE_WARNINGS`` turn warnings into errors.
        """
        if finding.verdict == "legitimate" or any(finding.code.startswith(code) for code in self.ignore):
            return
        if finding.tokens_lost is not None and finding.tokens_lost < self.min_tokens_lost:
            return
        key = (finding.code, finding.location.path)
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
    """First line: code, name and place, the same on every run; figures and texts follow on lines of their own."""
    place = f" at {finding.location.path}" if finding.location.path else ""
    lines = [f"{finding.code}{' ' + finding.name if finding.name else ''}{place}"]
    if detail:
        lines.append(detail)
    if finding.tokens_lost is not None:
        kind = {"estimate": "about ", "upper_bound": "up to "}.get(finding.tokens_lost_kind or "", "")
        lines.append(f"{kind}{finding.tokens_lost:,} tokens cannot be reused")
    if finding.after is not None:
        lines.append(f"was {finding.before!r}, now {finding.after!r}")
    elif finding.before is not None:
        lines.append(f"the text is {finding.before!r}")
    return "\n  ".join(lines)
