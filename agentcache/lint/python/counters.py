"""Numbers that grow with the conversation: counters of loops, lengths of histories."""

from __future__ import annotations

import ast
import re

from agentcache.lint.python.module import Module, last_word
from agentcache.lint.python.names import Meaning
from agentcache.lint.python.sources import Source

LISTS = re.compile(
    r"(?:^|_)(?:messages?|msgs|history|conversation|chat_log|transcript|input_items|dialog(?:ue)?|turns)$",
    re.IGNORECASE,
)
"""Names of lists of messages."""
_COUNTING = {"range", "count"}


def counted(meaning: Meaning) -> Source | None:
    """A name that counts: ``for step in range(…)``, ``step += 1``."""
    for definition in meaning.definitions:
        value = definition.value
        adds = definition.kind == "add" and isinstance(value, ast.Constant) and isinstance(value.value, int)
        loop = definition.kind == "element" and isinstance(value, ast.Call) and last_word(value.func) in _COUNTING
        if value is not None and ((adds and definition.point.loops) or loop):
            return Source("AC103", f"the counter {definition.name}", "turn", value)
    return None


def length(node: ast.Call, module: Module) -> Source | None:
    """``len(messages)``."""
    if module.imported(node.func) != "len" or len(node.args) != 1 or not LISTS.search(last_word(node.args[0])):
        return None
    return Source("AC103", "the length of a history", "turn", node)
