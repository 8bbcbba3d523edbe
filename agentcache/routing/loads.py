"""How busy replicas are, in tokens of work.

Every ingress counts what it sent itself, and each replica says now and then what it has from everybody.  What a replica said
replaces what was counted up to then; what was sent later is added::

    sent by this ingress   ──o────o──────o───o──►
    reports of the replica ────────R────────────►     load = R + the last two
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class ReplicaLoad(NamedTuple):
    """What a replica has to do.

    Attributes:
        tokens: of prompts that are waiting or being computed, less what is cached and what was computed.
        running: sequences that generate.
    """

    tokens: int = 0
    running: int = 0


@dataclass(slots=True)
class Ticket:
    """One request on its way; ``tokens`` of its prompt are to be computed there."""

    replica: str
    tokens: int
    sent_at: float
    chain: tuple[bytes, ...] = ()
    started: bool = False


@dataclass(slots=True)
class _Tally:
    report: ReplicaLoad | None = None
    reported_at: float = float("-inf")
    open: dict[int, Ticket] = field(default_factory=dict)


class Ledger:
    """Loads of replicas as one ingress knows them.  Not thread-safe: the router holds its lock around it.

    Args:
        stale_s: how long a report is worth something.
        transit_s: a request that was sent less than this before a report may not have been in it.
    """

    def __init__(
        self, stale_s: float = 5.0, transit_s: float = 0.05, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stale_s = stale_s
        self._transit_s = transit_s
        self._clock = clock
        self._tallies: dict[str, _Tally] = {}

    def join(self, replica: str) -> None:
        self._tallies.setdefault(replica, _Tally())

    def leave(self, replica: str) -> None:
        self._tallies.pop(replica, None)

    def report(self, replica: str, load: ReplicaLoad) -> None:
        tally = self._tallies.get(replica)
        if tally is not None:
            tally.report, tally.reported_at = load, self._clock()

    def routed(self, replica: str, tokens: int, chain: tuple[bytes, ...] = ()) -> Ticket:
        ticket = Ticket(replica, tokens, self._clock(), chain)
        tally = self._tallies.get(replica)
        if tally is not None:
            tally.open[id(ticket)] = ticket
        return ticket

    def started(self, ticket: Ticket) -> None:
        """Its prompt is computed."""
        ticket.started = True

    def ended(self, ticket: Ticket) -> None:
        """Idempotent."""
        tally = self._tallies.get(ticket.replica)
        if tally is not None:
            tally.open.pop(id(ticket), None)

    def load(self, replica: str) -> ReplicaLoad:
        tally = self._tallies.get(replica)
        if tally is None:
            return ReplicaLoad()
        fresh = tally.report is not None and self._clock() - tally.reported_at < self._stale_s
        base = tally.report if fresh and tally.report is not None else ReplicaLoad()
        after = tally.reported_at - self._transit_s if fresh else float("-inf")
        newer = [ticket for ticket in tally.open.values() if ticket.sent_at > after]
        return ReplicaLoad(
            base.tokens + sum(ticket.tokens for ticket in newer if not ticket.started),
            base.running + sum(1 for ticket in newer if ticket.started),
        )
