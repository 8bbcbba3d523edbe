"""Tools that a turn of a session brings along: which are new, and what the model is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentcache.chat.replies.base import function_of
from agentcache.chat.tool_text import announcement
from agentcache.dialects.wording import shown
from agentcache.server.errors import bad_field
from agentcache.sessions.added_tools import AddedTools
from agentcache.sessions.session import Session


def added_tools(session: Session, given: Sequence[dict[str, Any]], example: str) -> AddedTools | None:
    """Those of ``given`` that the session does not know; ``None`` when it knows them all.

    Agents that send all tools with every turn repeat the known ones, and a list without some of them takes none away: what a
    model was told, it was told.

    Args:
        given: function tools of different names.
        example: how the model writes a call; shown to one that was told of no tools before.

    Raises:
        ApiError: 400, a known name with another schema.
    """
    known = {function_of(tool).get("name"): tool for tool in session.tools or ()}
    new: list[dict[str, Any]] = []
    for index, tool in enumerate(given):
        name = function_of(tool).get("name")
        if name not in known:
            new.append(tool)
        elif tool != known[name]:
            message = f"got another schema of {shown(name)} than the session's, expected that one or a new name"
            raise bad_field(f"tools[{index}].function", message)
    if not new:
        return None
    return AddedTools(tuple(new), announcement(new, None if known else example))
