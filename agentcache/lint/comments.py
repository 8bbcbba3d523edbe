"""Comments of sources and templates that leave findings as they are.

::

    now = time.time()      # agentcache: ignore[AC101] shown to nobody            this line
    # agentcache: ignore[AC101, AC102] shown to nobody                            the statement or line below
    # agentcache: ignore-file[AC204] written by a generator                       the whole file
    {# agentcache: ignore[AC701] the server has no clock #}                       the same in templates
"""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

import jinja2

from agentcache.lint.source_text import lines_of

_COMMENT = re.compile(
    r"""\#? \s* agentcache: \s* (?P<verb> ignore-file | ignore ) \b \s* (?: \[ (?P<codes> [^\]]* ) \] )?
        (?P<reason> .*? ) (?= \s+ \# \s | \Z )""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_LAYOUT = frozenset({tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT})


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``[start, end)`` of a file."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class IgnoreComment:
    """
    Attributes:
        codes: as written, in capitals.
        reason: empty where none is given.
        line: of the comment, from 1.
        column: of the comment, from 0.
        covers: the lines ``[first, last]`` that it is about; ``None``: the whole file.
        removal: what can be taken out with it; ``None`` where that could change what a template writes.
    """

    codes: tuple[str, ...]
    reason: str
    line: int
    column: int
    covers: tuple[int, int] | None
    removal: Span | None


def python_comments(source: str) -> Iterator[IgnoreComment]:
    """Of a Python source; none where it cannot be cut into tokens."""
    if "agentcache:" not in source:
        return
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return
    lines = lines_of(source)
    begins = [0, *accumulate(len(text) for text in lines)]
    statements = list(_statements(tokens))
    for token in tokens:
        if token.type == tokenize.COMMENT and (found := _COMMENT.search(token.string)):
            line, column = token.start
            own = not lines[line - 1][:column].strip()
            covered = _covered(line, own, statements, lines)
            start, end = column + found.start(), column + found.end()  # other tools may have a word in the same comment
            yield _comment(found, line, start, covered, _removal(lines[line - 1], begins[line - 1], start, end))


def template_comments(source: str) -> Iterator[IgnoreComment]:
    """Of a chat template; none where it cannot be cut into tokens."""
    if "agentcache:" not in source:
        return
    plain = re.sub(r"\r\n|\r", "\n", source)  # as the lexer has it
    try:
        tokens = list(jinja2.Environment().lex(plain))
    except jinja2.TemplateError:
        return
    for comment in _in_tokens(plain, tokens):
        yield comment if plain == source else replace(comment, removal=None)


def _in_tokens(source: str, tokens: list[tuple[int, str, str]]) -> Iterator[IgnoreComment]:
    lines = lines_of(source)
    begins = [0, *accumulate(len(line) for line in lines)]
    position = 0
    opened = 0
    for _, kind, value in tokens:
        at = max(position, source.find(value, position))
        position = at + len(value)
        if kind == "comment_begin":
            opened = at
        elif kind == "comment_end":
            comment = source[opened : source.index("#}", at) + 2]
            if found := _COMMENT.match(comment.removeprefix("{#").removesuffix("#}").strip("-+ \t\r\n")):
                yield _template_comment(found, comment, opened, lines, begins)


def _template_comment(
    found: re.Match[str], comment: str, opened: int, lines: list[str], begins: list[int]
) -> IgnoreComment:
    first, last = bisect_right(begins, opened), bisect_right(begins, opened + len(comment) - 1)
    column, end = opened - begins[first - 1], opened + len(comment) - begins[last - 1]
    own = not lines[first - 1][:column].strip() and not lines[last - 1][end:].strip()
    trims = comment[2] in "-+" or comment[-3] in "-+"
    removal = Span(begins[first - 1], begins[last]) if own and not trims else None
    return _comment(found, first, column, (last + 1, last + 1) if own else (first, last), removal)


def _comment(
    found: re.Match[str], line: int, column: int, covers: tuple[int, int], removal: Span | None
) -> IgnoreComment:
    codes = tuple(code.upper() for part in (found["codes"] or "").split(",") if (code := part.strip()))
    reason = " ".join(found["reason"].split()).strip(" :-–—")
    whole = found["verb"].lower() == "ignore-file"
    return IgnoreComment(codes, reason, line, column, None if whole else covers, removal)


def _statements(tokens: list[tokenize.TokenInfo]) -> Iterator[tuple[int, int]]:
    """First and last line of each logical line."""
    first = None
    for token in tokens:
        if token.type == tokenize.NEWLINE and first is not None:
            yield first, token.start[0]
            first = None
        elif token.type not in _LAYOUT and first is None:
            first = token.start[0]


def _covered(line: int, own: bool, statements: list[tuple[int, int]], lines: list[str]) -> tuple[int, int]:
    """Behind a statement's last line: the statement.  On a line of its own: what is below.  Otherwise: its line."""
    around = next((each for each in statements if each[0] <= line <= each[1]), None)
    if own and around is None:
        return next((each for each in statements if each[0] > line), (line, line))
    if own:  # inside of brackets
        below = next((n for n in range(line + 1, len(lines) + 1) if not lines[n - 1].lstrip().startswith("#")), line)
        return below, below
    return around if around is not None and around[1] == line else (line, line)


def _removal(text: str, begin: int, start: int, end: int) -> Span:
    """The comment and the blanks before it, with the line where nothing else is on it."""
    head, tail = text[:start], text[end:]
    if not head.strip() and not tail.strip():
        return Span(begin, begin + len(text))
    if not tail.strip():
        return Span(begin + len(head.rstrip()), begin + end)
    return Span(begin + start, begin + end + len(tail) - len(tail.lstrip()))  # other words of the comment stay
