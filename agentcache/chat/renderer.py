"""Messages to text to token ids: what a model reads of a conversation."""

from __future__ import annotations

import datetime
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agentcache.chat.guard import ControlGuard, GuardedText
from agentcache.chat.messages import Message, normalize_messages, normalize_tools
from agentcache.chat.segments import Encoded, Piece, SegmentMemory
from agentcache.chat.shapes import TemplateShapes
from agentcache.chat.splice import (
    ChatInput,
    Mold,
    TemplateMolds,
    TextAround,
    cut_at_marks,
    free_mark,
    molded,
    with_told_ids,
)
from agentcache.chat.template import ChatTemplate, Clock
from agentcache.chat.text import common_length, without_surrogates
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import ChatTemplateError

_RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})


class MessageSpans:
    """Which characters of a rendered text belong to which message; worked out when asked, never before.

    A message ends where the rendering of the messages up to it stops being a beginning of the whole text::

        text          [ message 0 ... )[ message 1 ... )[ generation prompt )
        render(m[:1]) [ ............. )
        render(m[:2]) [ .............................. )

    What the template writes before a message (a default system text, the tools) belongs to that message.

    Args:
        count: how many messages there are.
        render_first: the text of the first k messages; raises ``ChatTemplateError`` where the template refuses them.
    """

    def __init__(self, text: str, count: int, render_first: Callable[[int], str]) -> None:
        self._text = text
        self._count = count
        self._render_first = render_first
        self._ends: dict[int, int | None] = {0: 0}

    def all(self) -> list[tuple[int, int] | None]:
        """``[start, end)`` of each message; ``None`` where the template refuses a history that ends there."""
        ends = [self._end(k) for k in range(self._count + 1)]
        return [None if start is None or end is None else (start, max(start, end)) for start, end in pairwise(ends)]

    def message_at(self, position: int) -> int | None:
        """The message that the character at ``position`` belongs to; ``None`` behind the last one."""
        low, high = 0, self._count  # message low begins at or before position; answer in [low, high]
        step = 1  # what is asked for lies near the end nearly always, and each place that is tried costs a rendering
        while low < high:
            middle = max((low + high) // 2, high - step)
            # A history that the template refuses ends with the next one that it takes.
            known = next((k for k in range(middle + 1, high + 1) if self._end(k) is not None), None)
            if known is None:
                high = middle
            elif (self._end(known) or 0) <= position:
                low, step = known, self._count
            else:
                high = middle
            step *= 4
        return low if low < self._count else None

    def _end(self, count: int) -> int | None:
        if count not in self._ends:
            try:
                self._ends[count] = common_length(self._render_first(count), self._text)
            except ChatTemplateError:
                self._ends[count] = None
        return self._ends[count]


@dataclass(frozen=True)
class RenderedPrompt:
    """A rendered conversation.

    ``offsets[i]`` is the half-open range of characters of ``text`` that ``token_ids[i]`` stands for; tokens that share a
    character share its range.
    """

    text: str
    token_ids: list[int]
    offsets: list[tuple[int, int]]
    spans: MessageSpans | None = field(default=None, repr=False, compare=False)

    def message_spans(self) -> list[tuple[int, int] | None]:
        """``[start, end)`` in characters of each message, ``None`` where it cannot be told; rendered when asked."""
        return [] if self.spans is None else self.spans.all()

    def message_at(self, token_index: int) -> int | None:
        """The message that a token belongs to; ``None`` for the generation prompt and beyond.

        A token that covers the border of two messages belongs to the first.
        """
        if self.spans is None or not 0 <= token_index < len(self.offsets):
            return None
        return self.spans.message_at(self.offsets[token_index][0])


@dataclass(frozen=True)
class RenderedText:
    """A rendered conversation that is not tokenised yet; ``text`` is what its tokens stand for."""

    text: str
    _guarded: GuardedText = field(repr=False)
    _segments: SegmentMemory = field(repr=False)
    _root: bytes = b""

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._segments.tokenizer

    @property
    def spells_controls(self) -> bool:
        """Whether typed text looks like control tokens: equal texts are then not always equal tokens."""
        return self._guarded.aliased is not None

    def encoded(self) -> Encoded:
        """Ids, and where each begins in ``text``; long pieces that the namespace has sent before are looked up."""
        if self._guarded.aliased is None:
            return self._segments.encode(self._root, self.text)
        ids, offsets = self.encode()
        whole = Encoded()
        whole.add(Piece(array("I", ids), array("I", [start for start, _ in offsets])), 0)
        return whole

    def encode(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids and their character offsets ``[start, end)`` in ``text``."""
        if self._guarded.aliased is None:
            return self._tokenizer.encode_with_offsets(self.text)
        ids, encoding = self._tokenizer.literal.encode(self._guarded.aliased)
        return ids, self._guarded.offsets(encoding.offsets)

    def encode_from(self, start: int) -> list[int]:
        """Ids of ``text[start:]``, to be appended to a sequence whose tokens stand for ``text[:start]``.

        Where a token begins at ``start``, these are the ids that the whole text would have there.  They are found from the
        last control token before it, since nothing merges across one::

            text    ... <|im_start|>assistant⏎ reply <|im_end|>⏎<|im_start|>user⏎ ...
                                                     ^ anchor  ^ start
        """
        if start <= 0:
            return self.encode()[0]
        if start >= len(self.text):
            return []
        if self._guarded.aliased is not None:
            found = _behind(*self.encode(), start)
            return self._tokenizer.encode(self.text[start:]) if found is None else found
        return encode_behind(self._tokenizer, self.text, start)


def encode_behind(tokenizer: Tokenizer, text: str, start: int) -> list[int]:
    """Ids of ``text[start:]`` in which nobody typed control tokens; see ``RenderedText.encode_from``."""
    anchor = tokenizer.last_control_before(text, start)
    ids, offsets = tokenizer.encode_with_offsets(text[anchor:])
    found = _behind(ids, offsets, start - anchor)
    return tokenizer.encode(text[start:]) if found is None else found


def encode_aliased_behind(tokenizer: Tokenizer, before: str, aliased: str) -> list[int]:
    """Ids of a text that follows ``before``, in which only aliases become control tokens."""
    ids, encoding = tokenizer.literal.encode(before + aliased)
    found = _behind(ids, encoding.offsets, len(before))
    return tokenizer.literal.encode(aliased)[0] if found is None else found


def _behind(ids: list[int], offsets: list[tuple[int, int]], start: int) -> list[int] | None:
    """The ids that begin at ``start`` or behind it; ``None`` when one lies across it."""
    index = next((i for i, (first, _) in enumerate(offsets) if first >= start), len(ids))
    return ids[index:] if index == 0 or offsets[index - 1][1] <= start else None


@dataclass(frozen=True)
class _Frame:
    """What stays the same for every beginning of one conversation."""

    tools: list[dict[str, Any]] | None
    variables: dict[str, Any]
    template: _Prepared


@dataclass(frozen=True)
class _Prepared:
    """A template with what is known of it."""

    template: ChatTemplate
    shapes: TemplateShapes
    guard: ControlGuard
    molds: TemplateMolds


class ChatRenderer:
    """Renders conversations with a chat template and tokenises them.  Safe to share between threads.

    The ids are those of Hugging Face's ``apply_chat_template``: the template alone decides about BOS.

    Args:
        template: Jinja source; by default the tokenizer's own (and its ``tool_use`` template, if it has one, when tools
            are given).
        allow_special_tokens: let control tokens that users and tools spell out become control tokens.
        clock: what ``strftime_now`` reads.

    Raises:
        ChatTemplateError: a template that does not compile.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str | None = None,
        *,
        allow_special_tokens: bool = False,
        clock: Clock = datetime.datetime.now,
    ) -> None:
        self.tokenizer = tokenizer
        self._segments = SegmentMemory(tokenizer)
        self._allow_special_tokens = allow_special_tokens
        self._clock = clock
        own = template if template is not None else tokenizer.chat_template
        with_tools = tokenizer.chat_templates.get("tool_use") if template is None else None
        self._plain = None if own is None else self._prepare(own)
        self._with_tools = self._plain if with_tools is None else self._prepare(with_tools)

    def _prepare(self, source: str) -> _Prepared:
        template = ChatTemplate(source, clock=self._clock)
        named = self.tokenizer.named_tokens
        shapes = TemplateShapes(template, named)

        def render(
            messages: Sequence[Message], tools: list[dict[str, Any]] | None, add: bool, kwargs: Mapping[str, Any]
        ) -> str:  # fmt: skip
            fitted, known_tools = shapes.fit(messages, tools)
            given = {"documents": None, **kwargs, "messages": fitted, "tools": known_tools}
            return template.render({**named, **given, "add_generation_prompt": add}, input_size=_size(given))

        return _Prepared(template, shapes, ControlGuard(self.tokenizer, taken=source), TemplateMolds(render))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> RenderedPrompt:
        """Text, token ids and character offsets of a conversation.

        Messages are brought to one shape (``messages``) and fitted to the template (``shapes``); tools that the template
        does not know are described in the system message (``tool_text``).

        Raises:
            ChatTemplateError: messages that are malformed or that the template refuses.
        """
        plain = normalize_messages(messages)
        frame = self._frame(normalize_tools(tools), template_kwargs)
        rendered = self._rendered(frame, plain, add_generation_prompt)
        ids, offsets = rendered.encode()
        spans = MessageSpans(rendered.text, len(plain), lambda count: self._text(frame, plain[:count], False).text)
        return RenderedPrompt(rendered.text, ids, offsets, spans)

    def render_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
        root: bytes = b"",
    ) -> RenderedText:
        """As ``render``, but tokenising only what is asked for: a turn of a long conversation tokenises its own text.

        Args:
            root: see ``ChatInput``.
        """
        frame = self._frame(normalize_tools(tools), template_kwargs)
        return self._rendered(frame, normalize_messages(messages), add_generation_prompt, root)

    def render_around(self, chat: ChatInput, replies: Mapping[int, Sequence[str]]) -> TextAround | None:
        """What the template writes around the messages ``replies``, whatever is in them; ``None`` where it cannot be told.

        Args:
            replies: indices of assistant messages, in order, with the ids that their calls had when they were made.

        Raises:
            ChatTemplateError: messages that are malformed.
        """
        frame = self._frame(normalize_tools(chat.tools), chat.template_kwargs)
        messages = with_told_ids(normalize_messages(chat.messages), replies)
        mark = free_mark(messages, frame.tools, frame.variables, frame.template.template.source)
        if mark is None or any(index >= len(messages) or messages[index]["role"] != "assistant" for index in replies):
            return None
        molds, with_tools = frame.template.molds, bool(frame.tools)
        called = [index for index in replies if messages[index].get("tool_calls")]
        mold = molds.kind(with_tools=with_tools) if called else Mold.PLAIN
        if mold is Mold.NONE:
            return None
        end = molds.turn_end() if mold is Mold.CALLS else ""
        for index, ids in replies.items():
            messages[index] = molded(messages[index], mold, mark, ids)
        try:
            guarded = self._text(frame, messages, chat.add_generation_prompt)
        except ChatTemplateError:
            return None
        ends = [end if index in called else "" for index in replies]
        aliased = frame.template.guard.restore(ends[-1], {mark: mark}).aliased if ends and ends[-1] else None
        return cut_at_marks(guarded, mark, ends, aliased)

    def opening(self, chat: ChatInput) -> str:
        """The generation prompt that ``chat`` ends with; empty where it cannot be told."""
        if not chat.add_generation_prompt:
            return ""
        frame = self._frame(normalize_tools(chat.tools), chat.template_kwargs)
        after_result = bool(chat.messages) and frame.template.shapes.ends_with_result(dict(chat.messages[-1]))
        return frame.template.molds.opening(frame.variables, after_result=after_result)

    def _rendered(
        self, frame: _Frame, messages: list[Message], add_generation_prompt: bool, root: bytes = b""
    ) -> RenderedText:
        guarded = self._text(frame, messages, add_generation_prompt)
        return RenderedText(guarded.text, guarded, self._segments, root)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a raw prompt; see ``Tokenizer.encode_prompt``."""
        return self.tokenizer.encode_prompt(text)

    def _frame(self, tools: list[dict[str, Any]] | None, template_kwargs: Mapping[str, Any] | None) -> _Frame:
        prepared = self._with_tools if tools else self._plain
        if prepared is None:
            raise ChatTemplateError(
                "messages: this model has no chat template, expected a raw prompt (/v1/completions)", "messages"
            )
        named = self.tokenizer.named_tokens
        for key in template_kwargs or {}:
            if key in _RESERVED or key in named:
                raise ChatTemplateError(
                    f"chat_template_kwargs.{key}: this name is set by the server", f"chat_template_kwargs.{key}"
                )
        return _Frame(tools, dict(template_kwargs or {}), prepared)

    def _text(self, frame: _Frame, messages: list[Message], add_generation_prompt: bool) -> GuardedText:
        try:
            return self._guarded_text(frame, messages, add_generation_prompt)
        except RecursionError:
            raise ChatTemplateError("messages: nested too deeply", "messages", "invalid_value") from None

    def _guarded_text(self, frame: _Frame, messages: list[Message], add_generation_prompt: bool) -> GuardedText:
        prepared = frame.template
        messages, tools = prepared.shapes.fit(messages, frame.tools)
        typed: dict[str, Any] = {"documents": None, **frame.variables, "messages": messages, "tools": tools}
        placeholders: dict[str, str] = {}
        if not self._allow_special_tokens:
            typed, placeholders = prepared.guard.guard(typed)
        variables = {**self.tokenizer.named_tokens, **typed, "add_generation_prompt": add_generation_prompt}
        rendered = prepared.template.render(variables, input_size=_size(typed))
        return prepared.guard.restore(without_surrogates(rendered), placeholders)


def _size(value: Any) -> int:
    """Characters in all strings of ``value``."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(str(key)) + _size(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return 0
