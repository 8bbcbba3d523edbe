"""Leases on the pages of sessions: one a session, moved along with its transcript, gone with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agentcache.sessions.session import Session

if TYPE_CHECKING:
    from agentcache.cache.pins import Pin
    from agentcache.engine.loop import AsyncEngine


class Leases:
    """Used on the event loop only.

    ::

        pin ttl 60    turn      turn                      60 s later: plain cache
        |[head...... ]|[..... ]|[..... ]  the lease covers the whole transcript, its end stays where it was set
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._pins: dict[str, Pin] = {}

    async def hold(self, session: Session, ttl_s: float) -> int:
        """Keep what is cached of a session for ``ttl_s`` seconds, in place of any lease it has; how many pages that is.

        What its later turns add is kept as well, so a lease that could grant nothing yet is still worth something.
        """
        session.lease_until = self._engine.now() + ttl_s
        return await self._move(session)

    async def follow(self, session: Session) -> None:
        """Move a running lease to the end of the session's transcript; its time stays."""
        pin = self._pins.get(session.id)
        if session.lease_until is None:
            return
        if session.lease_until <= self._engine.now() or (pin is not None and not self._engine.is_pinned(pin)):
            self.end(session)
            return
        await self._move(session)

    async def inherit(self, session: Session, fork: Session, end: Callable[[], None]) -> None:
        """Move the lease of ``session`` to what it has taken over from ``fork``, whose own lease and life are over.

        What the fork kept is given back when the session's lease has moved, so that nothing falls between them.

        Args:
            end: ends ``fork``; called at once.
        """
        pin = self._pins.pop(fork.id, None)
        end()
        try:
            await self.follow(session)
        finally:
            if pin is not None:
                self._engine.unpin(pin)

    def end(self, session: Session) -> None:
        session.lease_until = None
        self._replace(session, None)

    def until(self, session: Session) -> float | None:
        """When the lease of a session ends; ``None`` when nothing is kept for it."""
        pin = self._pins.get(session.id)
        return session.lease_until if pin is not None and self._engine.is_pinned(pin) else None

    async def _move(self, session: Session) -> int:
        until = session.lease_until
        assert until is not None
        # The last token of a reply was drawn but not run: it has no keys and values yet.
        ids = session.transcript.ids[:-1] if session.turns else session.transcript.ids
        pin = await self._engine.pin(ids, session.home.root, until - self._engine.now(), session.bookmark)
        if session.closed or session.lease_until != until:  # it ended, or another call was faster, while we waited
            if pin is not None:
                self._engine.unpin(pin)
            return 0
        self._replace(session, pin)
        return pin.pages if pin is not None and self._engine.is_pinned(pin) else 0

    def _replace(self, session: Session, pin: Pin | None) -> None:
        """The new pin is made before the old one is given back, so that nothing falls between them."""
        old = self._pins.pop(session.id, None)
        if pin is not None:
            self._pins[session.id] = pin
        if old is not None:
            self._engine.unpin(old)
