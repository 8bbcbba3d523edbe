"""Proves that a fix of a Python source changes nothing but what it says."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Sequence

from agentcache.lint.finding import Edit


def verify_python_fix(before: str, after: str, edits: Sequence[Edit]) -> str | None:
    """Why a fixed source is not to be written; ``None`` if it may be.

    A fix of this check wraps expressions in ``sorted(…)``.  So ``after`` has to be ``before`` with the edits and nothing
    else, both have to parse, the trees have to be the same once the new calls of ``sorted`` are taken out, there have to be
    as many of those as edits, and every comment has to be there still.

    Args:
        edits: with characters of ``before``; the order does not matter.
    """
    expected = _applied(before, edits)
    if expected is None:
        return "two edits overlap, or one lies outside the source"
    if expected != after:
        return "something changed that no edit names"
    try:
        was, now = _parsed(before), _parsed(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it does not parse: {error}"
    unwrap = _Unwrap()
    plain = unwrap.visit(now)
    old = _Unwrap()
    if ast.dump(old.visit(was)) != ast.dump(plain):
        return "the edits do more than sort"
    if unwrap.count - old.count != len(edits):
        return f"{unwrap.count - old.count} expressions are sorted by {len(edits)} edits"
    return None if _comments(before) == _comments(after) else "a comment would be changed"


class _Unwrap(ast.NodeTransformer):
    """Takes calls of ``sorted`` with a single argument out of a tree."""

    def __init__(self) -> None:
        self.count = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "sorted" and len(node.args) == 1 and not node.keywords:
            self.count += 1
            return node.args[0]
        return node


def _applied(text: str, edits: Sequence[Edit]) -> str | None:
    end = len(text)
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        if edit.start > edit.end or edit.end > end:
            return None
        text = text[: edit.start] + edit.content + text[edit.end :]
        end = edit.start
    return text


def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"))


def _comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]
