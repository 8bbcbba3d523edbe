"""Where two prompts stop being equal."""

from __future__ import annotations

from dataclasses import dataclass

from agentcache.cache.hashing import TOKEN_BYTES
from agentcache.chat.text import common_length
from agentcache.lint.leaves import Leaf
from agentcache.lint.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference between an earlier and a later prompt.

    ::

        earlier:  <|im_start|>system\\nIt is 10:30:05. You …
        later:    <|im_start|>system\\nIt is 10:31:47. You …
                                            ^ char, token: the same in both

    Attributes:
        session: number of the session that both are turns of; ``None`` when they belong to different ones.
        char: first character of the rendered texts that differs.
        token: first token that differs.
        earlier_leaf, later_leaf: the strings that the character lies in, if it lies in one.
    """

    earlier: Prompt
    later: Prompt
    session: int | None
    char: int
    token: int
    earlier_leaf: Leaf | None
    later_leaf: Leaf | None

    @property
    def leaf(self) -> Leaf | None:
        """The string in which they part, when both part inside the same one."""
        mine, theirs = self.later_leaf, self.earlier_leaf
        if mine is None or theirs is None or mine.keys != theirs.keys or mine.start != theirs.start:
            return None
        return mine


def part(earlier: Prompt, later: Prompt, session: int | None) -> Parting | None:
    """Where they part; ``None`` when one is the beginning of the other."""
    char = common_length(earlier.text, later.text)
    if char in (len(earlier.text), len(later.text)):
        return None
    token = common_length(earlier.tokens.packed(), later.tokens.packed()) // TOKEN_BYTES
    return Parting(earlier, later, session, char, token, earlier.leaf_at(char), later.leaf_at(char))


def excerpt(text: str, start: int, end: int, around: int = 24) -> str:
    """Characters ``[start, end)`` of ``text`` with a little of what stands beside them on the same line."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    left = text[line_start:start]
    right = text[end:line_end]
    left = left if len(left) <= around else "…" + left[-around:]
    right = right if len(right) <= around else right[:around] + "…"
    return left + text[start:end] + right
