"""Responses that are kept, so that conversations go on from them.

A conversation is a tree of turns; a response holds the turn that it ended, and every turn holds the one before it::

    resp_1 ──► turn 1 ◄── turn 2 ◄── turn 3 ◄── resp_3
                             ▲
                             └────── turn 3' ◄── resp_3'         (turn 2's own response was deleted)

A turn is kept for as long as anything holds it, and counts once.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache.dialects.wording import shown
from agentcache.server.errors import ApiError, bad_field

MAX_RESPONSES = 4096
"""For one key."""
MAX_BYTES = 128 * 2**20
"""For one key: of JSON, as it is kept."""
TTL_S = 24 * 3600.0
"""Since a response was last gone on from."""

Clock = Callable[[], float]


@dataclass(eq=False)
class KeptTurn:
    """What one response added to its conversation.

    Attributes:
        items: input items, then output items.
        messages: the same as the model was told them.
        outputs: how many of the items were generated.
        size: bytes that it counts for, of ``items`` and ``messages`` (``size_of``).
    """

    before: KeptTurn | None
    items: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]
    outputs: int = 0
    size: int = 0
    holders: int = 0

    def chain(self) -> list[KeptTurn]:
        """From the first turn to this one."""
        turns: list[KeptTurn] = []
        turn: KeptTurn | None = self
        while turn is not None:
            turns.append(turn)
            turn = turn.before
        return turns[::-1]


@dataclass(frozen=True)
class Basis:
    """What a prompt was made of beside the conversation, to tell why a later one parts from it."""

    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    template_kwargs: Mapping[str, Any] | None = None
    salt: str | None = None
    prompt_tokens: int = 0


@dataclass
class KeptResponse:
    """A response and its place in a conversation; ``turn`` is there once it ended well."""

    id: str
    body: Mapping[str, Any]
    turn: KeptTurn | None = None
    basis: Basis = field(default_factory=Basis)
    used: float = 0.0
    size: int = 0

    @property
    def status(self) -> str:
        return str(self.body["status"])


@dataclass
class _Shelf:
    """What one key keeps, least recently used first."""

    responses: OrderedDict[str, KeptResponse] = field(default_factory=OrderedDict)
    items: dict[str, dict[str, None]] = field(default_factory=dict)
    """Item -> the responses that brought it, in order: clients send items of earlier ones again."""
    size: int = 0


class ResponseStore:
    """Safe to use from any thread.  Nobody finds what another key keeps.

    Args:
        clock: seconds; test hooks may push it forward.
    """

    def __init__(
        self, clock: Clock, *, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES, ttl_s: float = TTL_S
    ) -> None:
        self._clock = clock
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._shelves: dict[bytes, _Shelf] = {}

    def begin(self, owner: bytes, name: str, body: Mapping[str, Any]) -> None:
        """A response is being made."""
        with self._lock:
            shelf = self._shelf(owner)
            shelf.responses[name] = KeptResponse(name, body, used=self._clock())
            self._make_room(shelf)

    def finish(self, owner: bytes, response: KeptResponse) -> None:
        """Keep a response that was begun, unless it was deleted meanwhile."""
        with self._lock:
            shelf = self._shelf(owner)
            if self._drop(shelf, response.id):
                response.used = self._clock()
                self._put(shelf, response)
                self._make_room(shelf)

    def abandon(self, owner: bytes, name: str) -> None:
        """The response will not be finished.  Nothing, once it was."""
        with self._lock:
            shelf = self._shelf(owner)
            found = shelf.responses.get(name)
            if found is not None and found.status == "in_progress":
                self._drop(shelf, name)

    def get(self, owner: bytes, name: str) -> KeptResponse:
        """
        Raises:
            ApiError: 404: there is none, it expired, or it is another key's.
        """
        found = self.find(owner, name)
        if found is None:
            raise _unknown("response_id", name, "response_not_found")
        return found

    def find(self, owner: bytes, name: str) -> KeptResponse | None:
        with self._lock:
            return self._shelf(owner).responses.get(name)

    def go_on_from(self, owner: bytes, name: str) -> KeptResponse:
        """
        Raises:
            ApiError: 404 as ``get``; 400 where the response failed or is still being made.
        """
        with self._lock:
            shelf = self._shelf(owner)
            found = shelf.responses.get(name)
            if found is None:
                raise _unknown("previous_response_id", name, "previous_response_not_found")
            if found.turn is None:
                why = f"got {shown(name)}, which is {found.status}, expected a response that was completed"
                raise bad_field("previous_response_id", why, code="previous_response_unusable")
            found.used = self._clock()
            shelf.responses.move_to_end(name)
            return found

    def delete(self, owner: bytes, name: str) -> None:
        """
        Raises:
            ApiError: 404 as ``get``.
        """
        with self._lock:
            if not self._drop(self._shelf(owner), name):
                raise _unknown("response_id", name, "response_not_found")

    def item(self, owner: bytes, item_id: str) -> Mapping[str, Any] | None:
        """An input or output item of a response that is kept."""
        with self._lock:
            shelf = self._shelf(owner)
            names = shelf.items.get(item_id)
            response = shelf.responses[next(reversed(names))] if names else None
            turn = None if response is None else response.turn
            return next((item for item in turn.items if item["id"] == item_id), None) if turn else None

    def size(self, owner: bytes) -> int:
        """Bytes that a key keeps."""
        with self._lock:
            return self._shelf(owner).size

    # -- under the lock

    def _shelf(self, owner: bytes) -> _Shelf:
        """Without what has expired."""
        shelf = self._shelves.setdefault(owner, _Shelf())
        until = self._clock() - self._ttl_s
        while shelf.responses and (oldest := next(iter(shelf.responses.values()))).used < until:
            self._drop(shelf, oldest.id)
        return shelf

    def _put(self, shelf: _Shelf, response: KeptResponse) -> None:
        response.size = size_of(response.body) + size_of(response.basis.tools)
        shelf.size += response.size
        shelf.responses[response.id] = response
        for item in () if response.turn is None else response.turn.items:
            shelf.items.setdefault(str(item["id"]), {})[response.id] = None
        turn = response.turn
        while turn is not None:
            turn.holders += 1
            if turn.holders > 1:
                break
            shelf.size += turn.size
            turn = turn.before

    def _drop(self, shelf: _Shelf, name: str) -> bool:
        response = shelf.responses.pop(name, None)
        if response is None:
            return False
        shelf.size -= response.size
        for item in () if response.turn is None else response.turn.items:
            names = shelf.items.get(str(item["id"]), {})  # an item that stands there twice is gone already
            names.pop(name, None)
            if not names:
                shelf.items.pop(str(item["id"]), None)
        turn = response.turn
        while turn is not None:
            turn.holders -= 1
            if turn.holders:
                break
            shelf.size -= turn.size
            turn = turn.before
        return True

    def _make_room(self, shelf: _Shelf) -> None:
        while len(shelf.responses) > self._max_responses or (shelf.responses and shelf.size > self._max_bytes):
            self._drop(shelf, next(iter(shelf.responses)))


def _unknown(field: str, name: str, code: str) -> ApiError:
    why = f"{field}: got {shown(name)}, which is not kept here: it never was, it expired, or it was deleted"
    return ApiError(404, why, param=field, code=code)


def chained(turn: KeptTurn | None) -> Iterator[KeptTurn]:
    """Every turn of a conversation, first to last."""
    return iter(() if turn is None else turn.chain())


def size_of(value: Any) -> int:
    """Bytes that something counts for.  A long conversation takes a while: not on the event loop."""
    return len(json.dumps(value, ensure_ascii=False, default=list).encode())
