"""What an ingress needs of the engines behind it, however it reaches them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from agentcache.ray.exchange import Sent
from agentcache.ray.parts import Call, News, Part, Whole
from agentcache.routing.feed import Cursor

if TYPE_CHECKING:
    from agentcache.routing.profile import ModelProfile


class Replicas(Protocol):
    """All replicas of one application.  Awaited on the ingress's event loop."""

    def ask(self, call: Call) -> AsyncIterator[Sequence[Part]]:
        """Have one replica answer: whichever ``call`` wants of those that are there.

        A ``Taken`` comes first.  Closed or cancelled before the end, the replica is told that nobody listens any more.

        Raises:
            NoReplicaError: ``call`` found none that would do.
            ReplicaLostError: the replica is gone.
            AnswerCutError: its application failed.
        """
        ...

    async def ask_all(self, sent: Sent) -> list[Whole]:
        """Have each of them answer; those that cannot are left out."""
        ...

    async def news(self, cursors: Mapping[str, Cursor]) -> list[News]:
        """What each of them says of itself; those that do not answer are left out."""
        ...

    async def profile(self) -> ModelProfile:
        """That of any of them: they are alike.

        Raises:
            NoReplicaError: there is none.
        """
        ...
