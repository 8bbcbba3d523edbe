"""Whose line a warning belongs to when a framework and an event loop stand between it and this package."""

from __future__ import annotations

import sys
from types import FrameType

from agentcache_sdk.cache_warnings import CallSite

_LOOPS = frozenset({"asyncio", "uvloop", "concurrent", "contextvars", "threading"})
_BETWEEN = _LOOPS | {"agents", "agentcache_sdk", "openai", "contextlib"}


def user_site(otherwise: CallSite | None = None) -> CallSite:
    """The innermost line outside the framework and this package.

    Args:
        otherwise: taken when an event loop stands between that line and here, as it does in a task of the framework's own:
            then the line is only where the loop was started.
    """
    frame: FrameType = sys._getframe(1)
    through_loop = False
    while (package := _package(frame)) in _BETWEEN:
        # `Runner.run_sync` runs a loop of its own: with the framework behind the loop, the user's line is behind both.
        through_loop = package in _LOOPS or (through_loop and package != "agents")
        if frame.f_back is None:
            break
        frame = frame.f_back
    if otherwise is not None and (through_loop or _package(frame) in _BETWEEN):
        return otherwise
    return _site(frame)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _site(frame: FrameType) -> CallSite:
    scope = frame.f_globals
    registry = scope.setdefault("__warningregistry__", {})
    return CallSite(frame.f_code.co_filename, frame.f_lineno, scope.get("__name__", "<unknown>"), registry)
