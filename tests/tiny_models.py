"""Small random models of every served family, and the plumbing to run one of ours over shuffled pages.

Initial weights are large (0.3), so that one wrong key or value moves a log-probability by far more than rounding does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tiny_folder import SIZES, greedy
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentcache.model.hub import ModelFiles
from agentcache.model.kv_store import KVStore
from agentcache.model.loader import load_transformer
from agentcache.model.transformer import Transformer
from agentcache_kernels import make_attention_batch

CPU = torch.device("cpu")
_CLASSES: dict[str, tuple[type, type]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 512,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied-mha": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "llama-one-kv-head-biases": ("llama", {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": ("llama", {"head_dim": 32}),
    "llama-rope-llama3": ("llama", {"rope_parameters": _LLAMA3_ROPE}),
    "llama-rope-linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}}),
    "llama-rope-yarn": ("llama", {"rope_parameters": _YARN_ROPE}),
    "mistral": ("mistral", {"sliding_window": None, "head_dim": 24}),
    "mistral-window": ("mistral", {"sliding_window": 20}),
    "mistral-wide-window": ("mistral", {"sliding_window": 270}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("qwen2", {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3-biases-no-gqa": ("qwen3", {"head_dim": 16, "num_key_value_heads": 4, "attention_bias": True}),
}


def reference_model(variant: str, seed: int = 0) -> PreTrainedModel:
    """The Hugging Face model of a variant.  Biases and norms are random too, or a lost one would not show."""
    family, overrides = VARIANTS[variant]
    config_class, model_class = _CLASSES[family]
    torch.manual_seed(seed)
    model = model_class(config_class(**(SIZES | overrides))).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model


def save(model: PreTrainedModel, folder: Path, **options: Any) -> ModelFiles:
    """Write a model as a folder in Hugging Face layout."""
    model.save_pretrained(folder, **options)
    return ModelFiles(folder, folder.name, "test")


def load(files: ModelFiles, load_format: str = "auto") -> Transformer:
    return load_transformer(files, device=CPU, dtype=torch.float32, load_format=load_format)


def random_prompt(length: int, seed: int = 0, vocab: int = 512) -> list[int]:
    return random.Random(seed).choices(range(vocab), k=length)


def reference_logprobs(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """``[len(ids), vocab]``: what the model thinks of the token after each position, in one pass without a cache."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)


def reference_greedy(model: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    return greedy(model, [prompt], count)[0]


@dataclass
class PagedRun:
    """Runs sequences of one model over a pool whose pages are handed out in shuffled order and begin as NaN."""

    model: Transformer
    page_size: int = 16
    num_pages: int = 64
    seed: int = 0
    compiled: bool | None = None
    """Kernels compiled for this machine, or torch's operators; a model that ran with the former keeps to them."""
    free: list[int] = field(init=False)
    tables: list[list[int]] = field(init=False, default_factory=list)
    lengths: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        config = self.model.config
        self.kv = KVStore(
            config.num_layers,
            self.num_pages,
            self.page_size,
            config.num_kv_heads,
            config.head_dim,
            torch.float32,
            CPU,
            self.compiled,
        )
        for pages in self.kv.k + self.kv.v:
            pages.fill_(float("nan"))
        self.free = list(range(self.num_pages))
        random.Random(self.seed).shuffle(self.free)

    def step(self, chunks: dict[int, list[int]]) -> Tensor:
        """Append ``chunks[sequence]`` to each sequence in one forward pass; logits ``[rows, vocab]`` of all rows."""
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        for sequence, chunk in chunks.items():
            while len(self.tables) <= sequence:
                self.tables.append([])
                self.lengths.append(0)
            table, start = self.tables[sequence], self.lengths[sequence]
            while len(table) * self.page_size < start + len(chunk):
                table.append(self.free.pop())
            for position, token in enumerate(chunk, start):
                ids.append(token)
                positions.append(position)
                slots.append(table[position // self.page_size] * self.page_size + position % self.page_size)
            self.lengths[sequence] += len(chunk)
        batch = make_attention_batch(
            [len(chunk) for chunk in chunks.values()],
            [self.lengths[sequence] for sequence in chunks],
            [self.tables[sequence] for sequence in chunks],
            self.page_size,
            CPU,
        )
        hidden = self.model(torch.tensor(ids), torch.tensor(positions), torch.tensor(slots), self.kv, batch)
        return self.model.logits(hidden)

    def logprobs(self, ids: list[int], chunk: int, sequence: int = 0) -> Tensor:
        """Log-probabilities of all positions of ``ids``, fed ``chunk`` tokens at a time."""
        cuts = range(0, len(ids), chunk)
        return torch.cat([self.step({sequence: ids[cut : cut + chunk]}) for cut in cuts]).log_softmax(-1)

    def greedy(self, prompt: list[int], count: int, chunk: int, sequence: int = 0) -> list[int]:
        """Greedy continuation of ``prompt``, which is fed ``chunk`` tokens at a time."""
        logits = self.logprobs(prompt, chunk, sequence)
        out: list[int] = []
        while len(out) < count:
            out.append(int(logits[-1].argmax()))
            logits = self.step({sequence: out[-1:]})
        return out
