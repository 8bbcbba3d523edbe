"""A request as the model will see it: rendered by the real template, cut by the real tokenizer."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentcache.cache.hashing import namespace_root
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.renderer import ChatRenderer, RenderedPrompt
from agentcache.lint.leaves import Body, Leaf, locate, offset_in, string_at
from agentcache.lint.records import Record

SHARED_ROLES = frozenset({"system", "developer", "tools"})
"""Who writes the parts of a prompt that are meant to be the same for many requests."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """One rendered request.

    Attributes:
        tokens: its ids, cut into pages under the root of its model and salt.
        starts: first character of each token in ``text``.
        render_text: renders a body to text as this one was.
    """

    record: Record
    text: str
    tokens: PagedTokens
    starts: array[int]
    render_text: Callable[[Body], str] = field(repr=False)

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """Which characters of ``text`` came from which string of the record, in order; costs one more rendering."""
        return locate(self.record.body, self.record.prefix, self.text, self.render_text)

    def token_at(self, char: int) -> int:
        """The token that character ``char`` of the text lies in."""
        return max(0, bisect_right(self.starts, char) - 1)

    def leaf_at(self, char: int) -> Leaf | None:
        """The string that character ``char`` belongs to, the place just behind its last character included."""
        index = bisect_right(self.leaves, char, key=lambda leaf: leaf.start) - 1
        if index >= 0 and char <= self.leaves[index].end:
            return self.leaves[index]
        return None

    def leaf(self, path: str) -> Leaf | None:
        return next((leaf for leaf in self.leaves if leaf.path == path), None)

    def text_of(self, leaf: Leaf) -> str:
        """The string as it was rendered (a tool's may be escaped)."""
        return self.text[leaf.start : leaf.end]

    def string_offset(self, leaf: Leaf, offset: int) -> int | None:
        """Where character ``offset`` of the rendered string is in the record's; ``None`` when the template changed it."""
        return offset_in(string_at(self.record.body, leaf.keys), self.text_of(leaf), leaf.skipped, offset)


class PromptMaker:
    """Renders requests exactly as the server does.

    Args:
        renderer: template and tokenizer.
        page_size: tokens a page.
    """

    def __init__(self, renderer: ChatRenderer, page_size: int) -> None:
        self._renderer = renderer
        self._page_size = page_size

    def make(self, record: Record) -> Prompt:
        """Render ``record``.

        Raises:
            ChatTemplateError: the template refuses its messages.
        """
        rendered = self._render(record.body)
        body = record.body
        root = namespace_root(_text(body.get("model")), _text(body.get("cache_salt")))
        return Prompt(
            record=record,
            text=rendered.text,
            tokens=PagedTokens(rendered.token_ids, self._page_size, root),
            starts=array("I", (start for start, _ in rendered.offsets)),
            render_text=self._render_text,
        )

    def _render(self, body: Body) -> RenderedPrompt:
        return self._renderer.render(
            body["messages"],
            tools=body.get("tools") or None,
            add_generation_prompt=body.get("add_generation_prompt") is not False,
            template_kwargs=body.get("chat_template_kwargs"),
        )

    def _render_text(self, body: Body) -> str:
        return self._render(body).text


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
