"""A tokenizer without a vocabulary: an id spells out the up to six bytes that it stands for.

::

    "Read a.py\\n"   ->  "Read" " a" ".p" ...      words with the blank before them, cut after six bytes
    id               =   1, then the bytes, read as one number: below 2^49, and never below 256
    ids below 256    =   control tokens, which no text becomes
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

BEGIN, END = 1, 2
"""What a message begins and ends with."""
VOCABULARY = 2**49
"""Ids are below it."""
_CONTROLS = {BEGIN: "<|begin|>", END: "<|end|>"}
_FIRST = 256
_BYTES = 6
_WORDS = re.compile(r" ?\w+| ?[^\w\s]+|\s+")


def encode(text: str) -> list[int]:
    """Ids of ``text``; about as many as a usual tokenizer gives.

    >>> decode(encode("Read the file."))
    'Read the file.'
    """
    return list(_encoded(text))


@lru_cache(maxsize=1024)
def _encoded(text: str) -> tuple[int, ...]:
    """Conversations are rendered anew with every request, so the same texts come again and again."""
    return tuple(int.from_bytes(b"\x01" + piece, "big") for piece in _pieces(text))


def decode(ids: Iterable[int]) -> str:
    """The text of ids, control tokens spelled out; an id that stands for no text is written as ``<|id|>``."""
    return "".join(_spelled(token) for token in ids)


def split(text: str) -> list[str]:
    """``text`` cut where its tokens end."""
    return [piece.decode("utf-8", "surrogatepass") for piece in _pieces(text)]


def _pieces(text: str) -> Iterator[bytes]:
    for word in _WORDS.findall(text):
        if word.isascii():
            spelled = word.encode()
            yield from (spelled[start : start + _BYTES] for start in range(0, len(spelled), _BYTES))
        else:
            yield from _whole_characters(word)


def _whole_characters(word: str) -> Iterator[bytes]:
    """Pieces of a word that end where characters do."""
    piece = b""
    for character in word:
        spelled = character.encode("utf-8", "surrogatepass")
        if len(piece) + len(spelled) > _BYTES:
            yield piece
            piece = b""
        piece += spelled
    yield piece


def _spelled(token: int) -> str:
    if token in _CONTROLS:
        return _CONTROLS[token]
    spelled = token.to_bytes(7, "big").lstrip(b"\x00") if _FIRST <= token < VOCABULARY else b""
    if spelled[:1] != b"\x01":
        return f"<|{token}|>"
    return spelled[1:].decode("utf-8", "replace")
