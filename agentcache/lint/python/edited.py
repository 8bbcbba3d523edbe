"""Which message of which list an assignment changes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from agentcache.lint.python.names import targets_of
from agentcache.lint.python.places import Loop

TEXT_KEYS = frozenset({"content", "text"})
"""Keys and attributes of messages that hold what is said."""


def number_of(node: ast.expr) -> int | None:
    """The whole number that is written there."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number_of(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def edited_place(target: ast.expr) -> ast.expr | None:
    """The list in ``messages[0]["content"]``, ``messages[0].content``, ``messages[0]["content"][0]["text"]``, ``messages[0]``."""
    texts = 0
    while isinstance(target, ast.Subscript | ast.Attribute):
        if isinstance(target, ast.Attribute):
            if target.attr not in TEXT_KEYS:
                return None
            texts += 1
        elif isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            if target.slice.value not in TEXT_KEYS:
                return None
            texts += 1
        elif isinstance(target.value, ast.Name | ast.Attribute) and is_old(target.slice):
            if not (isinstance(target.value, ast.Attribute) and target.value.attr in TEXT_KEYS):
                return target.value
        elif not (isinstance(target.slice, ast.Constant) and texts):
            return None
        target = target.value
    return None


def old_messages(target: ast.expr, loops: Sequence[Loop]) -> ast.expr | None:
    """The list whose older messages a loop over ``messages[:-4]`` or ``range(len(messages) - 4)`` writes to."""
    text = target.attr if isinstance(target, ast.Attribute) else None
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        text = target.slice.value if isinstance(target.slice.value, str) else None
    if text not in TEXT_KEYS or not isinstance(target, ast.Subscript | ast.Attribute):
        return None
    message = target.value
    index = message.slice if isinstance(message, ast.Subscript) else message
    for loop in loops:
        if isinstance(index, ast.Name) and not isinstance(loop, ast.While) and index.id in targets_of(loop.target):
            return _older_part(loop.iter)
    return None


def _older_part(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        if node.func.id in ("enumerate", "reversed", "list", "len"):
            return _older_part(node.args[0]) if node.func.id != "len" else node.args[0]
        if node.func.id == "range":
            end = node.args[min(1, len(node.args) - 1)]
            return _older_part(end.left) if isinstance(end, ast.BinOp) and isinstance(end.op, ast.Sub) else None
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Slice)
        and isinstance(node.slice.upper, ast.UnaryOp)
    ):
        return node.value
    return None


def is_old(index: ast.expr) -> bool:
    """An index that stays that of the same message while others are added behind it."""
    number = number_of(index)
    return number is not None and 0 <= number <= 2
