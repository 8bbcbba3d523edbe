"""Requests once more for templates that refuse them as they are: the server's way with Anthropic's conversations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agentcache.dialects.anthropic.turns import Turn, in_turns
from agentcache.lint.records import Keys, Place, Places, Record


def readings(record: Record) -> Iterator[Record]:
    """``record``, and then what the server renders in its place where the model's template refuses it.

    The template's refusal is a ``ChatTemplateError`` whose code is ``chat_template``; other errors are not tried again.
    """
    yield record
    messages = record.body.get("messages")
    if record.dialect != "anthropic" or not messages:
        return
    seen = [list(messages)]
    for system in (True, False):
        turns = in_turns(messages, system=system)
        joined = [turn.message for turn in turns]
        if joined not in seen:
            seen.append(joined)
            body = {**record.body, "messages": joined}
            yield replace(record, body=body, places=TurnPlaces(turns, record.places))


@dataclass(frozen=True, slots=True)
class TurnPlaces:
    """Places of messages that were joined.

    Attributes:
        inner: of the messages as they were.
    """

    turns: Sequence[Turn]
    inner: Places

    def find(self, keys: Keys, char: int | None = None) -> Place:
        match keys:
            case ("messages", int(index), *rest) if 0 <= index < len(self.turns):
                turn = self.turns[index]
                if rest[:1] == ["content"]:
                    return self._in_content(turn, tuple(rest), char)
                # What is no text is the last message's that has it; a turn takes its role from its first.
                share = turn.shares[0 if rest == ["role"] else -1]
                return self.inner.find(("messages", share.message, *rest), char)
        return self.inner.find(keys, char)

    def _in_content(self, turn: Turn, rest: Keys, char: int | None) -> Place:
        shares = [(share.start, share.message) for share in turn.shares if share.start is not None]
        if char is None or not shares:
            return self.inner.find(("messages", turn.shares[0].message, *rest), char)
        start, message = shares[max(0, bisect_right(shares, char, key=lambda share: share[0]) - 1)]
        return self.inner.find(("messages", message, *rest), char - start)
