"""What an ingress and a replica say to each other: plain data, and one object that only the ingress's own process sees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from agentcache.local.exchange import Head
from agentcache.ray.exchange import Sent
from agentcache.routing.feed import Cursor, FeedDelta

Groups = Sequence[Sequence[str]]
"""Names of replicas, the best group first."""
Choose = Callable[[Collection[str]], Groups]


class Asked(NamedTuple):
    """What a replica gets: a request, and how far the asker knows the pages of the replicas that may get it."""

    sent: Sent
    cursors: Mapping[str, Cursor]


class Taken(NamedTuple):
    """The first thing that a replica says: the request is in its hands."""

    replica: str


class Trailer(NamedTuple):
    """The last thing: what became of the replica's pages since the asker's cursor, if that is little."""

    news: FeedDelta | None


Part = Taken | Head | bytes | Trailer


class Whole(NamedTuple):
    """An answer in one piece."""

    replica: str
    head: Head
    body: bytes


class News(NamedTuple):
    """What a replica says of itself when it is asked now and then.

    Attributes:
        reason: why it is not healthy.
        troubles: what is wrong with each thing that it works with outside its process; ``None`` where nothing is.
    """

    replica: str
    delta: FeedDelta
    healthy: bool
    reason: str
    troubles: Mapping[str, str | None]


class ReplicaLostError(Exception):
    """The replica that had a request is gone, or nobody knows what became of the request.

    Attributes:
        replica: its name, once it had taken the request.
    """

    def __init__(self, message: str, replica: str | None) -> None:
        super().__init__(message)
        self.replica = replica


class NoReplicaError(Exception):
    """There is no replica for a request: none at all, none that was asked for, or none with room in time."""


class Call:
    """A request on its way through Ray's router, which asks it where it wants to go.

    Sent to a replica it becomes an ``Asked``: ``choose`` belongs to the process that routes.

    Args:
        choose: ranks those of the replicas that are there; raises ``NoReplicaError`` where none will do.
            Called on the router's thread, and again whenever a choice came to nothing.
    """

    def __init__(self, sent: Sent, choose: Choose) -> None:
        self.sent = sent
        self.choose = choose
        self.cursors: dict[str, Cursor] = {}

    def asked(self) -> Asked:
        return Asked(self.sent, self.cursors)

    def __reduce__(self) -> tuple[Any, ...]:
        return Asked, (self.sent, self.cursors)
