"""Everything that is kept between requests: sessions and their leases, known transcripts, snapshots, namespaces."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from functools import cached_property, partial
from typing import TYPE_CHECKING

from agentcache.cache.hashing import namespace_root
from agentcache.server.sessions.keeping import Client, Keeper, LocalKeeper
from agentcache.server.sessions.leases import Leases
from agentcache.server.sessions.namespaces import ModelsBefore, Namespaces
from agentcache.server.sessions.snapshot_shelves import FileShelf, SnapshotShelf, VaultShelf
from agentcache.server.sessions.vault_keeping import VaultKeeper
from agentcache.sessions.known import KnownTranscripts
from agentcache.sessions.records import Clock, Records
from agentcache.sessions.session import Home
from agentcache.sessions.session_json import MadeWith
from agentcache.sessions.snapshots import Snapshots
from agentcache.sessions.store import SessionStore
from agentcache.sessions.vault import SessionVault
from agentcache.settings import Settings

if TYPE_CHECKING:
    from agentcache.engine.loop import AsyncEngine

logger = logging.getLogger(__name__)

_SWEEP_S = 1.0


class SessionDesk:
    """The server's memory of conversations.  Used on the event loop, except where a part says otherwise.

    Args:
        vault: keeps sessions so that other servers can go on with them.
    """

    def __init__(self, engine: AsyncEngine, settings: Settings, vault: SessionVault | None = None) -> None:
        self._engine = engine
        self.leases = Leases(engine)
        self.store = SessionStore(engine.now, self.leases.end, settings.replica)
        self.known = KnownTranscripts()
        self.namespaces = Namespaces(engine.info.page_size)
        self.models_before = ModelsBefore(settings.disk_dir, engine.root_base, engine.info.page_size)
        self._settings = settings
        # The engine's clock is this process's monotonic one, plus what test hooks added to it.
        self._clock = Clock(time.time() - time.monotonic())
        self.keeper: Keeper = LocalKeeper(self.store)
        self.snapshots: SnapshotShelf = FileShelf(lambda: self._snapshot_files)
        if vault is not None:
            records = Records(self._made_with, self._clock)
            keeper = VaultKeeper(self.store, vault, records, engine.now, self.leases.end)
            self.keeper = keeper
            if vault.lasting:
                self.snapshots = VaultShelf(keeper.calls, records, self.snapshots)

    @cached_property
    def _made_with(self) -> MadeWith:
        templates = json.dumps(self._engine.tokenizer.chat_templates, sort_keys=True)
        template = hashlib.sha256(templates.encode()).hexdigest()[:16]
        return MadeWith("/".join(self._engine.root_base[:2]), template)

    @cached_property
    def _snapshot_files(self) -> Snapshots:
        return Snapshots((self._settings.disk_dir or self._settings.home) / "snapshots", self._made_with)

    def unix(self, at: float) -> float:
        """A time of the engine's clock in Unix seconds."""
        return round(self._clock.to_unix(at), 3)

    def home(self, key: str | None, salt: str | None) -> Home:
        owner = namespace_root("session owner", key)
        return Home(owner, namespace_root(*self._engine.root_base, key, salt), salt)

    def client(self, key: str | None) -> Client:
        return Client(self.home(key, None).owner, partial(self.home, key))

    async def sweep_for_ever(self) -> None:
        """End idle sessions on time although nobody asks for them: their leases keep pages."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.store.sweep()

    async def tend_for_ever(self) -> None:
        """Write what is owed to a vault that did not answer."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                await self.keeper.tend()
            except Exception:  # it must go on: nothing else writes what is owed
                logger.exception("what is owed to the store that keeps sessions could not be written")
