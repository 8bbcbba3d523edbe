"""Where two prompts stop being equal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from agentcache.cache.hashing import TOKEN_BYTES
from agentcache.chat.text import common_length
from agentcache.lint.alignment import Alignment, align
from agentcache.lint.leaves import Leaf
from agentcache.lint.prompt import SETTINGS, Prompt


@dataclass(frozen=True, eq=False)
class Parting:
    """The first difference between an earlier and a later prompt.

    ::

        earlier:  <|im_start|>system\\nIt is 10:30:05. You …
        later:    <|im_start|>system\\nIt is 10:31:47. You …
                                            ^ char, token: the same in both

    Attributes:
        session: number of the session that both are turns of; ``None`` when they belong to different ones.
        char: first character of the rendered texts that differs; 0 where they are cached under different names, and the
            length of the shorter text where only their ids differ.
        token: first token that differs; 0 where they are cached under different names.
        replay: the earlier prompt ends with its reply as it was generated.
    """

    earlier: Prompt
    later: Prompt
    session: int | None
    char: int
    token: int
    replay: bool = False

    @cached_property
    def earlier_leaf(self) -> Leaf | None:
        """The string of the earlier request that the character lies in, if it lies in one."""
        return self.earlier.leaf_at(self.char)

    @cached_property
    def later_leaf(self) -> Leaf | None:
        """The same of the later request."""
        return self.later.leaf_at(self.char)

    @property
    def leaf(self) -> Leaf | None:
        """The string in which they part, when both part inside the same one."""
        mine, theirs = self.later_leaf, self.earlier_leaf
        if self.settings_changed or mine is None or theirs is None:
            return None
        return mine if mine.keys == theirs.keys and mine.start == theirs.start else None

    @cached_property
    def before(self) -> str | None:
        """That string in the earlier request, as it was rendered; ``None`` when they do not part inside one."""
        leaf = self.earlier_leaf
        return None if self.leaf is None or leaf is None else self.earlier.text_of(leaf)

    @cached_property
    def after(self) -> str | None:
        """That string in the later request, as it was rendered."""
        leaf = self.leaf
        return None if leaf is None else self.later.text_of(leaf)

    @property
    def offset(self) -> int:
        """First character of ``before`` and ``after`` that differs."""
        return self.char - (self.leaf.start if self.leaf is not None else 0)

    @cached_property
    def behind(self) -> int:
        """Characters that ``before`` and ``after`` have in common at their ends, behind what differs."""
        before, after = self.before, self.after
        if before is None or after is None:
            return 0
        room = min(len(before), len(after)) - self.offset
        return common_length(before[::-1][:room], after[::-1][:room])

    @cached_property
    def alignment(self) -> Alignment:
        """Which messages of the two are the same."""
        return align(self.earlier, self.later)

    @property
    def same_tools(self) -> bool:
        return self.earlier.tools_text == self.later.tools_text

    @cached_property
    def settings_changed(self) -> tuple[str, ...]:
        """Of ``model``, ``cache_salt`` and ``adapter``: those that differ; then nothing of the earlier prompt can be found."""
        mine, theirs = self.earlier.settings, self.later.settings
        return tuple(name for name in SETTINGS if mine[name] != theirs[name])

    @property
    def options_changed(self) -> bool:
        """The template is given other variables."""
        return self.earlier.settings["options"] != self.later.settings["options"]


def part(earlier: Prompt, later: Prompt, session: int | None, *, replay: bool = False) -> Parting | None:
    """Where they part; ``None`` when one is the beginning of the other, in text and in tokens."""
    if earlier.tokens.root != later.tokens.root:
        return Parting(earlier, later, session, 0, 0, replay)
    char = common_length(earlier.text, later.text)
    inside = char not in (len(earlier.text), len(later.text))
    token = common_length(earlier.tokens.packed(), later.tokens.packed()) // TOKEN_BYTES
    if not inside:
        # One token may cover the end of the shorter text and what the other goes on with.
        ends = token >= min(len(earlier.tokens), len(later.tokens)) - 1
        if ends or (earlier.record.prompt_ids is None and later.record.prompt_ids is None and not replay):
            return None
    return Parting(earlier, later, session, char, token, replay)


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
