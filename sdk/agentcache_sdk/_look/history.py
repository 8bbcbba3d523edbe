"""Where a request stops saying what an earlier one said, and whether it says it again behind that place.

That is what a finding needs: text that was computed once and is computed again only because of what stands before it.
Requests that part and never meet again are forks, or conversations of their own, and nothing is wrong with them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import takewhile

from agentcache_sdk._look.memory import Request
from agentcache_sdk._look.said import Said
from agentcache_sdk._look.texts import MIN_SHARED, slot_changes, span, writing_change

HEAD_ROLES = frozenset({"system", "developer"})
_REACH = 64
"""Messages that may be taken out or put in, at most, for two histories still to be compared."""


@dataclass(frozen=True, slots=True)
class Parting:
    """::

        earlier:  [ at messages, the same in both )[ gone messages )[ == the same again ==
        later:    [ at messages, the same in both )[ new messages  )[ == the same again ==

    Attributes:
        earlier: with the reply that came back, if the later request has it.
        shared: characters that are the same again, in the first message that differs and in those behind it.
        meets: the same conversation goes on behind the difference.
    """

    earlier: tuple[Said, ...]
    later: tuple[Said, ...]
    request: Request
    at: int
    gone: int
    new: int
    shared: int
    meets: bool

    @property
    def pair(self) -> tuple[Said, Said]:
        """The first messages that differ."""
        return self.earlier[self.at], self.later[self.at]

    @property
    def in_head(self) -> bool:
        """No reply stands before the difference."""
        return all(message.role != "assistant" for message in self.later[: self.at])

    @property
    def moved(self) -> bool:
        """What is gone here stands further behind."""
        digest = self.earlier[self.at].digest
        return any(message.digest == digest for message in self.later[self.at :])


def part(earlier: Request, replies: Sequence[Said], later: Request, generated: Container[int]) -> Parting | None:
    """``None`` when one is the beginning of the other, or nothing behind the difference is the same.

    Args:
        replies: to ``earlier``.
        generated: digests of what a model said; an assistant's message that nobody generated may be an example, and
            examples may be chosen anew for each request.
    """
    at = earlier.equal_messages(later)
    if at in (len(earlier.messages), len(later.messages)):
        return None
    if at == len(later.messages) - 1 and any(message.role == "assistant" for message in later.messages[:at]):
        return None  # a fork: nothing stands behind
    mine = _with_reply(earlier, replies, later)
    theirs = later.messages
    meeting = _meeting(mine[at : at + _REACH], theirs[at : at + _REACH])
    gone, new = meeting or (1, 1)
    again = _again(mine[at + gone :], theirs[at + new :]) if meeting else ()
    # Only a reply shows that it is the same conversation: two may well ask the same.
    meets = any(message.role == "assistant" and message.digest in generated for message in again)
    inside = _inside(mine[at], theirs[at]) if gone == new else 0
    found = Parting(mine, theirs, earlier, at, gone, new, _chars(again) + inside, meets)
    alike = gone == new == 1 and mine[at].role == theirs[at].role and mine[at].text != theirs[at].text
    if not meets and not (found.in_head and alike):
        return None
    return found if found.shared >= MIN_SHARED else None


def _with_reply(earlier: Request, replies: Sequence[Said], later: Request) -> tuple[Said, ...]:
    digests = {message.digest for message in later.messages}
    reply = next((reply for reply in replies if reply.digest in digests), None)
    return earlier.messages if reply is None else (*earlier.messages, reply)


def _meeting(mine: Sequence[Said], theirs: Sequence[Said]) -> tuple[int, int] | None:
    """How many messages to skip in each so that most of what follows is the same; fewest where that is equal."""
    places: dict[int, int] = {}
    for index, message in enumerate(theirs):
        places.setdefault(message.digest, index)
    meetings = [(gone, places[message.digest]) for gone, message in enumerate(mine) if message.digest in places]
    if len(mine) > 1 and len(theirs) > 1 and mine[1].digest == theirs[1].digest:
        meetings.append((1, 1))
    return max(meetings, key=lambda m: (_chars(_again(mine[m[0] :], theirs[m[1] :])), -sum(m)), default=None)


def _again(mine: Sequence[Said], theirs: Sequence[Said]) -> tuple[Said, ...]:
    """The messages that both begin with."""
    return tuple(
        b for a, b in takewhile(lambda pair: pair[0].digest == pair[1].digest, zip(mine, theirs, strict=False))
    )


def _chars(messages: Sequence[Said]) -> int:
    return sum(message.chars for message in messages)


def _inside(a: Said, b: Said) -> int:
    """Characters of the first differing message that are the same again behind the difference."""
    if a.role != b.role or a.text == b.text:
        return 0
    where = span(a.text, b.text)
    if writing_change(a.text, b.text, where.head):
        return len(b.text) - where.head
    if b.role in HEAD_ROLES and (changes := slot_changes(a.text, b.text, where)):
        # All that differs is filled in, so all but that is the same, however many places there are.
        return len(b.text) - changes[0].char - sum(len(change.after) for change in changes)
    return where.tail
