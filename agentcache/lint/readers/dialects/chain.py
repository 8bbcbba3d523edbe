"""Responses that were answered earlier in a file, which later requests go on from by their ids.

::

    line 1   input A            answered resp_1      resp_1: A, answer
    line 2   resp_1 + input B   answered resp_2      resp_2: ──► resp_1; B, answer
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache.lint.readers.dialects.sizes import characters_in

_MOST_CHARACTERS = 2**26
_MOST_RESPONSES = 100_000

Message = Mapping[str, Any]


@dataclass(slots=True)
class _Kept:
    before: _Kept | None
    messages: Sequence[Message]
    items: Mapping[str, Mapping[str, Any]]
    size: int


@dataclass(slots=True)
class ResponseChain:
    """What is kept of one file; the oldest goes first once it is too much (its followers keep what they need of it).

    Args:
        room: characters of messages and items.
    """

    room: int = _MOST_CHARACTERS
    _kept: OrderedDict[str, _Kept] = field(default_factory=OrderedDict)
    _items: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def messages(self, response_id: str) -> list[Message] | None:
        """The whole conversation of a response, its answer included; ``None`` of one that is not kept."""
        kept = self._kept.get(response_id)
        if kept is None:
            return None
        turns: list[Sequence[Message]] = []
        while kept is not None:
            turns.append(kept.messages)
            kept = kept.before
        return [message for turn in reversed(turns) for message in turn]

    def item(self, item_id: str) -> dict[str, Any] | None:
        """An item of a kept response."""
        found = self._items.get(item_id)
        return None if found is None else dict(found)

    def keep(
        self, response_id: str, previous: str | None, messages: Sequence[Message], items: Sequence[Mapping[str, Any]]
    ) -> None:
        """
        Args:
            messages, items: what the request added to ``previous``, and its answer.
        """
        named = {item["id"]: item for item in items if isinstance(item.get("id"), str) and "type" in item}
        size = characters_in(messages) + characters_in(items)
        if (again := self._kept.pop(response_id, None)) is not None:
            self.room += again.size
        self._kept[response_id] = _Kept(self._kept.get(previous or ""), messages, named, size)
        self._items |= named
        self.room -= size
        while self._kept and (self.room < 0 or len(self._kept) > _MOST_RESPONSES):
            _, gone = self._kept.popitem(last=False)
            self.room += gone.size
            for name in gone.items:
                self._items.pop(name, None)
