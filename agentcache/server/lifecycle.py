"""Open or closing: which requests run, and how they end when the server stops."""

from __future__ import annotations

from typing import Protocol

from agentcache.server.errors import ApiError, shutting_down


class Stoppable(Protocol):
    def fail(self, error: ApiError) -> None: ...


class Lifecycle:
    """Knows what runs, so that a shutdown can end it.  Used on the event loop only."""

    def __init__(self) -> None:
        self._running: set[Stoppable] = set()
        self._closing = False

    @property
    def closing(self) -> bool:
        return self._closing

    def enter(self, work: Stoppable) -> None:
        self._running.add(work)
        if self._closing:
            work.fail(shutting_down())

    def leave(self, work: Stoppable) -> None:
        self._running.discard(work)

    def close(self) -> None:
        """Stop admission and end what runs: streams with an error event, other requests with a 503."""
        self._closing = True
        for work in tuple(self._running):
            work.fail(shutting_down())
