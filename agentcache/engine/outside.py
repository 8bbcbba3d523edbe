"""What an engine works with outside its process, opened before the model is loaded: that takes long, and a wrong address is told
at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentcache.kv_events.opening import open_events
from agentcache.settings import Settings
from agentcache.store.opening import open_store

if TYPE_CHECKING:
    from agentcache.kv_events.publisher import EventPublisher
    from agentcache.store.base import PageStore


@dataclass(frozen=True, slots=True)
class Outside:
    """An events endpoint and a page store, each if the settings ask for it."""

    events: EventPublisher | None
    store: PageStore | None

    @classmethod
    def open(cls, settings: Settings) -> Outside:
        """
        Raises:
            SettingsError: one of them cannot be meant, or cannot be reached; the latter is only warned of with
                ``--store-optional``.
        """
        events = open_events(settings)
        try:
            if settings.store is None:
                return cls(events, None)
            return cls(events, open_store(settings.store, settings.store_timeout_s, settings.store_optional))
        except BaseException:
            cls(events, None).close()
            raise

    def close(self) -> None:
        """No engine came of it."""
        if self.events is not None:
            self.events.close(0)
        if self.store is not None:
            self.store.close()
