"""Which replies were generated here: by them a conversation is known although its history was changed."""

from __future__ import annotations

import threading
from collections import OrderedDict

from xxhash import xxh3_128_digest

_KEPT = 16_384
_LEAST = 16
"""Characters; anybody says something shorter."""


class SaidReplies:
    """Hashes of replies by namespace; the oldest are forgotten.  Safe to use from any thread.

    Args:
        kept: how many.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, root: bytes, text: str) -> None:
        """``text`` was generated in the namespace ``root``."""
        if (name := _name(root, text)) is None:
            return
        with self._lock:
            self._known[name] = None
            self._known.move_to_end(name)
            if len(self._known) > self._kept:
                self._known.popitem(last=False)

    def tells_apart(self, text: str) -> bool:
        """Whether a reply is long enough to be known again."""
        return len(text.strip()) >= _LEAST

    def knows(self, root: bytes, text: str) -> bool:
        name = _name(root, text)
        return name is not None and name in self._known


def _name(root: bytes, text: str) -> bytes | None:
    plain = text.strip()
    return None if len(plain) < _LEAST else xxh3_128_digest(root + plain.encode("utf-8", "surrogatepass"))
