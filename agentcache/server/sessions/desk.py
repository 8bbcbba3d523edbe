"""Everything that is kept between requests: sessions and their leases, known transcripts, snapshots, namespaces."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import TYPE_CHECKING

from agentcache.cache.hashing import namespace_root
from agentcache.server.sessions.leases import Leases
from agentcache.server.sessions.namespaces import ModelsBefore, Namespaces
from agentcache.sessions.known import KnownTranscripts
from agentcache.sessions.session import Home, Session
from agentcache.sessions.snapshots import MadeWith, Snapshots
from agentcache.sessions.store import SessionStore
from agentcache.settings import Settings

if TYPE_CHECKING:
    from agentcache.engine.loop import AsyncEngine

_SWEEP_S = 1.0


class SessionDesk:
    """The server's memory of conversations.  Used on the event loop, except where a part says otherwise."""

    def __init__(self, engine: AsyncEngine, settings: Settings) -> None:
        self._engine = engine
        self.leases = Leases(engine)
        self.store = SessionStore(engine.now, self.leases.end)
        self.known = KnownTranscripts()
        self.namespaces = Namespaces(engine.info.page_size)
        self.models_before = ModelsBefore(settings.disk_dir, engine.root_base, engine.info.page_size)
        self._settings = settings
        self._snapshots: Snapshots | None = None
        # The engine's clock is this process's monotonic one, plus what test hooks added to it.
        self._epoch = time.time() - time.monotonic()

    @property
    def snapshots(self) -> Snapshots:
        if self._snapshots is None:
            folder = (self._settings.disk_dir or self._settings.home) / "snapshots"
            templates = json.dumps(self._engine.tokenizer.chat_templates, sort_keys=True)
            template = hashlib.sha256(templates.encode()).hexdigest()[:16]
            revision = "/".join(self._engine.root_base[:2])
            self._snapshots = Snapshots(folder, MadeWith(revision, template))
        return self._snapshots

    def unix(self, at: float) -> float:
        """A time of the engine's clock in Unix seconds."""
        return round(at + self._epoch, 3)

    def home(self, key: str | None, salt: str | None) -> Home:
        owner = namespace_root("session owner", key)
        return Home(owner, namespace_root(*self._engine.root_base, key, salt), salt)

    def session(self, session_id: str, key: str | None, *, use: bool = True) -> Session:
        """
        Raises:
            SessionNotFoundError: there is none, it expired, or it is another key's.
        """
        return self.store.get(session_id, self.home(key, None).owner, use=use)

    async def sweep_for_ever(self) -> None:
        """End idle sessions on time although nobody asks for them: their leases keep pages."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.store.sweep()
