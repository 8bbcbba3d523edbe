"""A byte-level tokenizer learned from a few sentences, and a ChatML template: prompts for models of any size.  No torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(corpus: Iterable[str], vocab: int) -> Tokenizer:
    """Byte-level BPE of exactly ``vocab`` tokens, the last two being the role markers of ChatML."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab - 2, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    # A short corpus holds fewer pairs than there is room for.
    filler = (f"<filler-{i}>" for i in range(vocab))
    while tokenizer.get_vocab_size() < vocab - 2:
        tokenizer.add_tokens([AddedToken(next(filler))])
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    return tokenizer


def write_tokenizer(folder: Path, corpus: Iterable[str], vocab: int, **config: Any) -> Path:
    """``tokenizer.json`` and a ``tokenizer_config.json`` with the template and ``config``."""
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer(corpus, vocab).save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHATML} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder
