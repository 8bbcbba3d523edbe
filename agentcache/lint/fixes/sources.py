"""Proofs that a mended source still says the same."""

from __future__ import annotations

import ast
import datetime
import io
import tokenize
import warnings
from collections.abc import Callable, Iterator, Sequence

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from agentcache.errors import AgentCacheError
from agentcache.lint.finding import Edit
from agentcache.lint.templates.tracing import TracedTemplate

Verifier = Callable[[str, str, Sequence[Edit]], "str | None"]
"""Of the text before and after, and the edits in order: why it is not to be written; ``None`` if it may be."""


def verify_python(before: str, after: str, edits: Sequence[Edit]) -> str | None:
    from agentcache.lint.python.fixes import verify_python_fix  # parsing Python is needed for Python only

    return verify_python_fix(before, after, edits)


def verify_comment(before: str, after: str, edits: Sequence[Edit]) -> str | None:
    """The edits take comments out of a Python source, and nothing else."""
    if any(edit.content or not before[edit.start : edit.end].lstrip().startswith("#") for edit in edits):
        return "more than a comment would go"
    try:
        same = list(_code(before)) == list(_code(after)) and _tree(before) == _tree(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        return f"it does not parse: {error}"
    return None if same else "more than a comment would go"


def _code(text: str) -> Iterator[tuple[int, str]]:
    layout = (tokenize.COMMENT, tokenize.NL)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            yield token.type, "" if token.type == tokenize.NEWLINE else token.string


def _tree(text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.dump(ast.parse(text))


def verify_template_comment(before: str, after: str, edits: Sequence[Edit]) -> str | None:
    """The edits take comments out of a chat template, and what it writes stays the same."""
    if any(edit.content or not before[edit.start : edit.end].lstrip().startswith("{#") for edit in edits):
        return "more than a comment would go"
    try:
        same = _written(before) == _written(after)
    except (AgentCacheError, RecursionError) as error:
        return f"it does not parse: {error}"
    return None if same else "the template would write something else"


def _written(source: str) -> nodes.Template:
    """The template's tree, with pieces of text that follow each other as one."""
    tree = _Joiner().visit(TracedTemplate(source, datetime.datetime.now).tree)
    assert isinstance(tree, nodes.Template)
    return tree


class _Joiner(NodeTransformer):
    def visit_Output(self, output: nodes.Output) -> nodes.Output:  # noqa: N802 - the visitor finds it by this name
        joined: list[nodes.Expr] = []
        for part in output.nodes:
            last = joined[-1] if joined else None
            if isinstance(part, nodes.TemplateData) and isinstance(last, nodes.TemplateData):
                joined[-1] = nodes.TemplateData(last.data + part.data, lineno=last.lineno)
            else:
                joined.append(part)
        return nodes.Output(joined, lineno=output.lineno)
