"""What a request is routed by."""

from __future__ import annotations

from typing import NamedTuple


class RoutingKey(NamedTuple):
    """What is known of a request before anybody answers it.

    Attributes:
        chain: keys of the prompt's full pages (``cache.hashing``), the first page first; empty where there is no prompt.
        tokens: of the prompt.
        sticky: the replica that has what the request names (a session, a stored response), by its name.
        affinity: what requests that belong together have in common, by their own word (a session's id, a
            ``prompt_cache_key``); decides between replicas that are otherwise equal.
        thread: the name of the conversation that the prompt belongs to, by what its first messages say.  Replies that were
            generated may have other tokens than their text has, so of a long conversation the chain may tell only the
            beginning; the thread tells the rest.
        certain: pages of ``chain`` before the first reply; behind them the replica may know the same text by other keys.
            0: there is no reply, or nobody knows.
    """

    chain: tuple[bytes, ...] = ()
    tokens: int = 0
    sticky: str | None = None
    affinity: bytes = b""
    thread: bytes = b""
    certain: int = 0
