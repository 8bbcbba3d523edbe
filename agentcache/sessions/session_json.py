"""Sessions as JSON: exact ids and text, in one format for snapshots and for records in a vault."""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from typing import Any

from agentcache.cache.hashing import pack_tokens, unpack_tokens
from agentcache.chat.tool_text import Announcement
from agentcache.sessions.added_tools import AddedTools
from agentcache.sessions.session import Head, Session
from agentcache.sessions.transcript import EndToken, KnownReply, Mark, Transcript
from agentcache.sessions.turn import Answered, Figures, Turn

FORMAT = 3
_READABLE = (1, 2, FORMAT)
"""Format 1 says nothing of replies: its conversations go on by their text.  Format 2 knows no tools that turns added."""
_MADE_WITH = ("model revision", "chat template")
UNREADABLE = (ValueError, KeyError, TypeError, OverflowError, AttributeError, IndexError, RecursionError)
"""What reading something else than such JSON raises."""


@dataclass(frozen=True, slots=True)
class MadeWith:
    """What ids depend on; a session goes on only where both are the same."""

    revision: str
    template: str
    """A hash of the chat templates; of no matter to a raw session."""

    def differs(self, data: dict[str, Any], what: str) -> str | None:
        """How this server is another one than the one that wrote ``data``, which is called ``what``."""
        pairs = [(data["revision"], self.revision), (data["template"], self.template)]
        concerned = 1 if data["head"]["raw"] else 2
        differ = [
            f"{name}: {what} has {was}, this server has {now}"
            for name, (was, now) in list(zip(_MADE_WITH, pairs, strict=True))[:concerned]
            if was != now
        ]
        return "; ".join(differ) or None


@dataclass(frozen=True, slots=True)
class Saved:
    """What a session is made from again."""

    head: Head
    transcript: Transcript
    turns: list[Turn]
    ttl_s: float
    salt: str | None
    metadata: dict[str, Any]


def session_to_json(session: Session, made_with: MadeWith, *, packed: bool = False) -> dict[str, Any]:
    """
    Args:
        packed: ids as base64 of 32-bit little-endian numbers: a tenth of the time that a long list of numbers takes.
    """
    head = session.head
    return {
        "format": FORMAT,
        "revision": made_with.revision,
        "template": made_with.template,
        "salt": session.home.salt,
        "ttl_s": session.ttl_s,
        "metadata": session.metadata,
        "head": {
            "raw": head.raw,
            "messages": list(head.messages),
            "tools": head.tools,
            "transcript": _transcript_to_json(head.transcript, packed),
        },
        "transcript": _transcript_to_json(session.transcript, packed),
        "turns": [
            {
                "messages": list(turn.messages),
                "mark": turn.mark,
                "end": turn.end,
                "replaced": None if turn.replaced is None else _transcript_to_json(turn.replaced, packed),
                "figures": asdict(turn.figures),
                "turn_id": turn.turn_id,
                "added": _added_to_json(turn.added),
                "answered": None if turn.answered is None else asdict(turn.answered),
            }
            for turn in session.turns
        ],
    }


def _added_to_json(added: AddedTools | None) -> dict[str, Any] | None:
    return None if added is None else {"schemas": list(added.schemas), "told": added.told}


def _added(data: dict[str, Any] | None) -> AddedTools | None:
    return None if data is None else AddedTools(tuple(data["schemas"]), Announcement(data["told"]))


def _transcript_to_json(transcript: Transcript, packed: bool) -> dict[str, Any]:
    ids = transcript.ids
    return {
        "ids": b64encode(pack_tokens(ids)).decode() if packed else ids.tolist(),
        "text": transcript.text,
        "end": transcript.end,
        "replies": [reply._asdict() for reply in transcript.replies],
    }


def _transcript(data: dict[str, Any]) -> Transcript:
    replies = tuple(_reply(reply) for reply in data.get("replies", ()))
    return Transcript(_ids(data["ids"]), str(data["text"]), _end(data["end"]), replies)


def _ids(data: list[int] | str) -> array[int]:
    return array("I", unpack_tokens(b64decode(data, validate=True)) if isinstance(data, str) else data)


def _reply(data: dict[str, Any]) -> KnownReply:
    return KnownReply(
        message=int(data["message"]),
        start=Mark(*data["start"]),
        end=Mark(*data["end"]),
        end_token=_end(data["end_token"]),
        header=int(data["header"]),
        reasoning=str(data["reasoning"]),
        call_ids=tuple(map(str, data["call_ids"])),
    )


def _end(data: list[Any] | None) -> EndToken | None:
    return None if data is None else EndToken(*data)


def session_from_json(data: dict[str, Any]) -> Saved:
    """
    Raises:
        UNREADABLE: it is no such JSON.
    """
    if data["format"] not in _READABLE:
        raise ValueError(f"got format {data['format']}, expected one of {_READABLE}")
    head = data["head"]
    return Saved(
        head=Head(bool(head["raw"]), tuple(head["messages"]), head["tools"], _transcript(head["transcript"])),
        transcript=_transcript(data["transcript"]),
        turns=[
            Turn(
                messages=tuple(turn["messages"]),
                mark=Mark(*turn["mark"]),
                end=_end(turn["end"]),
                replaced=None if turn["replaced"] is None else _transcript(turn["replaced"]),
                figures=Figures(**turn["figures"]),
                turn_id=turn.get("turn_id"),
                added=_added(turn.get("added")),
                answered=None if turn.get("answered") is None else Answered(**turn["answered"]),
            )
            for turn in data["turns"]
        ],
        ttl_s=float(data["ttl_s"]),
        salt=data["salt"],
        metadata=dict(data["metadata"]),
    )
