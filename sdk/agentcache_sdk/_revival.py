"""A session that its server has lost goes on from a snapshot that has all of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentcache_sdk import _session_calls as calls
from agentcache_sdk._calls import Steps
from agentcache_sdk._transcript import Transcript, TurnRecord
from agentcache_sdk.errors import APIError, NotFound
from agentcache_sdk.types import SessionInfo

if TYPE_CHECKING:
    from agentcache_sdk._core import SessionCore


@dataclass(frozen=True)
class Kept:
    """A snapshot on the server, and the last of the turns that it has."""

    name: str
    last: TurnRecord | None

    def fits(self, transcript: Transcript) -> bool:
        """Whether it holds all of ``transcript``: not when turns were added, or dropped and replaced, since."""
        return (transcript.turns[-1] if transcript.turns else None) is self.last


def revive(core: SessionCore, known: str, error: APIError) -> Steps[None]:
    """Go on from a snapshot that has every turn, when the server does not know the session ``known`` any more.

    Raises:
        APIError: ``error``, which says something else, or there is no such snapshot.
    """
    if error.code != "session_not_found" or core.id is None:
        raise error
    if core.id != known:
        return  # another thread was faster
    kept = core.kept
    if kept is None or not kept.fits(core.transcript) or core.closed:
        raise error
    fields = {"from_snapshot": kept.name, "ttl_s": core.options.ttl_s, "metadata": core.options.metadata}
    try:
        info: SessionInfo = yield calls.create(fields)
    except NotFound:
        raise error from None  # what matters is that the session is gone, not that its snapshot is as well
    with core.lock:
        turns = len(core.transcript.turns)
        faster = core.id != known  # another thread
        taken = not faster and not core.closed and _is_of(info, core.transcript)
        if taken:
            core.id, core.unsettled = info.id, False
            core.notes += (
                f"turn {turns}: the server had lost the session; it goes on from the snapshot {kept.name!r}",
            )
    if not taken:
        yield from core.discard(info.id)
        if not faster:
            raise error  # somebody has put another one under that name, or closed this one


def _is_of(info: SessionInfo, transcript: Transcript) -> bool:
    """Whether a session has just the turns of ``transcript``."""
    turns = [(turn.prompt_tokens, turn.completion_tokens) for turn in info.turns]
    usages = [record.turn.usage for record in transcript.turns]
    if turns != [(usage.prompt_tokens, usage.completion_tokens) for usage in usages]:
        return False
    return info.messages is None or transcript.resumed or _plain(info.messages) == _plain(transcript.committed)


def _plain(messages: list[dict[str, Any]]) -> str:
    return json.dumps(messages, sort_keys=True)
