"""Which reply a request gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentcache_sdk.testing.replies import Fault, Reply, as_reply
from agentcache_sdk.testing.requests import Request


class ScriptExhausted(AssertionError):  # noqa: N818  reads as what happened, as the errors of the SDK do
    """A request came for which the script has no reply."""


@dataclass
class Lines:
    """Replies in order (of a list), or the same one for every request (of anything else); a function is asked.

    Attributes:
        said: how many were taken.
    """

    name: str
    replies: Any
    said: int = 0

    @property
    def left(self) -> int | None:
        """How many replies nobody has asked for; ``None``: there is no end to them."""
        return len(self.replies) - self.said if isinstance(self.replies, list) else None

    def next(self, request: Request) -> Reply | Fault:
        """
        Raises:
            ScriptExhausted: all replies were taken.
        """
        if not isinstance(self.replies, list):
            value = self.replies
        elif self.said < len(self.replies):
            value = self.replies[self.said]
        else:
            raise ScriptExhausted(
                f"{self.name} has {len(self.replies)} replies, and all were given when {request.describe()}"
            )
        self.said += 1
        return as_reply(value(request) if callable(value) else value)


@dataclass
class Route:
    """Lines for the requests that ``match`` says are its own."""

    match: Callable[[Request], bool]
    lines: Lines


@dataclass
class Scripts:
    """The script, and the routes that go before it; the first that matches has the say."""

    default: Lines
    routes: list[Route] = field(default_factory=list)

    def next(self, request: Request) -> Reply | Fault:
        return next((route.lines for route in self.routes if route.match(request)), self.default).next(request)

    def unsaid(self) -> list[str]:
        """What was never asked for, in words."""
        everything = [route.lines for route in self.routes] + [self.default]
        return [
            f"{lines.name}: {lines.left} of {len(lines.replies)} replies, the next is {lines.replies[lines.said]!r}"
            for lines in everything
            if lines.left
        ]


def matcher(match: Any) -> Callable[[Request], bool]:
    """A text that the system text or the last message holds, a session (or its id), or a predicate.

    Raises:
        TypeError: none of these.
    """
    if isinstance(match, str):
        return lambda request: match in request.system or match in request.text or match == request.session
    if hasattr(match, "fork") and hasattr(match, "id"):
        return lambda request: match.id is not None and request.session == match.id
    if callable(match):
        return lambda request: bool(match(request))
    raise TypeError(f"when: got {match!r}, expected a text, a session or a function of a request")
