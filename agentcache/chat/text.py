"""What is done to text wherever prompts are made or compared."""

from __future__ import annotations

import re
from typing import TypeVar

_SURROGATE = re.compile("[\ud800-\udfff]")
_T = TypeVar("_T", str, bytes)


def without_surrogates(text: str) -> str:
    """``text`` with lone surrogates (a JSON body may spell them, no encoder takes them) replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def common_length(a: _T, b: _T) -> int:
    """How many leading characters (or bytes) are equal; by halving, so that long texts are compared as fast as memcmp."""
    if b.startswith(a):  # the common case: a conversation that grew
        return len(a)
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
