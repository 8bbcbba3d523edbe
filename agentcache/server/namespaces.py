"""What each API key has asked for under which salt: to show a key its own namespaces, and nobody else's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TypeVar

from xxhash import xxh3_128_digest

from agentcache.cache.hashing import pack_tokens

_NAMESPACES = 1024
_BEGINNINGS = 8192
_V = TypeVar("_V")


class Namespaces:
    """Used on the event loop only; a bounded memory for each key.

    Args:
        page_size: tokens a page; prompts are compared by their first page.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._keys: dict[str | None, _Seen] = {}

    def note(self, key: str | None, root: bytes, salt: str | None, ids: Sequence[int]) -> None:
        """``key`` was served the prompt ``ids`` in the namespace ``root``."""
        seen = self._keys.setdefault(key, _Seen())
        _put(seen.salts, root, salt, _NAMESPACES)
        if (beginning := self._beginning(ids)) is not None:
            known = seen.beginnings.get(beginning, ())
            # Two are enough to tell that there is another one.
            _put(seen.beginnings, beginning, known if root in known else (*known[-1:], root), _BEGINNINGS)

    def elsewhere(self, key: str | None, root: bytes, ids: Sequence[int]) -> bool:
        """Whether ``key`` was served a prompt with the same first page in another namespace of its own."""
        seen = self._keys.get(key)
        beginning = self._beginning(ids)
        if seen is None or beginning is None:
            return False
        return any(known != root for known in seen.beginnings.get(beginning, ()))

    def of(self, key: str | None) -> Mapping[bytes, str | None]:
        """Namespace -> salt, of one key."""
        seen = self._keys.get(key)
        return {} if seen is None else dict(seen.salts)

    def _beginning(self, ids: Sequence[int]) -> bytes | None:
        if len(ids) < self._page_size:
            return None
        return xxh3_128_digest(pack_tokens(ids[: self._page_size]))


class _Seen:
    def __init__(self) -> None:
        self.salts: OrderedDict[bytes, str | None] = OrderedDict()
        self.beginnings: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()


def _put(table: OrderedDict[bytes, _V], key: bytes, value: _V, limit: int) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > limit:
        table.popitem(last=False)
