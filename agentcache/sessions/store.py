"""The sessions of a server, by id; each is known to its owner only, and ends when it was idle for too long."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator

from agentcache.errors import AgentCacheError
from agentcache.replica_ids import tagged
from agentcache.sessions.session import Session

ID = re.compile(r"sess_[0-9a-f]{24}(-[a-z0-9]{1,32})?")
"""As ``SessionStore.new_id`` makes them, here or on another server."""
MAX_TTL_S = 604_800
"""A week."""
DEFAULT_TTL_S = 3_600
MAX_SESSIONS = 10_000
"""A bound on memory: whoever makes sessions without end is refused, not the server brought down."""


class SessionNotFoundError(AgentCacheError):
    """No such session, or not this key's (HTTP 404; the two look the same)."""


class TooManySessionsError(AgentCacheError):
    """The store is full (HTTP 429)."""


class SessionStore:
    """Sessions by id.  Used on the event loop only.

    Args:
        clock: seconds; what idle time is measured with.
        on_end: told of every session that ends (its leases go with it).
        replica: this server's name among others, which new ids end with.
    """

    def __init__(
        self, clock: Callable[[], float], on_end: Callable[[Session], None], replica: str | None = None
    ) -> None:
        self._clock = clock
        self._on_end = on_end
        self._replica = replica
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        self.sweep()
        return len(self._sessions)

    def new_id(self) -> str:
        return tagged(f"sess_{secrets.token_hex(12)}", self._replica)

    def add(self, session: Session) -> Session:
        """Keep a session whose idle time begins now.

        Raises:
            TooManySessionsError: the store is full.
        """
        session.touch(self._clock())
        return self.put(session)

    def put(self, session: Session) -> Session:
        """Keep a session that came from elsewhere.

        Raises:
            TooManySessionsError: the store is full.
        """
        if len(self._sessions) >= MAX_SESSIONS:
            self.sweep()
        if len(self._sessions) >= MAX_SESSIONS:
            raise TooManySessionsError(f"the server holds {MAX_SESSIONS:,} sessions, the most it may: delete some")
        self._sessions[session.id] = session
        return session

    def get(self, session_id: str, owner: bytes, *, use: bool = True) -> Session:
        """The session.  To ``use`` it lets its idle time start anew; looking at it does not.

        Raises:
            SessionNotFoundError: there is none, it expired, or it is somebody else's.
        """
        session = self.find(session_id, owner)
        if session is None:
            raise SessionNotFoundError(f"session: got {session_id[:80]!r}, which does not exist or has expired")
        if use:
            session.touch(self._clock())
        return session

    def find(self, session_id: str, owner: bytes) -> Session | None:
        session = self._sessions.get(session_id)
        if session is not None and self._idle_for_too_long(session):
            self.end(session)
            return None
        return session if session is not None and session.home.owner == owner else None

    def of(self, owner: bytes) -> Iterator[Session]:
        """The owner's sessions, oldest first."""
        self.sweep()
        return (session for session in self._sessions.values() if session.home.owner == owner)

    def end(self, session: Session) -> None:
        """Forget a session; a turn in flight is aborted and no longer committed.  Its pages stay as ordinary cache."""
        session.closed = True
        turn = session.in_flight
        if turn is not None:
            turn.end()
            if turn.cancel is not None:
                turn.cancel()
        if self._sessions.pop(session.id, None) is not None:
            self._on_end(session)

    def sweep(self) -> None:
        """End the sessions that were idle for too long."""
        for session in [session for session in self._sessions.values() if self._idle_for_too_long(session)]:
            self.end(session)

    def _idle_for_too_long(self, session: Session) -> bool:
        return session.expires_at <= self._clock() and session.in_flight is None
