"""The sessions of a server, by id; each is known to its owner only, and ends when it was idle for too long."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from agentcache.errors import AgentCacheError
from agentcache.sessions.session import Session

MAX_TTL_S = 604_800
"""A week."""
DEFAULT_TTL_S = 3_600


class SessionNotFoundError(AgentCacheError):
    """No such session, or not this key's (HTTP 404; the two look the same)."""


class SessionStore:
    """Sessions by id.  Used on the event loop only.

    Args:
        clock: seconds; what idle time is measured with.
        on_end: told of every session that ends (its leases go with it).
    """

    def __init__(self, clock: Callable[[], float], on_end: Callable[[Session], None]) -> None:
        self._clock = clock
        self._on_end = on_end
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        self._sweep()
        return len(self._sessions)

    @staticmethod
    def new_id() -> str:
        return f"sess_{secrets.token_hex(12)}"

    def add(self, session: Session) -> Session:
        self._sweep()
        session.touch(self._clock())
        self._sessions[session.id] = session
        return session

    def get(self, session_id: str, owner: bytes) -> Session:
        """The session, whose idle time starts anew.

        Raises:
            SessionNotFoundError: there is none, it expired, or it is somebody else's.
        """
        self._sweep()
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise SessionNotFoundError(f"session: got {session_id!r}, which does not exist or has expired")
        session.touch(self._clock())
        return session

    def of(self, owner: bytes) -> Iterator[Session]:
        """The owner's sessions, oldest first."""
        self._sweep()
        return (session for session in self._sessions.values() if session.owner == owner)

    def end(self, session: Session) -> None:
        """Forget a session; a turn in flight is no longer committed.  Its pages stay as ordinary cache."""
        session.closed = True
        session.in_flight = None
        if self._sessions.pop(session.id, None) is not None:
            self._on_end(session)

    def _sweep(self) -> None:
        now = self._clock()
        for session in [s for s in self._sessions.values() if s.expires_at <= now and s.in_flight is None]:
            self.end(session)
