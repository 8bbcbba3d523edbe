"""How far quantised weights are from float32: perplexity of a text, and greedy replies token by token."""

from __future__ import annotations

import math
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash
from torch import Tensor

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.model.kv_store import KVStore
from agentcache.model.transformer import Transformer
from agentcache_kernels import make_attention_batch

COMMIT = "b391084"
"""Of this repository: the text must not change when the repository does."""

WINDOW = 512
PAGE = 16
CPU = torch.device("cpu")
_ROOT = Path(__file__).resolve().parents[1]
_SOURCES = (
    "README.md",
    "docs/architecture.md",
    "docs/sdk.md",
    "agentcache/engine/loop.py",
    "agentcache/cache/manager.py",
)
QUESTIONS = (
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a Python function that reverses a list.",
    "Give three tips for writing clear commit messages.",
    "What does a hash table do, and when is it slow?",
    "Translate 'good morning, my friend' into French and Spanish.",
    "Write a short story about a lighthouse keeper.",
    "List the planets of the solar system in order.",
    "How do I find the largest file in a folder with a shell command?",
    "Summarise the idea of supply and demand.",
    "What is the difference between a process and a thread?",
    "Write a polite email that declines a meeting.",
)


class Pages:
    """Runs sequences of a model over pages that lie in order."""

    def __init__(self, model: Transformer, sequences: int, length: int) -> None:
        config = model.config
        per = -(-length // PAGE)
        shape = (config.num_layers, sequences * per, PAGE, config.num_kv_heads, config.head_dim)
        self._kv = KVStore(*shape, torch.float32, CPU)
        self._model = model
        self._tables = [list(range(at * per, (at + 1) * per)) for at in range(sequences)]
        self._lengths = [0] * sequences

    def step(self, chunks: dict[int, list[int]]) -> Tensor:
        """Append tokens to sequences in one forward pass; the hidden state of all rows."""
        places: list[tuple[int, int, int]] = []
        for sequence, tokens in chunks.items():
            start, table = self._lengths[sequence], self._tables[sequence]
            places += [(token, at, table[at // PAGE] * PAGE + at % PAGE) for at, token in enumerate(tokens, start)]
            self._lengths[sequence] += len(tokens)
        batch = make_attention_batch(
            [len(tokens) for tokens in chunks.values()],
            [self._lengths[sequence] for sequence in chunks],
            [self._tables[sequence] for sequence in chunks],
            PAGE,
            CPU,
        )
        ids, positions, slots = torch.tensor(places).unbind(1)
        hidden: Tensor = self._model(ids, positions, slots, self._kv, batch)
        return hidden


@dataclass(frozen=True)
class Text:
    """Windows of token ids that are predicted each from its own beginning."""

    windows: list[list[int]]
    digest: str

    @classmethod
    def read(cls, tokenizer: Tokenizer, count: int) -> Text:
        """``count`` windows spread evenly over documents and source of this repository at :data:`COMMIT`."""
        shows = (["git", "-C", str(_ROOT), "show", f"{COMMIT}:{path}"] for path in _SOURCES)
        text = "\n\n".join(subprocess.run(show, capture_output=True, text=True, check=True).stdout for show in shows)
        ids = tokenizer.encode(text)
        if len(ids) < count * WINDOW:
            raise ValueError(f"{count} windows asked for, and the text has {len(ids) // WINDOW}")
        starts = [at * (len(ids) - WINDOW) // max(1, count - 1) for at in range(count)]
        return cls([ids[start : start + WINDOW] for start in starts], xxhash.xxh3_64_hexdigest(text.encode())[:8])


@dataclass(frozen=True)
class Prediction:
    """Of every token of a text: how unlikely it was (nats), and which token was the likeliest."""

    loss: Tensor
    likeliest: Tensor

    @property
    def perplexity(self) -> float:
        return math.exp(float(self.loss.double().mean()))


def predict(model: Transformer, text: Text) -> Prediction:
    """Run ``text`` through ``model``."""
    losses, likeliest = [], []
    for window in text.windows:
        hidden = Pages(model, 1, WINDOW).step({0: window})[:-1]
        for rows, targets in zip(hidden.split(128), torch.tensor(window[1:]).split(128), strict=True):
            logits = model.logits(rows)
            losses.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none"))
            likeliest.append(logits.argmax(-1))
    return Prediction(torch.cat(losses), torch.cat(likeliest))


def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """:data:`QUESTIONS` as the model's chat template renders them."""
    renderer = ChatRenderer(tokenizer)
    return [renderer.render([{"role": "user", "content": question}]).token_ids for question in QUESTIONS]


def greedy(model: Transformer, asked: list[list[int]], count: int) -> list[list[int]]:
    """``count`` tokens after each prompt, all in one batch; end-of-text does not end a reply."""
    pages = Pages(model, len(asked), max(map(len, asked)) + count)
    last = [int(model.logits(pages.step({at: prompt})[-1:]).argmax()) for at, prompt in enumerate(asked)]
    replies = [[token] for token in last]
    for _ in range(count - 1):
        last = model.logits(pages.step({at: [token] for at, token in enumerate(last)})).argmax(-1).tolist()
        for reply, token in zip(replies, last, strict=True):
            reply.append(token)
    return replies


def tokens_in_common(reply: list[int], other: list[int]) -> int:
    """How many tokens two replies have in common from their beginning."""
    return next((at for at, (one, two) in enumerate(zip(reply, other, strict=True)) if one != two), len(reply))
