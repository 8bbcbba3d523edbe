"""What Hugging Face says about the same weights, without any cache across requests."""

from __future__ import annotations

import random
from typing import Any

import torch
from tiny_folder import VOCAB, greedy


def random_ids(length: int, seed: int | str) -> list[int]:
    return random.Random(f"{length}/{seed}").choices(range(VOCAB), k=length)


class Reference:
    """Greedy replies and log-probabilities by full forward passes; replies are remembered by prompt."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._replies: dict[tuple[int, ...], list[int]] = {}

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        known = self._replies.get(tuple(prompt), [])
        if len(known) < count:
            known = self._replies[tuple(prompt)] = greedy(self.model, [prompt], count)[0]
        return known[:count]

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        """``[len(ids), vocab]``: of the token after each position."""
        with torch.no_grad():
            return self.model(torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)

    def check(self, prompt: list[int], reply: dict[str, Any], count: int) -> None:
        """A greedy reply of ``/v1/completions`` with ``logprobs`` and ``return_token_ids`` is right in every figure."""
        choice = reply["choices"][0]
        ids = choice["token_ids"]
        assert ids == self.greedy(prompt, count)
        expected = self.logprobs(prompt + ids)
        for offset, (token, logprob) in enumerate(zip(ids, choice["logprobs"]["token_logprobs"], strict=True)):
            assert abs(expected[len(prompt) - 1 + offset, token].item() - logprob) < 1e-3


def cached(reply: dict[str, Any]) -> int:
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]
