"""Which session the running task's model calls belong to.

A runner asks its session for the conversation and then, in the same task or in tasks made by it, calls models, which it does
not tell about the session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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

    def knows(self, items: Sequence[Item]) -> bool:
        """Whether ``items`` can be this conversation's: they begin with one of its items, or it has none."""
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


def bond_of(items: Sequence[Item], prompt_cache_key: Any = None) -> Bond | None:
    """The running task's bond, unless what the model is given belongs to another run.

    A task's later runs without a session, and runs inside of tools (agents as tools), have the bond too.  Newer runners name the
    session in the key that they make; otherwise the conversation is known by how it begins.

    Args:
        items: the model's input.
        prompt_cache_key: of the request, once it is known.
    """
    bond = BOND.get()
    if bond is None:
        return None
    if isinstance(prompt_cache_key, str) and prompt_cache_key.startswith("agents-sdk:"):
        return bond if prompt_cache_key == _runners_key(bond.conversation.session_id) else None
    return bond if bond.conversation.knows(items) else None


def _runners_key(session_id: str) -> str:
    return f"agents-sdk:session:{hashlib.sha256(session_id.strip().encode()).hexdigest()[:32]}"
