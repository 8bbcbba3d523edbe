"""When a second attempt can help, and how long to wait for it."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass

from agentcache_sdk.errors import AgentCacheError, APIError, Busy, ConnectionFailed

LONGEST_WAIT_S = 30.0
SETTLING_S = 10.0
"""How long a server may take to notice that a client hung up: a step of the model, and a long prompt makes long steps."""


class Repeat(enum.Enum):
    """Which failures of a call may be cured by making it again."""

    NEVER = "never"
    IF_REFUSED = "if refused"
    """What failed before the server did any work."""
    APPENDING = "appending"
    """The same, for what must not happen twice: a gateway's 502 does not say whether it happened once."""
    SETTLING = "settling"
    """The same, and ``Busy``: the turn that keeps the session busy was cut by this client and is about to end."""


@dataclass(frozen=True)
class RetryPolicy:
    """Retries what failed before the server did any work for it.

    A refused connection, 502 and 503 wait 0.25 s, 0.5 s, 1 s ... (each shortened by up to half, so that clients do not
    come back in step).  A 429 is retried only when the server says when, and only if that is soon.
    """

    max_retries: int = 2
    first_wait_s: float = 0.25
    jitter: Callable[[], float] = random.random

    def wait_before(self, attempt: int, failure: AgentCacheError, repeat: Repeat = Repeat.IF_REFUSED) -> float | None:
        """Seconds to wait before attempt number ``attempt`` (1 is the first retry); ``None``: do not retry."""
        if repeat is Repeat.SETTLING and isinstance(failure, Busy):
            return _settling_wait(attempt)
        if attempt > self.max_retries or repeat is Repeat.NEVER:
            return None
        backoff = min(self.first_wait_s * 2 ** (attempt - 1), LONGEST_WAIT_S) * (1 - self.jitter() / 2)
        if isinstance(failure, ConnectionFailed):
            return None if failure.sent else backoff
        if not isinstance(failure, APIError) or failure.status not in _CURABLE[repeat]:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= LONGEST_WAIT_S else None
        return None if failure.status == 429 else backoff


_CURABLE = {
    Repeat.IF_REFUSED: (429, 502, 503),
    Repeat.APPENDING: (429, 503),
    Repeat.SETTLING: (429, 503),
}


def _settling_wait(attempt: int) -> float | None:
    """10, 20, 40 ... 320 ms, then every 320 ms until ``SETTLING_S`` are over."""
    longest = 0.32
    wait = min(0.01 * 2 ** (attempt - 1), longest)
    return wait if (attempt - 6) * longest <= SETTLING_S else None
