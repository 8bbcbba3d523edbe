"""The decoder run by kernels that are compiled for this processor (``agentcache_kernels.cpu``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from agentcache.model.kv_store import KVStore
from agentcache.model.layers import DecoderLayer, Embedding, Linear
from agentcache_kernels import AttentionBatch, paged_attention
from agentcache_kernels.cpu.rows import HeadNorm, Turns, add_rms_norm, rotate_and_write, silu_and_mul

if TYPE_CHECKING:
    from agentcache.model.transformer import Transformer


class _Step(NamedTuple):
    """What all layers of one step share."""

    turns: Turns
    kv: KVStore
    batch: AttentionBatch


class CompiledDecoder:
    """Does what ``Transformer.forward`` does; float32 weights are packed, and gone from where they were.

    A row's bits depend on its tokens alone (docs/determinism.md), so rows need no padding here.
    """

    def __init__(self, model: Transformer) -> None:
        self._model = model
        for module in model.modules():
            if isinstance(module, (Linear, Embedding)):
                module.pack()

    def __call__(
        self, token_ids: Tensor, positions: Tensor, slots: Tensor, kv: KVStore, batch: AttentionBatch
    ) -> Tensor:
        model = self._model
        with torch.inference_mode():
            turns = Turns(*model.rotary.halves, positions.contiguous(), slots.contiguous())
            hidden = model.embedding(token_ids).contiguous()
            delta: Tensor | None = None
            for layer in model.layers:
                delta = self._layer(layer, hidden, delta, _Step(turns, kv, batch))
            return add_rms_norm(hidden, delta, model.norm.weight, model.norm.eps)

    def _layer(self, layer: DecoderLayer, hidden: Tensor, delta: Tensor | None, step: _Step) -> Tensor:
        """Adds ``delta`` to ``hidden`` and all of the layer but its last result, which is returned: adding that up is the
        next norm's first act."""
        attention = layer.attention
        x = add_rms_norm(hidden, delta, layer.attention_norm.weight, layer.attention_norm.eps)
        k_pages, v_pages = step.kv.k[attention.layer], step.kv.v[attention.layer]
        norm = None if attention.qk_norm is None else HeadNorm(attention.qk_norm, attention.eps)
        queries = rotate_and_write(attention.qkv(x), step.turns, k_pages, v_pages, norm)
        mixed = paged_attention(queries, k_pages, v_pages, step.batch, scale=attention.scale, window=attention.window)
        delta = attention.output(mixed.flatten(1))
        x = add_rms_norm(hidden, delta, layer.mlp_norm.weight, layer.mlp_norm.eps)
        gated: Tensor = layer.mlp.down(silu_and_mul(layer.mlp.gate_up(x)))
        return gated
