"""What a template can be told beside the conversation: the variables that it reads, and values worth trying for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jinja2 import nodes

from agentcache.errors import ChatTemplateError
from agentcache.lint.templates.conversations import PLAIN, SYSTEM
from agentcache.lint.templates.writer import Options, Writer

_GIVEN = frozenset(
    {
        "messages",
        "tools",
        "add_generation_prompt",
        "documents",
        "loop",
        "tool_choice",
        "response_format",
        "response_schema",
    }
)
"""What comes with the request itself."""
_MOST_VALUES = 8
_DEFAULTS = ("default", "d")


def candidates(writer: Writer, named_tokens: Sequence[str]) -> list[dict[str, Any]]:
    """One option each: flags both ways, and the texts that the template compares a variable with."""
    own = _set_by_template(writer.template.tree)
    names = sorted(writer.template.variables - _GIVEN - own - set(named_tokens))
    found: list[dict[str, Any]] = []
    for name in names:
        compared = list(dict.fromkeys(_compared(writer.template.tree, name)))[:_MOST_VALUES]
        dated = ["4 March 2026"] if "date" in name or "time" in name else []
        flags = [] if compared else [False, True]
        found += [{name: value} for value in (*compared, *dated, *flags)]
    return found


def _set_by_template(tree: nodes.Template) -> set[str]:
    """Variables that the template sets without asking whether they were given."""
    names = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    asked = {
        test.node.name for test in tree.find_all(nodes.Test) if _is_asked(test) and isinstance(test.node, nodes.Name)
    }
    defaults = (default.node for default in tree.find_all(nodes.Filter) if default.name in _DEFAULTS)
    return names - asked - {node.name for node in defaults if isinstance(node, nodes.Name)}


def _is_asked(test: nodes.Test) -> bool:
    return test.name in ("defined", "undefined")


def _compared(tree: nodes.Template, name: str) -> Iterator[str]:
    """Texts that the variable is compared with, or that stand in for it."""
    for comparison in tree.find_all(nodes.Compare):
        sides = [comparison.expr, *(operand.expr for operand in comparison.ops)]
        if any(isinstance(side, nodes.Name) and side.name == name for side in sides):
            for side in sides:
                yield from _texts(side)
    for default in tree.find_all(nodes.Filter):
        if default.name in _DEFAULTS and isinstance(default.node, nodes.Name) and default.node.name == name:
            for argument in default.args:
                yield from _texts(argument)


def _texts(side: nodes.Node) -> Iterator[str]:
    constants = side.find_all(nodes.Const) if not isinstance(side, nodes.Const) else [side]
    for constant in constants:
        if isinstance(constant.value, str) and constant.value:
            yield constant.value


class Thinking:
    """Whether a model is asked to think, told from what the generation prompt says.

    A *switch* is a flag that changes it.

    Attributes:
        on: the options under which the model thinks, where it does not by default.
        off: each way to keep it from thinking.
        switches: names of such flags.
    """

    def __init__(self, writer: Writer, tried: Sequence[Options]) -> None:
        self._writer = writer
        self.on: dict[str, Any] = {}
        self.switches: set[str] = set()
        self.off: list[dict[str, Any]] = []
        self._closed: set[str] = set()
        default = self._opening({})
        for name in sorted({name for option in tried for name in option if option[name] is False}):
            without, within = self._opening({name: False}), self._opening({name: True})
            if without is None or within is None or without == within or not _speaks_of_thinking(name):
                continue
            self.switches.add(name)
            if without not in self._closed:
                self.off.append({name: False})
            self._closed.add(without)
            if default == without:
                self.on = {name: True}

    def as_when_on(self, options: Options) -> bool:
        """Whether a reply is begun as it is when the model is asked to think."""
        return self._opening(options) == self._opening(self.on)

    def _opening(self, options: Options) -> str | None:
        """What stands behind the words of a user; a template may write it whether it is told to open a reply or not."""
        for conversation in (SYSTEM, PLAIN):
            asks = next(count for count, said in enumerate(conversation.messages, 1) if said["role"] == "user")
            try:
                text = self._writer.prompt(conversation, asks, options)
            except ChatTemplateError:
                continue
            return text.rpartition(conversation.messages[asks - 1]["content"])[2]
        return None


def _speaks_of_thinking(name: str) -> bool:
    return "think" in name or "reason" in name
