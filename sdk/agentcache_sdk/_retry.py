"""When a second attempt can help, and how long to wait for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from agentcache_sdk.errors import AgentCacheError, APIError, ConnectionFailed

LONGEST_WAIT_S = 30.0


@dataclass(frozen=True)
class RetryPolicy:
    """Retries what failed before the server did any work for it.

    A refused connection, 502 and 503 wait 0.25 s, 0.5 s, 1 s ... (each shortened by up to half, so that clients do not
    come back in step).  A 429 is retried only when the server says when, and only if that is soon.
    """

    max_retries: int = 2
    first_wait_s: float = 0.25
    jitter: Callable[[], float] = random.random

    def wait_before(self, attempt: int, failure: AgentCacheError) -> float | None:
        """Seconds to wait before attempt number ``attempt`` (1 is the first retry); ``None``: do not retry."""
        if attempt > self.max_retries:
            return None
        backoff = min(self.first_wait_s * 2 ** (attempt - 1), LONGEST_WAIT_S) * (1 - self.jitter() / 2)
        if isinstance(failure, ConnectionFailed):
            return None if failure.sent else backoff
        if not isinstance(failure, APIError) or failure.status not in (429, 502, 503):
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= LONGEST_WAIT_S else None
        return None if failure.status == 429 else backoff
