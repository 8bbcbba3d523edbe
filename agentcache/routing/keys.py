"""What a request is routed by."""

from __future__ import annotations

from typing import NamedTuple


class RoutingKey(NamedTuple):
    """What is known of a request before anybody answers it.

    Attributes:
        chain: keys of the prompt's full pages (``cache.hashing``), the first page first; empty where there is no prompt.
        tokens: of the prompt.
        sticky: the replica that has what the request names (a session, a stored response), by its name.
        affinity: what requests that belong together have in common (a session's id, a ``prompt_cache_key``, the first page);
            decides between replicas that are otherwise equal.
    """

    chain: tuple[bytes, ...] = ()
    tokens: int = 0
    sticky: str | None = None
    affinity: bytes = b""
