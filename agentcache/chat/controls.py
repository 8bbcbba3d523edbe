"""Control tokens: which strings they are, how to find them in text, and a twin of the tokenizer that never makes them.

A *control token* is a token that a model was trained to take as structure: every added token that is marked special, and
every added token that is spelled like a marker, ``<|...|>``.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers

_MARKER = re.compile(r"<[|｜][^<>]*[|｜]>")
_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def is_marker(text: str) -> bool:
    """Whether a token is spelled like a marker: ``<|...|>``."""
    return _MARKER.fullmatch(text) is not None


def control_pattern(strings: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern that finds the leftmost, longest of ``strings``; ``None`` when there are none.

    It is built as a trie, so that a thousand reserved tokens cost no more to look for than three.
    """
    words = sorted(set(strings) - {""})
    return re.compile(_trie(words)) if words else None


def _trie(words: Sequence[str], depth: int = 0) -> str:
    """``words`` are sorted and equal up to ``depth``."""
    ends = len(words[0]) == depth
    branches: list[str] = []
    start = 1 if ends else 0
    while start < len(words):
        stop = start
        while stop < len(words) and words[stop][depth] == words[start][depth]:
            stop += 1
        shared = _shared(words[start], words[stop - 1])
        branches.append(re.escape(words[start][depth:shared]) + _trie(words[start:stop], shared))
        start = stop
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if ends else ''}"


def _shared(first: str, last: str) -> int:
    """Length of the common prefix; of sorted words it is that of all between them."""
    for i, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return i
    return min(len(first), len(last))


def encoding_of(backend: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool = False) -> tokenizers.Encoding:
    """The encoding of one text, made while other threads run: the library's ``encode`` stops them all for as long."""
    (encoding,) = backend.encode_batch([text], add_special_tokens=add_special_tokens)
    return encoding


class LiteralTokenizer:
    """A twin of a tokenizer in which no text spells a control token.

    Control tokens keep their ids but answer to an *alias* that nobody can type (it holds a random number), in the list of
    added tokens and in the model's vocabulary.  A text in which the real control tokens were replaced by their aliases is
    tokenised just as the original would be, its plain parts in the same surroundings.

    Args:
        definition: a parsed ``tokenizer.json``; it is changed.
        controls: string -> id of every control token.
    """

    def __init__(self, definition: dict[str, Any], controls: Mapping[str, int]) -> None:
        nonce = secrets.token_hex(8)
        self.aliases = {text: f"\ue000{nonce}:{token}\ue001" for text, token in controls.items()}
        for added in definition["added_tokens"]:
            if added["content"] in self.aliases:
                added.update(content=self.aliases[added["content"]], special=False, normalized=False)
        _rename_pieces(definition["model"], self.aliases)
        self._backend = tokenizers.Tokenizer.from_str(json.dumps(definition))
        renamed = {self._backend.token_to_id(alias): controls[text] for text, alias in self.aliases.items()}
        self._real_ids = {given: real for given, real in renamed.items() if given is not None and given != real}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> tuple[list[int], tokenizers.Encoding]:
        """Token ids of ``text``, in which only aliases become control tokens, and the encoding that has their offsets."""
        encoding = encoding_of(self._backend, text, add_special_tokens=add_special_tokens)
        ids = encoding.ids
        if self._real_ids:
            ids = [self._real_ids.get(token, token) for token in ids]
        return ids, encoding


def _rename_pieces(model: dict[str, Any], aliases: Mapping[str, str]) -> None:
    """Take the control tokens out of reach of the model itself, which may otherwise build them out of smaller pieces.

    The piece for unknown text and those for single bytes stay: text does become them.
    """
    vocab = model["vocab"]
    if isinstance(vocab, list):  # Unigram: [piece, score], in the order of the ids
        for i, (piece, score) in enumerate(vocab):
            if i != model.get("unk_id") and piece in aliases:
                vocab[i] = [aliases[piece], score]
        return
    keep = {model.get("unk_token")}
    if model.get("byte_fallback"):
        keep |= {piece for piece in aliases if _BYTE_PIECE.fullmatch(piece)}
    gone = {piece for piece in aliases if piece in vocab and piece not in keep}
    for piece in gone:
        vocab[aliases[piece]] = vocab.pop(piece)
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if not gone.intersection(_merge_parts(merge))]


def _merge_parts(merge: str | list[str]) -> tuple[str, str, str]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right, left + right
