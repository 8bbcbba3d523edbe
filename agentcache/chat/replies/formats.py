"""The wire formats of tool calls, and which of them a model's chat template writes.

| name      | a call                                                                                          |
|-----------|-------------------------------------------------------------------------------------------------|
| `hermes`  | `<tool_call>{"name": "read", "arguments": {…}}</tool_call>`                                      |
| `llama`   | `{"name": "read", "parameters": {…}}`, perhaps after `<|python_tag|>`                            |
| `mistral` | `[TOOL_CALLS][{"name": "read", "arguments": {…}}]` or `[TOOL_CALLS]read[ARGS]{…}`                |
| `json`    | `{"name": "read", "arguments": {…}}`, a list of such, or either in a fenced block                |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentcache.chat.replies.bare import PYTHON_TAG, BareParser
from agentcache.chat.replies.base import (
    CallChoice,
    ReplyParser,
    Thinking,
    Tool,
    ToolFormat,
    Vocabulary,
    names_of,
    short_id,
)
from agentcache.chat.replies.hermes import CLOSE, OPEN, HermesParser
from agentcache.chat.replies.lark import GrammarWriter
from agentcache.chat.replies.mistral import ARGS, CALL_ID, CALLS, LONGEST_NAME, MistralParser, is_bare_name
from agentcache.chat.replies.probe import CALL_JSON, TemplateProbe
from agentcache.errors import RequestError

__all__ = ["CallChoice", "FormatName", "Thinking", "ToolFormat", "choose_format"]

FormatName = Literal["auto", "hermes", "llama", "mistral", "json"]

_BETWEEN_MARKERS = re.compile(
    rf"<(?P<marker>[A-Za-z_]{{4,}})>(?P<before>\s*)(?P<list>\[?){CALL_JSON.pattern}\]?(?P<after>\s*)</(?P=marker)>"
)
_ARGUMENTS = '{"name": {name}, "arguments": '
_PARAMETERS = '{"name": {name}, "parameters": '
_SHOWN_ARGUMENTS = '{"argument": "value"}'
_SHOWN_NAME = "name_of_the_tool"


@dataclass(frozen=True)
class HermesFormat(ToolFormat):
    """JSON between markers; what the block of tools asks for that models without a tool template are given.

    Args:
        opening, closing, between: white space after the opening marker, before the closing one, and between two calls.
        controls: the opening and the closing marker.
        listed: one pair of markers holds a list of all calls.
    """

    opening: str = ""
    closing: str = ""
    between: str = "\n"
    controls: tuple[str, str] = (OPEN, CLOSE)
    listed: bool = False
    name = "hermes"

    def example(self) -> str:
        opening, closing = self.controls
        call = _shown(_ARGUMENTS)
        return f"{opening}{self.opening}{f'[{call}]' if self.listed else call}{self.closing}{closing}"

    def parser(self, tools: Sequence[Tool], seed: str = "") -> ReplyParser:
        return HermesParser(lambda index: self.make_id(seed, index), self.controls)

    def grammar(
        self, tools: Sequence[Tool], choice: CallChoice, vocabulary: Vocabulary, thinking: Thinking | None = None
    ) -> str:
        writer = GrammarWriter(vocabulary, self.controls)
        opening, closing = self.controls
        if self.listed:
            call = writer.choices(tools, choice, _ARGUMENTS, "}")
            more = f' (", " {call})*' if choice.parallel else ""
            before, after = writer.spell(self.opening + "["), writer.spell("]" + self.closing + closing)
            block = writer.rule("block", f"{before} {call}{more} {after}")
        else:
            block = writer.choices(tools, choice, self.opening + _ARGUMENTS, "}" + self.closing + closing)
        several = choice.parallel and not self.listed
        if choice.required:
            call = writer.rule("call", f"{writer.spell(opening)} {block}")
            more = f" ({writer.spell(self.between)} {call})*" if several else ""
            return writer.finish(call + more, thinking)
        call = f"{writer.until('text_and_marker', opening)} {block}"
        return writer.finish(f"({call})* TEXT" if several else f"TEXT | {call}", thinking)


@dataclass(frozen=True)
class LlamaFormat(ToolFormat):
    """JSON alone.

    Args:
        between: what stands between two calls; ``None``: the template allows one call in a message.
    """

    between: str | None = "; "
    name = "llama"
    controls = (PYTHON_TAG,)

    def example(self) -> str:
        return _shown(_PARAMETERS)

    def parser(self, tools: Sequence[Tool], seed: str = "") -> ReplyParser:
        return BareParser(lambda index: self.make_id(seed, index), names_of(tools))

    def grammar(
        self, tools: Sequence[Tool], choice: CallChoice, vocabulary: Vocabulary, thinking: Thinking | None = None
    ) -> str:
        writer = GrammarWriter(vocabulary, self.controls)
        call = writer.choices(tools, choice, _PARAMETERS, "}")
        if choice.parallel and self.between is not None:
            call += f" ({writer.spell(self.between)} {call})*"
        return writer.finish(call if choice.required else _or_text(writer, call), thinking)


@dataclass(frozen=True)
class JsonFormat(ToolFormat):
    """JSON alone, or in a fence; for whatever has no format of its own."""

    name = "json"
    controls = ()

    def example(self) -> str:
        return _shown(_ARGUMENTS)

    def parser(self, tools: Sequence[Tool], seed: str = "") -> ReplyParser:
        return BareParser(lambda index: self.make_id(seed, index), names_of(tools), fences=True)

    def grammar(
        self, tools: Sequence[Tool], choice: CallChoice, vocabulary: Vocabulary, thinking: Thinking | None = None
    ) -> str:
        writer = GrammarWriter(vocabulary, self.controls)
        call = writer.choices(tools, choice, _ARGUMENTS, "}")
        if choice.parallel:
            call = f'{call} | "[" {call} (", " {call})* "]"'
        return writer.finish(call if choice.required else _or_text(writer, call), thinking)


@dataclass(frozen=True)
class MistralFormat(ToolFormat):
    """Calls behind a control token.

    Args:
        by_name: the name stands before its arguments, and the marker before each call; otherwise a list of objects follows.
        with_id: an id stands between name and arguments.
        gap: white space between the marker and the list.
    """

    by_name: bool = False
    with_id: bool = False
    gap: str = ""
    name = "mistral"
    controls = (CALLS, ARGS, CALL_ID)

    def make_id(self, seed: str, index: int) -> str:
        return short_id(seed, index)

    def example(self) -> str:
        if self.by_name:
            call_id = CALL_ID + self.make_id("", 0) if self.with_id else ""
            return f"{CALLS}{_SHOWN_NAME}{call_id}{ARGS}{_SHOWN_ARGUMENTS}"
        return f"{CALLS}{self.gap}[{_shown(_ARGUMENTS)}]"

    def parser(self, tools: Sequence[Tool], seed: str = "") -> ReplyParser:
        return MistralParser(lambda index: self.make_id(seed, index))

    def grammar(
        self, tools: Sequence[Tool], choice: CallChoice, vocabulary: Vocabulary, thinking: Thinking | None = None
    ) -> str:
        writer = GrammarWriter(vocabulary, self.controls)
        text = writer.until("text_and_marker", CALLS)
        marker = writer.spell(CALLS)
        if self.by_name:
            _check_bare(choice.names)
            before = "{bare}" + (CALL_ID + "{id}" if self.with_id else "") + ARGS
            call = writer.choices(tools, choice, before, "")
            if choice.required:
                return writer.finish(f"({marker} {call})" + ("+" if choice.parallel else ""), thinking)
            calls = f"({text} {call})"
            return writer.finish(f"{calls}* TEXT" if choice.parallel else f"TEXT | {calls}", thinking)
        call = writer.choices(tools, choice, _ARGUMENTS, "}")
        more = f' (", " {call})*' if choice.parallel else ""
        calls = writer.rule("calls", f'{writer.spell(self.gap)} "[" {call}{more} "]"')
        return writer.finish(f"{marker} {calls}" if choice.required else f"TEXT | {text} {calls}", thinking)


def _shown(beginning: str) -> str:
    """A call that is one JSON object."""
    return beginning.replace("{name}", f'"{_SHOWN_NAME}"') + _SHOWN_ARGUMENTS + "}"


def _check_bare(names: Sequence[str]) -> None:
    """
    Raises:
        RequestError: a name whose end cannot be told where it stands without quotes.
    """
    for name in names:
        if not is_bare_name(name):
            raise RequestError(
                f"tools: got a function named {name!r}, expected 1 to {LONGEST_NAME} characters without white space, "
                "quotes, brackets and braces: this model writes names without quotes",
                "tools",
            )


def _or_text(writer: GrammarWriter, call: str) -> str:
    """Calls, or text that does not begin like one."""
    writer.rule("text", r"/([^{\[`\s](.|\n)*)?/")
    return f"text | {call}"


def choose_format(template_source: str | None, name: FormatName = "auto") -> ToolFormat:
    """The format that a chat template writes, white space and all.

    Args:
        template_source: Jinja; ``None`` or empty for a model without a template.
        name: a format by its name; ``auto``: by what the template writes.  A template that knows no tools gets ``hermes``,
            which is what the text asks for that stands in its place; one whose calls are of none of these formats ``json``.
    """
    probe = TemplateProbe(template_source or "")
    if name == "auto":
        name = _written(probe)
    if name == "hermes":
        return _hermes(probe)
    if name == "llama":
        return _llama(probe)
    return _mistral(probe) if name == "mistral" else JsonFormat()


def _written(probe: TemplateProbe) -> FormatName:
    text = probe.one_call
    call = CALL_JSON.search(text)
    if CALLS in (text or probe.source):
        return "mistral"
    if _BETWEEN_MARKERS.search(text):
        return "hermes"
    if call is not None and call["key"] == "parameters":
        return "llama"
    return "json" if probe.knows_tools else "hermes"


def _hermes(probe: TemplateProbe) -> HermesFormat:
    found = _BETWEEN_MARKERS.search(probe.one_call)
    if found is None:
        return HermesFormat()
    opening, closing = markers = (f"<{found['marker']}>", f"</{found['marker']}>")
    if found["list"]:
        return HermesFormat(found["before"], found["after"], "\n", markers, listed=True)
    between = re.search(rf"{re.escape(closing)}(\s*){re.escape(opening)}\s*{CALL_JSON.pattern}", probe.two_calls)
    return HermesFormat(found["before"], found["after"], "\n" if between is None else between[1], markers)


def _llama(probe: TemplateProbe) -> LlamaFormat:
    call = CALL_JSON.search(probe.one_call)
    if call is None or call["key"] != "parameters":
        return LlamaFormat()
    calls = list(CALL_JSON.finditer(probe.two_calls))
    between = probe.two_calls[calls[-2].end() : calls[-1].start()] if len(calls) > 1 else None
    return LlamaFormat(between if between and not between.strip("; \n") else None)


def _mistral(probe: TemplateProbe) -> MistralFormat:
    text = probe.one_call
    if ARGS in (text or probe.source):
        return MistralFormat(by_name=True, with_id=CALL_ID in (text or probe.source))
    gap = re.search(rf"{re.escape(CALLS)}(\s*)\[", text)
    return MistralFormat(gap="" if gap is None else gap[1])
