"""Chat templates: Jinja in a sandbox, compiled once, with the helpers that model makers' templates expect.

The environment is that of Hugging Face's chat templates: trimmed blocks, loop controls, ``raise_exception``,
``strftime_now``, a ``tojson`` that keeps key order and non-ASCII text, and ``{% generation %}`` blocks.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentcache.errors import ChatTemplateError

Clock = Callable[[], datetime.datetime]

_MAX_REPEATED = 2**20
"""Longest string or list that ``*`` may build, and longest number (in bits) that ``**`` may."""


class ChatTemplate:
    """One compiled template.  Rendering is pure but for the clock; safe to share between threads.

    Args:
        source: the Jinja source.
        clock: what ``strftime_now`` reads (local time).
        max_output: longest text in characters that a rendering may give beyond eight times its input.

    Raises:
        ChatTemplateError: the source is no template.
    """

    def __init__(self, source: str, *, clock: Clock = datetime.datetime.now, max_output: int = 2**24) -> None:
        self.source = source
        self._max_output = max_output
        environment = _environment(clock)
        try:
            self._template = environment.from_string(source)
            tree = environment.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise ChatTemplateError(f"the chat template, line {error.lineno}: {error.message}") from None
        except Exception as error:  # noqa: BLE001 - constant expressions are evaluated while compiling
            raise ChatTemplateError(f"the chat template does not compile: {error}") from None
        self.variables = frozenset(meta.find_undeclared_variables(tree))
        """The names that the template reads and does not set: ``messages``, ``tools``, ``enable_thinking`` ..."""
        self._constants = frozenset(const.value for const in tree.find_all(nodes.Const) if isinstance(const.value, str))
        self._written = "\n".join(data.data for data in tree.find_all(nodes.TemplateData))

    def render(self, variables: Mapping[str, Any], *, input_size: int = 0) -> str:
        """The text for ``variables`` (``messages``, ``tools``, ``add_generation_prompt`` ...).

        Args:
            input_size: characters in the input, which the limit on the output grows with.

        Raises:
            ChatTemplateError: the template refuses (its own words), fails, or writes without end.
        """
        limit = self._max_output + 8 * input_size
        try:
            text = _collect(self._template.generate(variables), limit)
        except _TemplateRefusalError as error:
            raise ChatTemplateError(str(error), "messages", "chat_template") from None
        except Exception as error:  # noqa: BLE001 - a template can raise anything
            raise ChatTemplateError(
                f"the chat template cannot render these messages: {_reason(error)}", "messages", "chat_template"
            ) from None
        if text is None:
            raise ChatTemplateError(
                f"the chat template writes more than {limit} characters for {input_size} of input",
                "messages",
                "chat_template",
            )
        return text

    def mentions(self, word: str) -> bool:
        """Whether ``word`` is one of the template's string constants, or part of the text that it writes."""
        return word in self._constants or word in self._written

    def mentions_part(self, word: str) -> bool:
        """Whether ``word`` is part of any text in the template."""
        return word in self._written or any(word in constant for constant in self._constants)


class _TemplateRefusalError(jinja2.TemplateError):
    """What ``raise_exception`` raises."""


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with limits on the two operators that make much out of little."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _MAX_REPEATED:
                raise SecurityError(f"{left} ** {right} is too large a number for a chat template")
        else:
            text, count = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(count, int) and isinstance(text, (str, list, tuple)) and len(text) * count > _MAX_REPEATED:
                raise SecurityError(f"repeating {len(text)} items {count} times is too much for a chat template")
        return super().call_binop(context, operator, left, right)


class _GenerationBlock(Extension):
    """``{% generation %} ... {% endgeneration %}`` marks what a model wrote; it changes nothing in the text."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _collect(parts: Iterator[str], limit: int) -> str | None:
    """The joined ``parts``, or ``None`` as soon as they are longer than ``limit``."""
    collected: list[str] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > limit:
            return None
        collected.append(part)
    return "".join(collected)


def _environment(clock: Clock) -> ImmutableSandboxedEnvironment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
        finalize=_no_none,
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda format="%Y-%m-%d": clock().strftime(format)
    return environment


def _no_none(value: Any) -> Any:
    """What is missing is printed as nothing, never as the word that Python has for it."""
    return "" if value is None else value


def _raise_exception(message: object) -> None:
    raise _TemplateRefusalError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "they are nested too deeply"
    return str(error) or "it failed without saying why"
