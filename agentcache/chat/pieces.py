"""What bytes one token stands for: the rules behind decoding, token by token.

A tokenizer's vocabulary holds *pieces* (strings in the tokenizer's own spelling).  Each rule below turns a piece into the
bytes that it adds to the text, so that a text is the concatenation of its tokens' bytes and can be decoded as a stream.
The rules follow the decoders of the ``tokenizers`` library (byte-level: the alphabet of the GPT-2 tokenizer).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import decoders

from agentcache.errors import UnsupportedModelError

PieceBytes = Callable[[str, bool], bytes]
"""``(piece, first)`` -> bytes; ``first`` is true for the first token of a text."""


@dataclass(frozen=True)
class PieceRule:
    """How pieces become bytes.

    Args:
        to_bytes: the bytes of one piece.
        strip: characters to drop from the very beginning of a text, at most ``strip_count`` of them.
        depends_on_first: whether ``to_bytes`` looks at its second argument.
    """

    to_bytes: PieceBytes
    strip: str = " "
    strip_count: int = 0
    depends_on_first: bool = False


def piece_rule(decoder: Mapping[str, Any] | None) -> PieceRule:
    """The rule for the ``decoder`` entry of a ``tokenizer.json``.

    Raises:
        UnsupportedModelError: a decoder whose text is not the concatenation of its tokens' texts.
    """
    steps = _flatten(decoder)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return PieceRule(_byte_level())
    if "Fuse" in kinds or "ByteFallback" in kinds:
        return _sentencepiece(steps, kinds)
    if kinds == ["Metaspace"]:
        return _metaspace(steps[0])
    if kinds in ([], ["WordPiece"]):
        return _joined(steps)
    raise UnsupportedModelError(
        f"tokenizer.json: got decoder {' + '.join(kinds)}, expected byte-level BPE (ByteLevel), "
        "sentencepiece (Replace, ByteFallback, Fuse, Strip or Metaspace), WordPiece or none"
    )


def _flatten(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _flatten(inner)]
    return [decoder]


def byte_alphabet() -> dict[str, int]:
    """The GPT-2 byte alphabet: a printable character for each byte.

    Printable bytes stand for themselves; the other 68 follow, in order, from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def _byte_level() -> PieceBytes:
    alphabet = byte_alphabet()

    def to_bytes(piece: str, first: bool) -> bytes:
        try:
            return bytes([alphabet[char] for char in piece])
        except KeyError:  # an added token is spelled as it is
            return piece.encode()

    return to_bytes


def _sentencepiece(steps: Sequence[Mapping[str, Any]], kinds: list[str]) -> PieceRule:
    replacements = [(_literal_pattern(step), str(step["content"])) for step in steps if step["type"] == "Replace"]
    strips = [step for step in steps if step["type"] == "Strip"]
    unknown = set(kinds) - {"Replace", "ByteFallback", "Fuse", "Strip"}
    if unknown or len(strips) > 1 or any(step["stop"] for step in strips):
        raise UnsupportedModelError(
            f"tokenizer.json: got decoder {' + '.join(kinds)}, expected Replace, ByteFallback, Fuse and one Strip "
            "that strips on the left only"
        )
    byte_fallback = "ByteFallback" in kinds

    def to_bytes(piece: str, first: bool) -> bytes:
        for old, new in replacements:
            piece = piece.replace(old, new)
        if byte_fallback and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            try:
                return bytes([int(piece[3:5], 16)])
            except ValueError:
                pass
        return piece.encode()

    if not strips:
        return PieceRule(to_bytes)
    return PieceRule(to_bytes, strip=str(strips[0]["content"]), strip_count=int(strips[0]["start"]))


def _literal_pattern(step: Mapping[str, Any]) -> str:
    pattern = step["pattern"]
    if "String" not in pattern:
        raise UnsupportedModelError(f"tokenizer.json: got a decoder that replaces {pattern}, expected a plain string")
    return str(pattern["String"])


def _metaspace(step: Mapping[str, Any]) -> PieceRule:
    mark = str(step["replacement"])
    scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")

    def to_bytes(piece: str, first: bool) -> bytes:
        drop = first and scheme != "never"  # the mark that encoding put in front of the text
        return piece.replace(mark, "" if drop else " ").encode()

    return PieceRule(to_bytes, depends_on_first=True)


def _joined(steps: Sequence[Mapping[str, Any]]) -> PieceRule:
    """Pieces are words: joined by spaces, or by WordPiece's continuation prefix."""
    decode: Callable[[list[str]], str] = " ".join
    if steps:
        word_piece = decoders.WordPiece(prefix=steps[0]["prefix"], cleanup=steps[0]["cleanup"])
        decode = word_piece.decode

    def to_bytes(piece: str, first: bool) -> bytes:
        if first:
            return decode([piece]).encode()
        return decode(["a", piece])[1:].encode()

    return PieceRule(to_bytes, depends_on_first=True)
