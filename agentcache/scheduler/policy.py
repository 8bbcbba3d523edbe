"""Who is admitted first.  A policy is a function ``key(sequence) -> tuple``; the smallest key goes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentcache.request import Sequence

Policy = Callable[[Sequence], tuple[Any, ...]]


def first_come(sequence: Sequence) -> tuple[Any, ...]:
    """Priority classes (a lower number goes first), then order of arrival."""
    return (sequence.request.priority, sequence.rank)


POLICIES: dict[str, Policy] = {"fcfs": first_come}
