"""Threads: conversations that the server holds, so that a turn sends only what is new.

Each answer of a thread is a place to go on from, once.  What is held is messages; the exact tokens of what was generated come
from the transcripts that every conversation leaves behind, so a turn reads all of the turns before it from the cache.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentcache.chat.messages import Message
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.dialects.anthropic.blocks import Calls, Placed
from agentcache.dialects.reply_message import message_json
from agentcache.dialects.wording import shown
from agentcache.server.anthropic.bodies import MessagesBody
from agentcache.server.anthropic.checks import refuse
from agentcache.server.anthropic.translate import Conversation
from agentcache.server.errors import ApiError
from agentcache.server.generation import Delta, Generation
from agentcache.server.job import Ending
from agentcache.server.replies.reading import Reading
from agentcache.server.usage import Notes

_KEPT = 10_000
_KEPT_CHARACTERS = 2**27
_HELD = "thread."


@dataclass
class HeldTurn:
    """A conversation up to one answer.

    Attributes:
        said: nothing, once the conversation has gone on.
        in_flight: a turn that goes on from here is being generated.
        continued: one was.
    """

    said: Conversation
    characters: int
    in_flight: bool = False
    continued: bool = False


class Threads:
    """Held turns by owner and id of the answer; those that were held first go first.  Used on the event loop.

    Args:
        kept, characters: how many turns are held, and how much they may say together.
    """

    def __init__(self, kept: int = _KEPT, characters: int = _KEPT_CHARACTERS) -> None:
        self._kept = kept
        self._room = characters
        self._turns: OrderedDict[tuple[bytes, str], HeldTurn] = OrderedDict()

    def find(self, body: MessagesBody, owner: bytes) -> HeldTurn | None:
        """The turn that ``body`` goes on from; ``None`` where it begins a thread, or has none.

        Raises:
            ApiError: 400 or 404, with the codes that Anthropic's clients know how to recover from.
        """
        previous = asked_thread(body)
        if previous is None:
            return None
        turn = self._turns.get((owner, previous))
        place = "thread.previous_message_id"
        if turn is None:
            why = f"{place}: got {shown(previous)}, which this server does not hold; send the whole conversation"
            raise ApiError(404, why, param=place, code="thread_not_found")
        if turn.continued:
            raise refuse(place, f"got {shown(previous)}, which was continued already", code="thread_already_continued")
        if turn.in_flight:
            raise refuse(place, f"got {shown(previous)}, which is being continued", code="thread_continue_in_flight")
        return turn

    def hold(self, owner: bytes, answer_id: str, said: Conversation) -> None:
        characters = sum(map(_characters, said.messages))
        self._turns[owner, answer_id] = HeldTurn(said, characters)
        self._room -= characters
        while len(self._turns) > self._kept or self._room < 0:
            _, gone = self._turns.popitem(last=False)
            self._room += gone.characters
            gone.characters = 0

    def passed(self, turn: HeldTurn) -> None:
        """The conversation has gone on from ``turn``, which is never asked for again."""
        turn.continued = True
        self._room += turn.characters
        turn.said, turn.characters = Conversation(()), 0


def _characters(message: Message) -> int:
    calls = message.get("tool_calls")
    return (
        len(message["content"]) + len(message.get("reasoning_content", "")) + (len(json.dumps(calls)) if calls else 0)
    )


def asked_thread(body: MessagesBody) -> str | None:
    """The answer that ``body`` goes on from.

    Raises:
        ApiError: 400, also for fields that belong to the beginning of a thread.
    """
    thread: Mapping[str, Any] = body.thread or {"type": "create"}
    kind = thread.get("type")
    if kind == "create":
        return None
    if kind != "continue":
        raise refuse("thread.type", f"got {'nothing' if kind is None else shown(kind)}, expected create or continue")
    previous = thread.get("previous_message_id")
    if not isinstance(previous, str):
        raise refuse("thread.previous_message_id", f"got {shown(previous)}, expected the id of an answer")
    for name in ("system", "tools"):
        if getattr(body, name) is not None:
            why = "got it with a thread that goes on, whose own never change; leave it out"
            raise refuse(name, why, code="thread_fingerprint_mismatch")
    if not body.messages:
        raise refuse("messages", "got an empty list, expected at least one message")
    return previous


class ThreadEnding:
    """Holds the conversation when its turn has been generated.

    Args:
        before: the turn that it goes on from.
    """

    def __init__(self, inner: Ending, threads: Threads, turn: Turn, before: HeldTurn | None) -> None:
        self._inner = inner
        self._threads = threads
        self._turn = turn
        self._before = before
        if before is not None:
            before.in_flight = True

    def started(self, generation: Generation) -> None:
        self._inner.started(generation)

    async def finish(self, choices: Sequence[Delta]) -> Notes:
        notes = await self._inner.finish(choices)
        turn = self._turn
        reply = None if turn.reading is None else turn.reading.read(0, choices[0].text)
        self._threads.hold(turn.owner, turn.answer_id, answered(turn.said, reply))
        if self._before is not None:
            self._threads.passed(self._before)
        return notes

    def drop(self) -> None:
        self._inner.drop()
        if self._before is not None:
            self._before.in_flight = False


@dataclass(frozen=True)
class Turn:
    """What a turn of a thread will be held as.

    Attributes:
        reading: of its reply; ``None`` where it only fills the cache.
    """

    owner: bytes
    answer_id: str
    said: Conversation
    reading: Reading | None


def answered(said: Conversation, reply: ReplyMessage | None) -> Conversation:
    """The conversation with ``reply`` at its end, if there is one, ready to be continued."""
    held = [_held(placed) for placed in said.placed]
    if reply is None and said.prefill is None:
        return replace(said, placed=held)
    told = reply or ReplyMessage()
    message: Message = message_json(told)
    message["content"] = (said.prefill or "") + told.content
    names = said.calls.names | {call.id: call.name for call in told.calls}
    return replace(said, placed=[*held, Placed(message, f"{_HELD}reply", None)], prefill=None, calls=Calls(names))


def _held(placed: Placed) -> Placed:
    if placed.place == "system" or placed.place.startswith(_HELD):
        return placed
    return replace(placed, place=_HELD + placed.place, index=None)
