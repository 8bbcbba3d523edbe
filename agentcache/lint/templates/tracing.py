"""Which line of a template wrote which character.

Jinja's compiler remembers the template line of statements, not of each thing that is printed.  So before compiling, a
statement that does nothing is put before everything that is printed, with that thing's own line::

    1  {% if thought %}             if l_thought:        # line 1
    2  <think>            becomes       None             # line 2
    3  {% endif %}                      yield '<think>'

What a macro writes belongs to the line that calls it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType, GeneratorType
from typing import Any, cast

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from agentcache.chat.template import ChatTemplate, Clock


@dataclass(frozen=True)
class Traced:
    """A rendered text and the template lines that it came from.

    Attributes:
        starts: first character of each piece.
        lines: template line of each piece, from 1.
    """

    text: str
    starts: tuple[int, ...]
    lines: tuple[int, ...]

    def line_at(self, char: int) -> int:
        """The line that wrote character ``char``; of the place behind the text, the last one."""
        return self.lines[max(0, bisect_right(self.starts, char) - 1)] if self.lines else 1


class TracedTemplate(ChatTemplate):
    """A chat template that can say where its text came from."""

    def __init__(self, source: str, clock: Clock) -> None:
        super().__init__(source, clock=clock)
        environment = self._template.environment
        self.tree = environment.parse(source)
        """The parsed template, to look at."""
        marked = _Marker().visit(environment.parse(source))
        marked.set_environment(environment)
        self._traced = environment.from_string(marked)

    def trace(self, variables: Mapping[str, Any]) -> Traced:
        """As ``render``, of what it has rendered before without refusing."""
        stream = self._traced.root_render_func(self._traced.new_context(dict(variables)))
        frame = cast("FrameType", cast("GeneratorType[str, None, None]", stream).gi_frame)
        pieces, starts, lines = [], [], []
        length = 0
        for piece in stream:
            pieces.append(piece)
            starts.append(length)
            lines.append(self._traced.get_corresponding_lineno(frame.f_lineno))
            length += len(piece)
        return Traced("".join(pieces), tuple(starts), tuple(lines))

    def condition_of(self, line: int, not_of: int) -> int | None:
        """The line of the innermost ``{% if %}`` that ``line`` stands in and ``not_of`` does not (or in another branch)."""
        found = None
        for condition in self.tree.find_all(nodes.If):
            for branch in (condition.body, condition.else_):
                first, last = _extent(branch)
                if (
                    first <= line <= last
                    and not first <= not_of <= last
                    and (found is None or condition.lineno > found)
                ):
                    found = condition.lineno
        return found

    def lines_that_call(self, name: str) -> list[int]:
        """Where the template calls ``name``, in order."""
        calls = (call for call in self.tree.find_all(nodes.Call) if isinstance(call.node, nodes.Name))
        return sorted(call.lineno for call in calls if cast("nodes.Name", call.node).name == name)


class _Marker(NodeTransformer):
    """Puts a statement with the right line before everything that is printed."""

    def visit_Output(self, output: nodes.Output) -> list[nodes.Node]:  # noqa: N802 - the visitor finds it by this name
        return [marked for child in output.nodes for part in _lines(child) for marked in _with_line(part)]


def _with_line(part: nodes.Expr) -> tuple[nodes.Node, nodes.Node]:
    line = part.lineno
    return nodes.ExprStmt(nodes.Const(None, lineno=line), lineno=line), nodes.Output([part], lineno=line)


def _lines(child: nodes.Expr) -> Iterator[nodes.Expr]:
    """``child``, cut into lines where it is text of the template."""
    if not isinstance(child, nodes.TemplateData):
        yield child
        return
    for number, line in enumerate(child.data.splitlines(keepends=True)):
        yield nodes.TemplateData(line, lineno=child.lineno + number)


def _extent(branch: list[nodes.Node]) -> tuple[int, int]:
    """First and last line of a branch; nothing, where it is empty."""
    inside = [node for top in branch for node in (top, *top.find_all(nodes.Node)) if node.lineno]
    if not inside:
        return 0, -1
    return min(node.lineno for node in inside), max(map(_last_line, inside))


def _last_line(node: nodes.Node) -> int:
    return node.lineno + (node.data.rstrip("\n").count("\n") if isinstance(node, nodes.TemplateData) else 0)
