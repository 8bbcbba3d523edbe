"""How a reply must look and how it is read: from tools, choice and format of a request, and the model's own template.

::

    [ reasoning ... </think> ] [ free text and calls | forced calls | JSON of a schema ]
      never constrained          constrained by a grammar only where the request asks for it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentcache.chat.grammars import GrammarCompiler, json_rule
from agentcache.chat.replies.base import CallChoice, Thinking, ToolFormat, function_of
from agentcache.chat.replies.formats import FormatName, choose_format
from agentcache.chat.replies.lark import GrammarWriter
from agentcache.chat.replies.reasoning import reasoning_tags, starts_open
from agentcache.request import Grammar, SamplingParams
from agentcache.server.bodies import ChatBody
from agentcache.server.errors import bad_field
from agentcache.server.replies.reading import Reading
from agentcache.server.replies.response_format import SCHEMA_FIELD, JsonFormat, json_format
from agentcache.server.replies.tool_choice import call_choice

if TYPE_CHECKING:
    from agentcache.chat.tokenizer import Tokenizer

Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Wanted:
    """What a request wants of its reply, before its prompt is known."""

    tools: Tools
    choice: CallChoice | None
    format: JsonFormat | None

    @property
    def constrains_calls(self) -> bool:
        """Whether calls must be valid: they are forced, or a tool is strict, or there may be one only."""
        if self.choice is None:
            return False
        strict = any(function_of(tool).get("strict") is True for tool in self.tools)
        return self.choice.required or not self.choice.parallel or strict


def wanted(body: ChatBody, tools: Tools | None) -> Wanted:
    """
    Args:
        tools: those of the request, or of its session.

    Raises:
        ApiError: 400, naming the field that is wrong.
    """
    choice, form = call_choice(body, tools), json_format(body.response_format)
    if choice is not None and choice.required and form is not None:
        raise bad_field("response_format", "got a format for text beside a tool_choice that allows calls only")
    return Wanted(tools or (), choice, form)


class ReplyPlanner:
    """Knows how the served model writes calls and reasoning.  Safe to use from any thread.

    Args:
        template: source of its chat template; empty where it has none.
        parser: ``--tool-parser``.
        vocab_size: of its logits.
    """

    def __init__(self, tokenizer: Tokenizer, template: str, parser: FormatName, vocab_size: int) -> None:
        self.format: ToolFormat = choose_format(template, parser)
        self.tags = reasoning_tags(template)
        self._tokenizer = tokenizer
        self._grammars = GrammarCompiler(tokenizer, vocab_size)
        known = tokenizer.control_tokens
        self._call_marks = frozenset(known[text] for text in self.format.controls if text in known)
        self._tag_marks = frozenset(known[text] for text in self.tags or () if text in known)

    def plan(
        self, want: Wanted, params: SamplingParams, prompt_text: str, seed: str, root: bytes
    ) -> tuple[Reading, SamplingParams]:
        """How the replies to a prompt are read, and ``params`` with their grammar and the control tokens that must show.

        Args:
            seed: what ids of calls are made from.
            root: the namespace of the request.

        Raises:
            RequestError: a schema that cannot be compiled.
        """
        opened = self.tags is not None and starts_open(prompt_text, self.tags)
        reading = Reading(None if want.choice is None else self.format, want.tools, self.tags, opened, seed)
        shown = self._tag_marks | (self._call_marks if want.choice is not None else frozenset())
        return reading, replace(params, shown_tokens=shown, grammar=self._grammar(want, reading, root))

    def _grammar(self, want: Wanted, reading: Reading, root: bytes) -> Grammar | None:
        thinking = None if self.tags is None else Thinking(self.tags, reading.in_reasoning)
        if want.format is not None:
            param = "response_format" if want.format.schema is None else SCHEMA_FIELD
            return self._grammars.lark(self._json(want, want.format, thinking), param=param, root=root)
        if want.choice is not None and want.constrains_calls:
            text = self.format.grammar(want.tools, want.choice, self._tokenizer, thinking)
            return self._grammars.lark(text, param="tools", root=root)
        return None

    def _json(self, want: Wanted, form: JsonFormat, thinking: Thinking | None) -> str:
        """JSON; or calls as well, where tools may be called."""
        schema: Mapping[str, Any] = {"type": "object"}
        if form.schema is not None:
            schema = form.schema if isinstance(form.schema, Mapping) else {}
        reply = json_rule(schema, form.strict, param=SCHEMA_FIELD)
        writer = GrammarWriter(self._tokenizer, ())
        if want.choice is None:
            return writer.finish(reply, thinking)
        calls = self.format.grammar(want.tools, replace(want.choice, required=True), self._tokenizer)
        start, *rules = calls.split("\n")
        either = f"({reply}) | ({start.removeprefix('start: ')})"
        return "\n".join([writer.finish(either, thinking), *(rule for rule in rules if not rule.startswith("TEXT:"))])
