"""Which whole pages this server has, and in which tier, told as it changes.

Both who routes requests to several servers and who publishes events read it; a page that is only partly filled is not told.
"""

from __future__ import annotations

from typing import NamedTuple


class PageArrived(NamedTuple):
    """``tier`` now has the page: ``device``, ``host`` or ``disk``.

    ``parent`` is the key of the page before it, or of the namespace root; ``root`` that of the namespace.  ``tokens`` are packed.
    """

    key: bytes
    parent: bytes
    root: bytes
    tokens: bytes
    tier: str


class PageLeft(NamedTuple):
    """``tier`` has the page no more; another tier may."""

    key: bytes
    tier: str


class AllLeft(NamedTuple):
    """``tier`` is empty now."""

    tier: str


Residence = PageArrived | PageLeft | AllLeft
