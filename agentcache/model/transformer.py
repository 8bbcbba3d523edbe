"""The decoder of the Llama, Mistral, Qwen2 and Qwen3 families; what differs between them is in ``ModelConfig``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentcache.model.config import ModelConfig
from agentcache.model.kv_store import KVStore
from agentcache.model.layers import DecoderLayer, Embedding, Linear, Placement, RMSNorm, Slot, Step
from agentcache.model.rope import RotaryTable
from agentcache_kernels import AttentionBatch, PageWrites

if TYPE_CHECKING:
    from agentcache.model.compiled import CompiledDecoder


class Transformer(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Token ids in, hidden states out; keys and values live in the pages of a :class:`KVStore`.

    Weights are uninitialised until :mod:`agentcache.model.loader` fills them.
    """

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        place = Placement(dtype, device)
        self.config = config
        self.embedding = Embedding(config, place)
        self.layers = nn.ModuleList(DecoderLayer(config, layer, place) for layer in range(config.num_layers))
        self.norm = RMSNorm(config, place)
        self.head = (
            None if config.tie_word_embeddings else Linear(config.hidden_size, (config.vocab_size,), False, place)
        )
        self.rotary = RotaryTable(config, dtype, device)
        self._compiled: CompiledDecoder | None = None

    def forward(
        self, token_ids: Tensor, positions: Tensor, slots: Tensor, kv: KVStore, batch: AttentionBatch
    ) -> Tensor:
        """Run one step over the rows of all its sequences.

        Args:
            token_ids, positions: int64 ``[tokens]``, in the order of ``batch``.
            slots: int64 ``[tokens]``, where each row's keys and values are written; -1 writes nothing.

        Returns:
            ``[tokens, hidden_size]``, after the last norm.
        """
        if kv.compiled:
            return self._compiled_decoder()(token_ids, positions, slots, kv, batch)
        rows = token_ids.shape[0]
        padding = self._padding(rows)
        with torch.inference_mode():
            if padding:
                token_ids = functional.pad(token_ids, (0, padding))
                positions = functional.pad(positions, (0, padding))
            cos, sin = self.rotary.at(positions)
            step = Step(cos, sin, PageWrites.of(slots), kv, batch, rows)
            hidden = self.embedding(token_ids)
            for layer in self.layers:
                hidden = layer(hidden, step)
            return self.norm(hidden)[:rows]

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 ``[rows, vocab_size]`` of the given rows of :meth:`forward`'s result."""
        rows = hidden.shape[0]
        padding = self._padding(rows)
        with torch.inference_mode():
            if padding:
                hidden = functional.pad(hidden, (0, 0, 0, padding))
            logits = self.embedding.project(hidden) if self.head is None else self.head(hidden)
            return logits[:rows].float()

    def _compiled_decoder(self) -> CompiledDecoder:
        if self._compiled is None:
            from agentcache.model.compiled import CompiledDecoder

            self._compiled = CompiledDecoder(self)
        return self._compiled

    def weight_slots(self) -> dict[str, Slot]:
        """Every tensor that a checkpoint must hold, by its name there, and where it goes."""
        slots = {"model.embed_tokens.weight": Slot(self.embedding.weight, tuple(self.embedding.weight.shape))}
        for index, layer in enumerate(self.layers):
            slots |= layer.weight_slots(f"model.layers.{index}")
        slots |= self.norm.weight_slots("model.norm")
        if self.head is not None:
            slots |= self.head.weight_slots("lm_head")
        return slots

    def _padding(self, rows: int) -> int:
        """Rows to add so that a row's result does not depend on how many others there are."""
        return -rows % int(self.embedding.row_multiple)
