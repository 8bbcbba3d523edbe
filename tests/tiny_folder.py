"""A tiny random Llama as a model folder: weights, a byte-level tokenizer of the same 512 tokens, a ChatML template.

Initial weights are large, so that one wrong cached key or value moves a log-probability by far more than rounding does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tiny_tokenizer import write_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

VOCAB = 512
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_CORPUS = (
    "the cache keeps pages of keys and values and the agent sends the same long beginning again and again",
    "import pages from cache; def acquire(tokens): return lease  # what was computed stays, the rest is computed",
    "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser. 0 1 2 3 4 5 6 7 8 9",
)


def tiny_llama(seed: int = 0, **overrides: Any) -> LlamaForCausalLM:
    """The reference model; it never ends a text by itself."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**(SIZES | overrides))).float().eval()


def write_tiny_folder(
    folder: Path, seed: int = 0, corpus: Iterable[str] = _CORPUS, **overrides: Any
) -> LlamaForCausalLM:
    """Write the model as a folder in Hugging Face layout; returns the reference model.

    Args:
        corpus: what the vocabulary is learned from: text like it takes a few characters a token, other text one.
    """
    model = tiny_llama(seed, **overrides)
    model.save_pretrained(folder)
    write_tokenizer(folder, corpus, model.config.vocab_size)
    return model


def greedy(model: PreTrainedModel, prompts: list[list[int]], count: int) -> list[list[int]]:
    """What Hugging Face generates after each of ``prompts``, which are of one length, without any cache of ours."""
    ids = torch.tensor(prompts)
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, min_new_tokens=count,
            pad_token_id=0, eos_token_id=None,
        )  # fmt: skip
    return out[:, ids.shape[1] :].tolist()
