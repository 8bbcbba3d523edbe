"""Tokenizers in which control tokens cut a text, and one in which they are looked for in the text as it is rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from agentcache.chat.tokenizer import Tokenizer


def separate_and_not(folder: Path) -> Iterator[Tokenizer]:
    for normalized in (False, True):
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        backend = Backend(models.BPE({piece: token for token, piece in enumerate(alphabet)}, []))
        backend.normalizer = normalizers.NFKC()
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([AddedToken("<s>", normalized=normalized)])
        made = folder / str(normalized)
        made.mkdir(exist_ok=True)
        backend.save(str(made / "tokenizer.json"))
        yield Tokenizer.from_folder(made)
