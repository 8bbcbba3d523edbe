"""Who gives its pages back when they run out, in which way, and why that comes to an end.

Bounds, for any traffic:

* No sequence is preempted more than ``max_preemptions`` times (4).
* Nobody computes more than three times its prompt, and its reply once, in chunks of prefill.

Each time a sequence comes back, more of its growth is *secured*, which means that pages for it are promised: an eighth of
what it may still generate, then a quarter, then half, then all; all at once where the second bound asks for it::

    tokens:   | prompt ........ | output ... |  secured growth  |  not promised ............ |
    after preemption 1, 2, 3, 4:             |  1/8, 1/4, 1/2, 1 of what is left             |

All is secured at once where losing everything again would make it compute more than twice its prompt again: whoever comes
back otherwise has ``lost so far + length <= 2 * prompt``, so the next loss, of a longer sequence by what it replies meanwhile,
ends at ``2 * prompt + reply`` or below.

Once all is secured it is *settled*: it takes only pages that are its own by promise, is no victim, and publishes nothing
(a page that is published beside an equal one holds both, which no promise counts).

Why everything finishes:

1. A settled sequence always moves on.  ``room >= promised to the settled`` holds when one is admitted; after that
   only sequences that are not settled can take from the room unasked, by publishing beside an equal page, and they are
   preempted until the settled one has its page.
2. While none is settled, the oldest that runs is not preempted for another; it is so for itself only when it runs alone.
   Alone it fits: no request is taken in whose end the pool cannot hold.
3. So every step moves somebody, or preempts somebody; preemptions are bounded by 1., so finitely many steps are left.

The rest is only about doing it well: victims are those that free most pages per token of lost work, sequences outside
their promise and inside their allowance first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from agentcache.cache.manager import CacheManager
from agentcache.request import Sequence
from agentcache.scheduler.outlook import private_part


class Way(enum.Enum):
    """How a victim's pages are given back."""

    RECOMPUTE = "recompute"
    """Published pages stay as cache until room is needed; what has gone by then is computed again."""
    SWAP = "swap"
    """Pages that nobody else has are copied to host memory first, and copied back later."""


@dataclass(frozen=True, slots=True)
class Victim:
    """What preempting ``sequence`` gives and takes: pages that come free, tokens that may be computed again."""

    sequence: Sequence
    pages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Costs:
    """Of giving pages back, in units of computing one token; tokens far behind in a long context cost more.

    Args:
        token: of computing a token again.
        context: what each token before it adds to that (attention), as a share of ``token``.
        page: of copying one page to the host and back; ``None`` where there is no host memory for it.
    """

    token: float = 1.0
    context: float = 0.0
    page: float | None = None

    def recompute(self, victim: Victim) -> float:
        lease = victim.sequence.lease
        end = 0 if lease is None else lease.computed
        mean_context = end - victim.tokens / 2
        return victim.tokens * self.token * (1 + self.context * mean_context)

    def way(self, victim: Victim, host_room: int) -> Way:
        """The cheaper way; recompute where the host has no room for ``victim.pages``."""
        if self.page is None or host_room < victim.pages or self.recompute(victim) <= victim.pages * self.page:
            return Way.RECOMPUTE
        return Way.SWAP

    def of(self, victim: Victim, host_room: int) -> float:
        """What the cheaper way costs."""
        if self.page is not None and self.way(victim, host_room) is Way.SWAP:
            return victim.pages * self.page
        return self.recompute(victim)


def final_length(sequence: Sequence) -> int:
    """Positions that it has when it ends; its last token is never computed."""
    return sequence.prompt_len + max(0, sequence.max_tokens - 1)


def settled(sequence: Sequence) -> bool:
    """Whether all its growth is promised."""
    return sequence.secured > 0 and sequence.secured >= final_length(sequence)


def secure(sequence: Sequence, max_preemptions: int) -> int:
    """How far a sequence that comes back is to be secured, in tokens."""
    length, end = len(sequence.tokens), final_length(sequence)
    if sequence.preemptions >= max_preemptions or sequence.recomputed + length > allowance(sequence):
        return max(length, end)
    share: float = 2.0 ** (sequence.preemptions - max_preemptions)
    return max(1, min(length + int((end - length) * share), end - 1))


def allowance(sequence: Sequence) -> int:
    """Tokens that preemptions may make it compute again: with its prompt, three times the prompt."""
    return 2 * sequence.prompt_len


def choose_victim(
    manager: CacheManager, running: Iterable[Sequence], costs: Costs, host_room: int = 0
) -> Victim | None:
    """The one of ``running`` (oldest first) that frees most pages per token of lost work; settled ones never.

    Those inside their promise, or whose loss would be more than their allowance, only when there is nobody else.  Of
    equals, the last to come.
    """

    def merit(victim: Victim) -> tuple[bool, bool, bool, float, int]:
        sequence = victim.sequence
        promised = len(sequence.tokens) < sequence.secured
        dear = sequence.recomputed + victim.tokens > allowance(sequence)
        value = victim.pages / (costs.of(victim, host_room) + 1)
        return not promised, victim.pages > 0, not dear, value, sequence.rank

    victims = [
        Victim(sequence, *private_part(manager, sequence.lease))
        for sequence in running
        if sequence.lease is not None and not settled(sequence)
    ]
    return max(victims, key=merit, default=None)
