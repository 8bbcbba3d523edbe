"""A tiny random Llama as a model folder: weights, a byte-level tokenizer of the same 512 tokens, a ChatML template.

Initial weights are large, so that one wrong cached key or value moves a log-probability by far more than rounding does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB = 512
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = (
    "the cache keeps pages of keys and values and the agent sends the same long beginning again and again",
    "import pages from cache; def acquire(tokens): return lease  # what was computed stays, the rest is computed",
    "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser. 0 1 2 3 4 5 6 7 8 9",
)


def tiny_llama(seed: int = 0, **overrides: Any) -> LlamaForCausalLM:
    """The reference model; it never ends a text by itself."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
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
    return LlamaForCausalLM(LlamaConfig(**(sizes | overrides))).float().eval()


def tiny_tokenizer() -> Tokenizer:
    """Byte-level BPE of exactly ``VOCAB`` tokens, the last two being role markers."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 2, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    filler = (f"<filler-{i}>" for i in range(VOCAB))
    while tokenizer.get_vocab_size() < VOCAB - 2:
        tokenizer.add_tokens([AddedToken(next(filler))])
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    return tokenizer


def write_tiny_folder(folder: Path, seed: int = 0, **overrides: Any) -> LlamaForCausalLM:
    """Write the model as a folder in Hugging Face layout; returns the reference model."""
    model = tiny_llama(seed, **overrides)
    model.save_pretrained(folder)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return model


def greedy(model: LlamaForCausalLM, prompts: list[list[int]], count: int) -> list[list[int]]:
    """What Hugging Face generates after each of ``prompts``, which are of one length, without any cache of ours."""
    ids = torch.tensor(prompts)
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, pad_token_id=0
        )
    return out[:, ids.shape[1] :].tolist()
