"""The text of sources and templates, in characters and lines as findings count them."""

from __future__ import annotations

import io
import re
import tokenize

from agentcache.lint.readers.kinds import Kind, is_prompt, kind_of

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


def decoded(content: bytes, file: str) -> str:
    """A file's text without a mark at its beginning, with line ends as they are; Python says its encoding itself.

    Raises:
        SyntaxError: it declares an encoding that there is not.
        UnicodeDecodeError: it is not in its encoding.
    """
    encoding = "utf-8-sig"
    if kind_of(file, content[:256]) is Kind.PYTHON:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def lines_of(text: str) -> list[str]:
    """Lines with their ends, as Python and editors count them: no other separators end one."""
    return _LINE.findall(text)


def is_text(file: str) -> bool:
    """Whether findings of the file are at lines and columns of it: a source, a template or a prompt."""
    return kind_of(file) is not Kind.RECORDS or is_prompt(file)
