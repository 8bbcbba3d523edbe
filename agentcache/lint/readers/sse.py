"""Server-sent events, as a recorded answer holds them."""

from __future__ import annotations

import json
from typing import Any


def events_of(text: str) -> list[dict[str, Any]]:
    """The JSON objects that the events of ``text`` hold, in order; whatever else is in it is left out.

    An event without a ``type`` of its own that has a name gets the name as its type.
    """
    found: list[dict[str, Any]] = []
    name, data = "", list[str]()
    # Only these end a line of events; str.splitlines would cut inside JSON texts.
    for line in (*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""):
        if not line:
            if data:
                _add(found, name, "\n".join(data))
            name, data = "", []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].strip()
    return found


def _add(found: list[dict[str, Any]], name: str, data: str) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # [DONE], or an answer that was cut
        return
    if isinstance(value, dict):
        found.append(value if not name or "type" in value else {"type": name, **value})
