"""What a model writes for itself before it replies, told from the reply.

::

    <think>\\nso …\\n</think>\\n\\nLet me look.          the model opens it
    so …\\n</think>\\n\\nLet me look.                    the prompt ended in <think>: the model only closes it
           [ reasoning ]          [ the reply ]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agentcache.chat.replies.markers import MarkerFinder
from agentcache.chat.replies.values import starts

Tags = tuple[str, str]

_KNOWN: tuple[Tags, ...] = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
)


def reasoning_tags(template_source: str) -> Tags | None:
    """The tags around reasoning that a chat template names (both of them), if it names any."""
    return next((tags for tags in _KNOWN if all(tag in template_source for tag in tags)), None)


def starts_open(prompt_text: str, tags: Tags) -> bool:
    """Whether a prompt ends inside reasoning: with the opening tag, and white space at most behind it."""
    return prompt_text.rstrip().endswith(tags[0])


class Split(NamedTuple):
    """A part of a reply: its reasoning, and what follows that."""

    reasoning: str
    rest: str


class ReasoningSplitter:
    """Splits one reply, as it comes.

    White space around reasoning belongs to the tags and is left out.  Reasoning begins where the reply does (white space
    aside) or not at all; a reply that never closes it is reasoning to its end.  A tag in the middle of a reply is text.

    Args:
        starts_open: the prompt has opened it.  A model that writes the opening tag all the same is forgiven.
    """

    def __init__(self, tags: Tags, *, starts_open: bool = False) -> None:
        self._open, self._close = tags
        self._closing = MarkerFinder([self._close])
        self._opened = starts_open
        self._state: Callable[[str], Split] = self._beginning
        self._held: list[str] = []
        self._began = False
        self.done = False
        """Whether everything from here on is reply."""

    def push(self, text: str) -> Split:
        """More of the reply."""
        return Split("", text) if self.done or not text else self._state(text)

    def flush(self) -> Split:
        """The reply is over: what was held back."""
        held = "".join(self._held)
        self._held = []
        if self._state == self._inside or (self._opened and self._state == self._beginning and held.strip()):
            return Split(held, "")
        if self._state == self._beginning and not self._opened:
            return Split("", held)
        return Split("", "")

    def _beginning(self, text: str) -> Split:
        """Only white space, or part of the opening tag, so far."""
        self._held.append(text)
        if not self._began and text.isspace():
            return Split("", "")
        self._began = True
        whole = "".join(self._held)
        text = whole.lstrip()
        tag = starts(text, 0, self._open)
        if tag is None:
            self._held = [whole]
            return Split("", "")
        self._held = []
        if not tag and not self._opened:
            self.done = True
            return Split("", whole)
        self._state = self._inside
        self._began = False
        return self._inside(text[len(self._open) :] if tag else text)

    def _inside(self, text: str) -> Split:
        if not self._began:
            text = text.lstrip()
            if not text:
                return Split("", "")
            self._began = True
        if text.isspace():
            self._held.append(text)
            return Split("", "")
        text = "".join(self._held) + text
        end, marker = self._closing.find(text)
        shown = text[:end].rstrip()
        if marker is None:
            self._held = [text[len(shown) :]] if len(shown) < len(text) else []
            return Split(shown, "")
        self._held = []
        self._state = self._after
        return Split(shown, self._after(text[end + len(marker) :]).rest)

    def _after(self, text: str) -> Split:
        text = text.lstrip()
        self.done = bool(text)
        return Split("", text)
