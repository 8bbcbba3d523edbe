"""Replies drawn from nothing but a grammar: every allowed token has a chance, so nothing but the masks makes sense of them."""

from __future__ import annotations

import functools
import json
import random
from typing import Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from agentcache.chat.detokenizer import TextStream
from agentcache.chat.tokenizer import Tokenizer, TokenizerFiles
from agentcache.request import Grammar

PIECES = [
    "▁",
    "▁▁",
    "▁{",
    "{",
    '▁"',
    '"',
    '":',
    '"}',
    '",',
    "▁the",
    "the",
    "▁city",
    "city",
    "▁a",
    "▁1",
    "12",
    "▁[",
    "]",
]


class Drawn(NamedTuple):
    text: str
    ids: list[int]
    ended: bool
    """Whether an end token was drawn, or the grammar left nothing else to draw."""


def allowed(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(_bits(mask)).tolist()


def _bits(mask: np.ndarray) -> np.ndarray:
    return np.unpackbits(mask.view(np.uint8), bitorder="little")


@functools.lru_cache(maxsize=8)
def _closing(tokenizer: Tokenizer, size: int) -> np.ndarray:
    """``[size]``: 1 for tokens that quote, close or end something."""
    ids = range(tokenizer.vocab_size)
    closing = [t in tokenizer.eos_token_ids or bool(set(b'"}],') & set(tokenizer.token_bytes(t))) for t in ids]
    return np.pad(np.array(closing, np.uint8), (0, size - len(closing)))


def draw(tokenizer: Tokenizer, grammar: Grammar, seed: int, most: int = 1500) -> Drawn:
    """A reply of at most ``most`` tokens; every second draw takes a token that closes something, if one may come."""
    rng = random.Random(seed)
    constraint = grammar.start()
    ids: list[int] = []
    ended = False
    while len(ids) < most and not ended:
        bits = _bits(constraint.mask())
        tokens = np.flatnonzero(bits & _closing(tokenizer, len(bits))) if rng.random() < 0.5 else ()
        token = int(rng.choice(tokens if len(tokens) else np.flatnonzero(bits)))
        constraint.advance(token)
        if token not in tokenizer.eos_token_ids:
            ids.append(token)
        ended = token in tokenizer.eos_token_ids or (constraint.finished and not tokenizer.eos_token_ids)
    stream = TextStream(tokenizer)
    text = "".join(stream.push(token).text for token in ids) + stream.flush()
    return Drawn(text, ids, ended)


def tokenizer_of(backend: Backend, **config: Any) -> Tokenizer:
    return Tokenizer(TokenizerFiles(backend, _decoder(backend), config, {}, frozenset()))


def sentencepiece_like(decoder: str) -> Tokenizer:
    """``metaspace``: a Metaspace decoder; ``fallback``: Replace, ByteFallback, Fuse and Strip.  Both drop a first space."""
    fallback = decoder == "fallback"
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256) if fallback), *PIECES]
    pieces += [chr(c) for c in range(33, 127) if chr(c) not in PIECES]
    backend = Backend(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0, byte_fallback=fallback))
    if fallback:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        backend.decoder = decoders.Metaspace()
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    return tokenizer_of(backend, eos_token="</s>")


def _decoder(backend: Backend) -> dict[str, Any] | None:

    found = json.loads(backend.to_str())["decoder"]
    return found if isinstance(found, dict) else None
