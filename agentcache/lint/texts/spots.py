"""The string in which two prompts part, where it should have been the same in both, and whether that matters.

It matters when text that was computed once has to be computed again only because of what stands before it: the same
characters behind the difference, in the string itself, in the system text and tools behind it, or in the messages of a
conversation that goes on.  Prompts that part and never meet again are different agents, or forks.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from agentcache.chat.text import common_length
from agentcache.lint.finding import Severity
from agentcache.lint.leaves import Leaf
from agentcache.lint.parting import Parting, excerpt
from agentcache.lint.prompt import SHARED_ROLES, Prompt
from agentcache.lint.rules.base import Cause, TextEdit
from agentcache.lint.texts.forms import mask_slots
from agentcache.lint.texts.spans import MIN_SHARED, Span, equal_behind, first_slot

_KNOWN_BY = 200
"""Characters before a slot by which it is known again in another request."""
_SHOWN = 160
"""Characters of a slot that are shown."""


@dataclass(frozen=True)
class Spot:
    """A string in which two prompts part.

    Attributes:
        where: ``head``: what the system says and the tools, meant to be the same for many requests (also a raw prompt);
            ``opening``: the first thing that is said in two different sessions.
    """

    parting: Parting
    leaf: Leaf
    before: str
    after: str
    where: Literal["head", "opening"]

    @property
    def offset(self) -> int:
        return self.parting.offset

    @cached_property
    def same_session(self) -> bool:
        """Both are turns of one conversation: it is named, or it goes on; two users may well ask the same."""
        parting = self.parting
        if parting.session is None or (self.leaf.message is not None and self.leaf.message < parting.later.first_new):
            return False  # in its own session it did not change: what differs was mended by another session's
        named = (
            parting.later.record.session is not None and parting.later.record.session == parting.earlier.record.session
        )
        return named or self._has_grown or parting.alignment.meets

    @property
    def _has_grown(self) -> bool:
        return len(self.parting.later.messages) > len(self.parting.earlier.messages)

    @property
    def path(self) -> str:
        return self.parting.later.path(self.leaf.keys)

    @property
    def owner(self) -> str:
        """Whose text it is, for people."""
        if self.leaf.role == "tools":
            return "a tool's text"
        if self.leaf.role == "prompt":
            return "the prompt"
        return "the system text" if self.where == "head" else "the first message"

    @property
    def line_end(self) -> str:
        """How lines end in the rendered string: tools are often rendered as JSON."""
        escaped = self.leaf.role == "tools" and "\n" not in self.after and "\\n" in self.after
        return "\\n" if escaped else "\n"

    @cached_property
    def slot(self) -> Span:
        """The first difference, in whole words."""
        return first_slot(self.before, self.after, self.offset, self.parting.behind)

    def values(self, span: Span) -> tuple[str, str]:
        """What the two strings say in ``span``."""
        return self.before[span.start : span.before_end].strip(), self.after[span.start : span.after_end].strip()

    def text_behind(self, span: Span) -> int:
        """Characters of the string that are the same again behind ``span``."""
        return equal_behind(self.before, self.after, span.before_end, span.after_end, self.parting.behind)

    def comes_again(self, span: Span) -> bool:
        """Whether enough is the same again behind ``span``."""
        again = self.text_behind(span)
        if again >= MIN_SHARED or 2 * again >= max(len(self.before), len(self.after)):
            return True
        return self.goes_on_behind

    @property
    def goes_on_behind(self) -> bool:
        """Whether something behind the whole string is the same again."""
        if self.where == "opening":
            return False
        return self._head_goes_on or (self.same_session and self._conversation_goes_on)

    @cached_property
    def _head_goes_on(self) -> bool:
        """Strings of system text and tools stand behind this one, and they are the same."""
        mine, theirs = self.parting.later, self.parting.earlier_leaf
        assert theirs is not None
        same = common_length(mine.text[self.leaf.end :], self.parting.earlier.text[theirs.end :])
        end = self.leaf.end + same
        behind = (leaf for leaf in mine.leaves if leaf.start >= self.leaf.end and leaf.end <= end)
        return sum(leaf.end - leaf.start for leaf in behind if is_head(mine, leaf)) >= MIN_SHARED

    @cached_property
    def _conversation_goes_on(self) -> bool:
        """Messages stand behind the string that are the same, and they are not just a question that two users ask."""
        aligned, later, grown = self.parting.alignment, self.parting.later, self._has_grown
        if self.leaf.message is not None:
            return aligned.at == self.leaf.message and aligned.again > 0 and (aligned.meets or grown)
        behind = {leaf.message for leaf in later.leaves if leaf.start >= self.leaf.end} - {None}
        again = [message for message in behind if message is not None and message < aligned.at]
        return bool(again) and (grown or any(later.messages[index]["role"] == "assistant" for index in again))

    def cause(self, span: Span, words: Words, *, place: Hashable = None) -> Cause:
        """The defect that ``span`` should have been in the later string as it was in the earlier one.

        Args:
            place: in place of the text before the slot.
        """
        if place is None:  # the text before it, and which of the places of that text it is
            head = self.after[: span.start]
            place = mask_slots(head[-_KNOWN_BY:]), head.count(head[-_KNOWN_BY // 8 :])
        return Cause(
            place=(self.leaf.keys, self.where, place),
            edit=TextEdit(
                self.leaf, span.start, span.after_end, self._as_recorded(self.before[span.start : span.before_end])
            ),
            char=self.offset,
            severity=words.severity,
            before=shown(self.before, span.start, span.before_end),
            after=shown(self.after, span.start, span.after_end),
            message=words.message,
            help=words.help,
        )

    def _as_recorded(self, rendered: str) -> str:
        if self.leaf.role != "tools" or "\\" not in rendered:
            return rendered
        try:
            return str(json.loads(f'"{rendered}"'))
        except ValueError:
            return rendered


@dataclass(frozen=True, slots=True)
class Words:
    """What a rule says of a defect."""

    severity: Severity
    message: str
    help: str


def find_spot(parting: Parting, *, opening: bool = False) -> Spot | None:
    """The string in which they part, if it should have been the same.

    Args:
        opening: also the first message of two different sessions.
    """
    leaf, before, after = parting.leaf, parting.before, parting.after
    if leaf is None or before is None or after is None:
        return None
    if leaf.role == "prompt" or is_head(parting.later, leaf):
        return Spot(parting, leaf, before, after, "head")
    spot = Spot(parting, leaf, before, after, "opening")
    if not opening or leaf.role != "user" or leaf.message != first_said(parting.later) or spot.same_session:
        return None
    return spot


def follows(parting: Parting) -> bool:
    """The later request is a turn of the conversation that the earlier one belongs to, as far as can be seen.

    A conversation that nobody names is not known again when its only message is sent in another way than before: then the
    reply that stands behind that message tells::

        earlier:  [ system ][ [10:30] Why is it so? ]
        later:    [ system ][ Why is it so?         ][ reply ][ [10:31] And then? ]
    """
    if parting.session is not None:
        return True
    mine, theirs = parting.earlier.record, parting.later.record
    if mine.session is not None or theirs.session is not None or mine.scope != theirs.scope:
        return False
    at, later = len(parting.earlier.messages) - 1, parting.later.messages
    return parting.alignment.at == at and len(later) > at + 1 and later[at + 1]["role"] == "assistant"


def is_head(prompt: Prompt, leaf: Leaf) -> bool:
    """Tools, and what the system says before anything else is said."""
    if leaf.role not in SHARED_ROLES:
        return False
    return leaf.message is None or leaf.message < first_said(prompt)


def first_said(prompt: Prompt) -> int:
    """Index of the first message that is not the system's."""
    messages = prompt.record.body.get("messages") or ()
    return next((index for index, message in enumerate(messages) if message["role"] not in SHARED_ROLES), len(messages))


def shown(text: str, start: int, end: int) -> str:
    """Characters ``[start, end)`` and some beside them, a long stretch cut short."""
    if end - start <= _SHOWN:
        return excerpt(text, start, end)
    return excerpt(text, start, start + _SHOWN, around=24).rstrip("…") + "…"
