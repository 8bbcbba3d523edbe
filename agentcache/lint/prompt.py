"""A request as the model will see it: rendered by the real template, cut by the real tokenizer."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from xxhash import xxh3_64_intdigest

from agentcache.cache.hashing import namespace_root
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.detokenizer import TextStream
from agentcache.chat.messages import Message, normalize_messages
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.text import common_length
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import ChatTemplateError
from agentcache.lint.leaves import Leaf, StringAt, locate, offset_in, string_at, strings_of
from agentcache.lint.readers.dialects.anthropic import PREFILL
from agentcache.lint.readers.dialects.turns import readings
from agentcache.lint.records import Body, Keys, Record

SHARED_ROLES = frozenset({"system", "developer", "tools"})
"""Who writes the parts of a prompt that are meant to be the same for many requests."""
SETTINGS = ("model", "cache_salt", "adapter")
"""Fields that give a prompt a namespace of its own."""
_ADAPTERS = ("adapter", "lora", "lora_name", "lora_request")
_ROOT = b"lint"
_BEHIND_END = 4
"""Tokens in which the end of a reply is looked for."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """One rendered request.

    Attributes:
        tokens: its ids, cut into pages under the root of its model, salt and adapter.
        start_of: first character of each token in ``text``.
        maker: what rendered it.
        first_new: messages before this index stood in its session's last request.
        rendered: the text is what the template makes of the record; otherwise it is what recorded ids stand for.
        answered: the reply that is its last message is known as it was generated.
    """

    record: Record
    text: str
    tokens: PagedTokens
    start_of: Callable[[int], int] = field(repr=False)
    maker: PromptMaker = field(repr=False)
    first_new: int = 0
    rendered: bool = True
    answered: bool = False

    @property
    def tokenizer(self) -> Tokenizer:
        return self.maker.tokenizer

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """In the one shape of ``chat.messages``; none for a raw prompt."""
        given = self.record.body.get("messages")
        return tuple(normalize_messages(given)) if given else ()

    @cached_property
    def digests(self) -> tuple[int, ...]:
        """A hash of each message; equal for messages that say the same."""
        return tuple(digest_of(message) for message in self.messages)

    @cached_property
    def tools_text(self) -> str:
        """The tools as JSON, keys in their order; empty without any."""
        tools = self.record.body.get("tools")
        return json.dumps(tools, ensure_ascii=False) if tools else ""

    @cached_property
    def settings(self) -> Mapping[str, str | None]:
        """What the namespace depends on, and ``options``: the variables that the template is given."""
        return settings_of(self.record.body)

    @cached_property
    def strings(self) -> tuple[StringAt, ...]:
        """What the template may print of the record, wherever it does."""
        return tuple(strings_of(self.record.body))

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """Which characters of ``text`` came from which string of the record, in order; costs one more rendering."""
        return locate(self.record.body, self.text, self.maker.render_text)

    @cached_property
    def history_end(self) -> int:
        """Characters of ``text`` before the generation prompt."""
        if self.record.body.get("add_generation_prompt") is False or not self.messages:
            return len(self.text)
        try:
            closed = self.maker.render_text({**self.record.body, "add_generation_prompt": False})
        except ChatTemplateError:
            return len(self.text)
        return common_length(closed, self.text)

    def token_at(self, char: int) -> int:
        """The token that character ``char`` of the text lies in."""
        return max(0, bisect_right(range(len(self.tokens)), char, key=self.start_of) - 1)

    def leaf_at(self, char: int) -> Leaf | None:
        """The string that character ``char`` belongs to, the place just behind its last character included."""
        index = bisect_right(self.leaves, char, key=lambda leaf: leaf.start) - 1
        if index >= 0 and char <= self.leaves[index].end:
            return self.leaves[index]
        return None

    def leaf_of(self, keys: Keys) -> Leaf | None:
        """The string of these keys, where it was rendered."""
        return next((leaf for leaf in self.leaves if leaf.keys == keys), None)

    def text_of(self, leaf: Leaf) -> str:
        """The string as it was rendered (a tool's may be escaped)."""
        return self.text[leaf.start : leaf.end]

    def string_offset(self, leaf: Leaf, offset: int) -> int | None:
        """Where character ``offset`` of the rendered string is in the record's; ``None`` when the template changed it."""
        return offset_in(string_at(self.record.body, leaf.keys), self.text_of(leaf), leaf.skipped, offset)

    def path(self, keys: Keys) -> str:
        """Where the file has it, in words for people."""
        return self.record.places.find(keys).path


class PromptMaker:
    """Renders requests exactly as the server does.

    Args:
        renderer: template and tokenizer.
        page_size: tokens a page.
    """

    def __init__(self, renderer: ChatRenderer, page_size: int) -> None:
        self._renderer = renderer
        self._page_size = page_size

    @property
    def page_size(self) -> int:
        return self._page_size

    @property
    def renderer(self) -> ChatRenderer:
        return self._renderer

    @property
    def tokenizer(self) -> Tokenizer:
        return self._renderer.tokenizer

    def make(self, record: Record) -> Prompt:
        """Render ``record``, in another reading where the server would take one for this template (``readings``).

        Raises:
            ChatTemplateError: the template refuses its messages.
        """
        refused: ChatTemplateError | None = None
        for reading in readings(record):
            try:
                return self._make(reading)
            except ChatTemplateError as error:
                if error.code != "chat_template":
                    raise
                refused = refused or error
        assert refused is not None
        raise refused

    def _make(self, record: Record) -> Prompt:
        body = record.body
        root = _root_of(body)
        if "messages" not in body:
            return self._raw(record, root)
        rendered = self._renderer.render_text(
            body["messages"],
            tools=body.get("tools") or None,
            add_generation_prompt=body.get("add_generation_prompt") is not False,
            template_kwargs=body.get("chat_template_kwargs"),
            root=_ROOT,
        )
        if (ids := record.prompt_ids) is not None:
            if self.tokenizer.decode(ids, skip_special_tokens=False) != rendered.text:
                return self._of_ids(record, ids, root)
            starts = _Starts(self.tokenizer, ids)
            return Prompt(record, rendered.text, PagedTokens(ids, self._page_size, root), starts, self)
        encoded = rendered.encoded()
        prompt = Prompt(record, rendered.text, PagedTokens(encoded.ids, self._page_size, root), encoded.start, self)
        return self._with_prefill(prompt, body[PREFILL]) if body.get(PREFILL) else prompt

    def answer(self, prompt: Prompt) -> Prompt | None:
        """``prompt`` with its reply behind it as it was generated; ``None`` when the file does not say it.

        Where ids were recorded, tokens and text are theirs. Otherwise the text is what the template makes of the reply, and
        the tokens are its tokens up to the one that ended it: that one was drawn last and is not cached.
        """
        reply = prompt.record.reply
        if reply is None or not prompt.messages or (reply.message is None and reply.token_ids is None):
            return None
        record = prompt.record
        if reply.message is not None:
            body = {
                **record.body,
                "messages": [*record.body["messages"], _whole(reply.message, record.body.get(PREFILL))],
                "add_generation_prompt": False,
                PREFILL: None,
            }
            record = replace(record, body=body, prompt_ids=None)
        if reply.token_ids is not None:
            answered = self._followed_by(prompt, self._text_behind(prompt, reply.token_ids), reply.token_ids)
            return replace(answered, record=record, answered=True)
        try:
            made = self.make(record)
        except ChatTemplateError:
            return None
        return replace(made, tokens=self._without_end(made.tokens), answered=True)

    def render_text(self, body: Body) -> str:
        """The text alone.

        Raises:
            ChatTemplateError: the template refuses its messages.
        """
        if "messages" not in body:
            return str(body["prompt"])
        rendered = self._renderer.render_text(
            body["messages"],
            tools=body.get("tools") or None,
            add_generation_prompt=body.get("add_generation_prompt") is not False,
            template_kwargs=body.get("chat_template_kwargs"),
        )
        return rendered.text + (body.get(PREFILL) or "")

    def _with_prefill(self, prompt: Prompt, beginning: str) -> Prompt:
        """The beginning of the reply behind the generation prompt, tokenised by itself; control tokens in it are text."""
        return self._followed_by(prompt, beginning, self.tokenizer.encode(beginning, parse_special=False))

    def _followed_by(self, prompt: Prompt, text: str, more: Sequence[int]) -> Prompt:
        """``prompt`` with the tokens ``more``, which stand for ``text``, behind it."""
        count, end, starts = len(prompt.tokens), len(prompt.text), _Starts(self.tokenizer, more)
        head = prompt.start_of
        return replace(
            prompt,
            text=prompt.text + text,
            tokens=PagedTokens([*prompt.tokens[0:count], *more], self._page_size, prompt.tokens.root),
            start_of=lambda token: head(token) if token < count else end + starts(token - count),
        )

    def _text_behind(self, prompt: Prompt, ids: Sequence[int]) -> str:
        """The text of ``ids``; some tokenizers leave out a blank at the beginning of what they decode."""
        last = prompt.tokens[max(0, len(prompt.tokens) - 1) : len(prompt.tokens)]
        before, both = (self.tokenizer.decode(each, skip_special_tokens=False) for each in (last, [*last, *ids]))
        return both[len(before) :]

    def _without_end(self, tokens: PagedTokens) -> PagedTokens:
        """Without the control token that ended a reply, and the white space that the template writes behind it."""
        for end in range(len(tokens) - 1, max(0, len(tokens) - _BEHIND_END), -1):
            if self.tokenizer.is_special(tokens[end]):
                return PagedTokens(tokens[0:end], self._page_size, tokens.root)
            if not self.tokenizer.token_text(tokens[end]).isspace():
                break
        return tokens

    def cut(self, prompt: Prompt, page_size: int) -> PagedTokens:
        """Its tokens in pages of another size."""
        return PagedTokens(prompt.tokens[0 : len(prompt.tokens)], page_size, prompt.tokens.root)

    def _raw(self, record: Record, root: bytes) -> Prompt:
        ids = record.prompt_ids
        text = record.body.get("prompt")
        if ids is None and isinstance(text, str):
            encoded, offsets = self.tokenizer.encode_with_offsets(text)
            whole = self.tokenizer.encode_prompt(text)
            more = len(whole) - len(encoded)  # what the tokenizer puts before every prompt
            starts = array("I", [0] * more + [start for start, _ in offsets])
            return Prompt(record, text, PagedTokens(whole, self._page_size, root), starts.__getitem__, self)
        return self._of_ids(record, ids or (), root)

    def _of_ids(self, record: Record, ids: Sequence[int], root: bytes) -> Prompt:
        text = self.tokenizer.decode(ids, skip_special_tokens=False)
        starts = _Starts(self.tokenizer, ids)
        return Prompt(record, text, PagedTokens(ids, self._page_size, root), starts, self, rendered=False)


class _Starts:
    """Where each of recorded ids begins in the text that they stand for; worked out when asked."""

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = ids
        self._starts: array[int] | None = None

    def __call__(self, token: int) -> int:
        if self._starts is None:
            stream = TextStream(self._tokenizer, skip_special_tokens=False)
            lengths = [len(stream.push(token).text) for token in self._ids]
            self._starts = array("I", accumulate(lengths[:-1], initial=0))
        return self._starts[token]


def settings_of(body: Body) -> Mapping[str, str | None]:
    """The settings of a request that make a cache its own, or that a template may print."""
    options = body.get("chat_template_kwargs")
    return {
        "model": _text(body.get("model")),
        "cache_salt": _text(body.get("cache_salt")),
        "adapter": adapter_of(body),
        "options": json.dumps(options, sort_keys=True, default=str) if options else None,
    }


def _whole(reply: Mapping[str, Any], beginning: str | None) -> Mapping[str, Any]:
    """A reply behind the beginning that it was given."""
    return {**reply, "content": beginning + (reply.get("content") or "")} if beginning else reply


def adapter_of(body: Body) -> str | None:
    """The adapter that the request asks for in a field of its own."""
    for name in _ADAPTERS:
        value = body.get(name)
        if isinstance(value, Mapping):
            value = value.get("lora_name") or value.get("name")
        if isinstance(value, str) and value:
            return value
    return None


def _root_of(body: Body) -> bytes:
    adapter = adapter_of(body)
    parts = (_text(body.get("model")), _text(body.get("cache_salt")))
    return namespace_root(*parts) if adapter is None else namespace_root(*parts, adapter)


def digest_of(value: Any) -> int:
    """A hash of what JSON makes of ``value``, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
