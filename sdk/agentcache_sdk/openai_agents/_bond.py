"""Which session the running task's model calls belong to.

A runner asks its session for the conversation and then, in the same task or in tasks made by it, calls models, which it does
not tell about the session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from agentcache_sdk.cache_warnings import CallSite
from agentcache_sdk.openai_agents._ledger import Heard
from agentcache_sdk.openai_agents.heads import Item


class Conversation(Protocol):
    """What a model call needs of a session."""

    session_id: str

    def hear(self, heard: Heard, site: CallSite) -> None:
        """Take in an answered model call, and warn at ``site`` of what it lost."""
        ...

    def announced(self, agent: str, text: str, items: Sequence[Item], cut: int) -> list[Item]:
        """``items`` with the instructions of every agent where it took over, ``agent``'s included."""
        ...


@dataclass
class Bond:
    """A run of a session's.

    Attributes:
        site: the user's line.
        cut: how many of the session's items the run was not given.
        woven: how many items of the model's input are announcements.
    """

    conversation: Conversation
    site: CallSite
    cut: int
    woven: int = 0


# There is no object that the runner hands both to the session and to the model.
BOND: ContextVar[Bond | None] = ContextVar("agentcache_bond", default=None)


def bond_of(body: Mapping[str, Any]) -> Bond | None:
    """The running task's bond, unless the request says that it belongs to another run.

    The runner names its session in the key that it makes for a request's ``prompt_cache_key``.  A run without a session
    that follows one with a session in the same task is told apart by it.
    """
    bond = BOND.get()
    key = body.get("prompt_cache_key")
    if bond is None or not isinstance(key, str) or not key.startswith("agents-sdk:"):
        return bond
    return bond if key == _runners_key(bond.conversation.session_id) else None


def _runners_key(session_id: str) -> str:
    return f"agents-sdk:session:{hashlib.sha256(session_id.strip().encode()).hexdigest()[:32]}"
