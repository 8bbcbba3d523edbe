"""Makes findings of places in a source."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agentcache.lint.finding import Confidence, Edit, Finding, Fix, Location, LossKind, Severity
from agentcache.lint.python.places import Point

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "AC101": "volatile-time",
        "AC102": "volatile-id",
        "AC103": "varying-slot",
        "AC104": "environment-block",
        "AC105": "user-text-first",
        "AC106": "retrieved-text-first",
        "AC202": "tool-order",
        "AC203": "set-order",
        "AC207": "call-arguments-rewritten",
        "AC208": "call-id-regenerated",
        "AC301": "tool-set-changed",
        "AC401": "history-edited",
        "AC402": "history-dropped",
        "AC404": "inserted-before-tail",
        "AC405": "reasoning-stripped",
        "AC601": "model-changed",
        "AC903": "unreadable-record",
    }
)
"""The rules that this check can report, by code."""

_LONGEST_EXCERPT = 120
_BYTES_PER_TOKEN = 4
_LEAST_ESTIMATE = 16
"""A smaller figure would say that there is little to lose, where only little is known."""


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong at an expression.

    Attributes:
        behind: characters of text that are computed again because of it; ``None``: not known.
        wrap: an expression that ``sorted(…)`` around it would mend.
        safe: and that can be done without looking.
        source: what varies, in this file or another one; ``None``: the defect is all here.
    """

    code: str
    severity: Severity
    confidence: Confidence
    node: ast.expr
    point: Point
    message: str
    help: str
    behind: int | None = None
    wrap: ast.expr | None = None
    safe: bool = False
    source: ast.expr | None = None


class Source:
    """A source's text, and where the nodes of its tree stand in it."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self._starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]

    def span(self, node: ast.expr) -> tuple[int, int] | None:
        """Characters ``[start, end)`` of a node; ``None`` where the parser's positions are not those of the text.

        (Before Python 3.12 the expressions inside f-strings may have wrong ones.)
        """
        if node.end_lineno is None or node.end_col_offset is None:
            return None
        start = self._offset(node.lineno, node.col_offset)
        end = self._offset(node.end_lineno, node.end_col_offset)
        try:
            found = ast.parse(f"({self.text[start:end]})", mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return (start, end) if _shape(found) == _shape(node) else None

    def place(self, node: ast.expr, point: Point) -> tuple[int, int]:
        """Line from 1 and column from 0, in characters."""
        start = self._offset(node.lineno, node.col_offset)
        named = isinstance(node, ast.Name) and self.text.startswith(node.id, start)
        if not named and self.span(node) is None:
            return point.line, 0
        return node.lineno, start - self._starts[node.lineno - 1]

    def excerpt(self, node: ast.expr) -> str:
        span = self.span(node)
        text = " ".join((ast.unparse(node) if span is None else self.text[slice(*span)]).split())
        return text if len(text) <= _LONGEST_EXCERPT else text[: _LONGEST_EXCERPT - 1] + "…"

    def finding(self, defect: Defect) -> Finding:
        line, column = self.place(defect.node, defect.point)
        kind: LossKind = "estimate"
        lost = defect.behind // _BYTES_PER_TOKEN if defect.behind else 0
        return Finding(
            code=defect.code,
            name=NAMES[defect.code],
            severity=defect.severity,
            confidence=defect.confidence,
            location=Location(file=self.file, record=line, char=column, path=defect.point.scope.name or None),
            after=self.excerpt(defect.node),
            tokens_lost=lost if lost >= _LEAST_ESTIMATE else None,
            tokens_lost_kind=kind if lost >= _LEAST_ESTIMATE else None,
            fix=self._fix(defect),
            message=defect.message,
            help=defect.help,
        )

    def unreadable(self, line: int, reason: str) -> Finding:
        return Finding(
            code="AC903",
            name=NAMES["AC903"],
            severity="error",
            location=Location(file=self.file, record=line),
            message=f"Python {sys.version_info[0]}.{sys.version_info[1]} cannot parse this: {reason}",
            help="mend the syntax, run the linter with the Python that the file is for, or leave it out; nothing was checked",
        )

    def _fix(self, defect: Defect) -> Fix:
        span = None if defect.wrap is None else self.span(defect.wrap)
        if span is None or re.search(r"\bsorted\s*=|def sorted\b", self.text):
            return Fix()
        start, end = span
        edit = Edit(
            file=self.file,
            record=self.text.count("\n", 0, start) + 1,
            path="",
            start=start,
            end=end,
            content=f"sorted({self.text[start:end]})",
        )
        return Fix(applicability="safe" if defect.safe else "unsafe", edits=(edit,))

    def _offset(self, line: int, column: int) -> int:
        """Of a place that the parser counts in bytes of UTF-8."""
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        text = self.text[start:end]
        if text.isascii():
            return start + column
        return start + len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))


def _shape(node: ast.expr) -> str:
    """Equal for the same expression, read or written to."""
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()").replace("ctx=Del()", "ctx=Load()")
