"""What an engine works with outside its own process, and what is said of it.

An engine serves without any of its neighbours, only less well: a neighbour in trouble makes ``/health`` *degraded*, not red.
"""

from __future__ import annotations

from typing import Protocol


class Neighbour(Protocol):
    """A store that servers share, a socket that events go out through, and the like."""

    name: str
    """One word, as ``/health`` calls it."""

    def trouble(self) -> str | None:
        """What is wrong with it now, in a sentence without secrets; ``None`` while all is well.

        May be called from any thread, and never waits for anything.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """The engine has ended: finish what is owed, for at most so long.  Called once, on the engine's thread."""
        ...
