"""Bytes of an input as they come, in blocks of bounded size: unpacked, begun again where they were looked at, cut into lines.

Nothing here seeks, so that a pipe is as good as a file, and nothing holds more than ``LIMIT`` bytes.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, NamedTuple

LIMIT = 64 * 2**20
"""Bytes of one record.  No request is larger; whatever is, is not read into memory to find out."""
SKIPPED = 2**30
"""Bytes of a record that is too large which are passed over to get to the next one."""
_BLOCK = 2**18
_GZIP = b"\x1f\x8b"
_BOM = codecs.BOM_UTF8
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class InputError(Exception):
    """The rest of an input cannot be read; says why in one clause.

    Attributes:
        line: where, from 1; ``None``: where reading was.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


class Line(NamedTuple):
    """One line, its end left out; ``raw`` is ``None`` where it is longer than ``LIMIT``."""

    number: int
    raw: bytes | None


def blocks_of(stream: BinaryIO) -> Iterator[bytes]:
    """What ``stream`` has, unpacked if it was packed by gzip, as UTF-8 if it is UTF-16 (a redirection of PowerShell), and
    without a byte order mark.

    Raises:
        InputError: it is no whole gzip file; what could be unpacked has been handed out by then.
        OSError: it cannot be read on.
    """
    blocks = _read(stream)
    head, blocks = peek(blocks, len(_GZIP))
    if head.startswith(_GZIP):
        blocks = _unpacked(blocks)
    head, blocks = peek(blocks, len(_BOM) + 1)
    if head.startswith(_BOM):
        return _behind(len(_BOM), blocks)
    # A first character below U+0100, as JSON's always is.
    utf16 = (head[:2], head[3:4]) == (codecs.BOM_UTF16_LE, b"\0") or (head[:2], head[2:3]) == (
        codecs.BOM_UTF16_BE,
        b"\0",
    )
    return _from_utf16(blocks) if utf16 else blocks


def peek(blocks: Iterator[bytes], size: int, until: bytes | None = None) -> tuple[bytes, Iterator[bytes]]:
    """The beginning of ``blocks``, and all of them again.

    Args:
        size: how many bytes are wanted; fewer if there are no more.
        until: fewer are enough if they hold this.
    """
    seen: list[bytes] = []
    length = 0
    while length < size and not (until is not None and seen and until in seen[-1]):
        block = next(blocks, None)
        if block is None:
            break
        seen.append(block)
        length += len(block)
    return b"".join(seen)[:size], chain(seen, blocks)


def lines_of(blocks: Iterable[bytes]) -> Iterator[Line]:
    """Lines, blank ones too.

    Raises:
        InputError: one goes on for more than ``SKIPPED`` bytes.
    """
    number, held, skipped = 1, bytearray(), 0
    for block in blocks:
        for index, piece in enumerate(block.split(b"\n")):
            if index:
                yield Line(number, None if skipped else bytes(held))
                number, skipped = number + 1, 0
                held.clear()
            if skipped or len(held) + len(piece) > LIMIT:
                skipped += len(held) + len(piece)
                held.clear()
            else:
                held += piece
        if skipped > SKIPPED:
            raise InputError(f"a line of more than {SKIPPED:,} bytes: nothing behind it was read", number)
    if held or skipped:
        yield Line(number, None if skipped else bytes(held))


def _read(stream: BinaryIO) -> Iterator[bytes]:
    # read1 hands over what there is, so that a pipe that is still being written to is read as it comes.
    read = getattr(stream, "read1", stream.read)
    while block := read(_BLOCK):
        yield block


def _behind(count: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        if kept := block[count:]:
            yield kept
        count = max(0, count - len(block))


def _from_utf16(blocks: Iterator[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for block in blocks:
        if text := decoder.decode(block):
            yield text.encode("utf-8", "replace")


def _unpacked(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Of one member after another, as ``cat a.gz b.gz`` makes them."""
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    packed = b""
    try:
        for block in blocks:
            packed = block
            while packed:
                if unpacker.eof:
                    if not packed.strip(b"\0"):  # tapes and some tools fill up with them
                        break
                    unpacker = zlib.decompressobj(_GZIP_WINDOW)
                if plain := unpacker.decompress(packed, _BLOCK):
                    yield plain
                packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    except zlib.error as error:
        raise InputError(f"broken gzip data: {str(error).partition(': ')[2] or error}") from None
    if not unpacker.eof:
        raise InputError("the gzip data ends in the middle")
