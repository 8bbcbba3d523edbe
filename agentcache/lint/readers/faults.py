"""What could not be read, where that says more than a record's reason."""

from __future__ import annotations

from dataclasses import dataclass

from agentcache.lint.records import Unreadable


@dataclass(frozen=True, slots=True)
class NoJson(Unreadable):
    """No JSON object at all: one among requests was cut, many are another kind of file."""


@dataclass(frozen=True, slots=True)
class WholeFile(Unreadable):
    """Nothing of the file is a request, and one reason says why; ``line`` is the first that was tried."""
