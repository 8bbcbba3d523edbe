"""Which message of which list an assignment changes."""

from __future__ import annotations

import ast

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


def is_old(index: ast.expr) -> bool:
    """An index that stays that of the same message while others are added behind it."""
    number = number_of(index)
    return number is not None and 0 <= number <= 2
