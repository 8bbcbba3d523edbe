"""From settings to a publisher."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agentcache.errors import SettingsError
from agentcache.kv_events.endpoint import parse_endpoint
from agentcache.settings import Settings

if TYPE_CHECKING:
    from agentcache.kv_events.publisher import EventPublisher

logger = logging.getLogger(__name__)


def open_events(settings: Settings) -> EventPublisher | None:
    """The publisher that the settings ask for, with its sockets open; it publishes once it follows a cache.

    Raises:
        SettingsError: an address is malformed, taken, or connected to where nobody answers; the last two are a warning with
            ``--store-optional``, and tried again.
    """
    if settings.kv_events is None:
        return None
    events = parse_endpoint("--kv-events", settings.kv_events)
    replay = None
    if settings.kv_events_replay is not None:
        replay = parse_endpoint("--kv-events-replay", settings.kv_events_replay, bind=True)
    from agentcache.kv_events.publisher import EventPublisher  # pyzmq and msgpack, which other servers do without
    from agentcache.kv_events.sockets import EventSockets

    sockets, trouble = EventSockets(events, replay, settings.kv_events_topic), None
    try:
        sockets.open()
    except SettingsError as error:
        if not settings.store_optional:
            sockets.close()
            raise
        trouble = str(error)
        logger.warning("%s; it is tried again", error)
    return EventPublisher(sockets, trouble=trouble, layout=settings.kv_events_format)
