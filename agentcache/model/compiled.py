"""The decoder run by kernels that are compiled for this processor (``agentcache_kernels.cpu``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from agentcache.model.kv_store import KVStore
from agentcache.model.layers import Attention, DecoderLayer, Embedding, Linear
from agentcache_kernels import AttentionBatch
from agentcache_kernels.blocks import PoolShape
from agentcache_kernels.cpu.attention import attend
from agentcache_kernels.cpu.plan import CompiledPlan, compiled_plan
from agentcache_kernels.cpu.rows import HeadNorm, Turns, add_rms_norm, rotate_and_write, silu_and_mul

if TYPE_CHECKING:
    from agentcache.model.transformer import Transformer


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
            plans: dict[int | None, CompiledPlan] = {}
            hidden = model.embedding(token_ids).contiguous()
            delta: Tensor | None = None
            for layer in model.layers:
                delta = self._layer(layer, hidden, delta, _Place(turns, kv, batch, plans))
            return add_rms_norm(hidden, delta, model.norm.weight, model.norm.eps)

    def _layer(self, layer: DecoderLayer, hidden: Tensor, delta: Tensor | None, place: _Place) -> Tensor:
        """Adds ``delta`` to ``hidden`` and all of the layer but its last result, which is returned: adding that up is the
        next norm's first act."""
        attention = layer.attention
        x = add_rms_norm(hidden, delta, layer.attention_norm.weight, layer.attention_norm.eps)
        k_pages, v_pages = place.kv.k[attention.layer], place.kv.v[attention.layer]
        norm = None if attention.qk_norm is None else HeadNorm(attention.qk_norm, attention.eps)
        queries = rotate_and_write(attention.qkv(x), place.turns, k_pages, v_pages, norm)
        mixed = attend(queries, k_pages, v_pages, place.plan(attention), attention.scale)
        delta = attention.output(mixed.flatten(1))
        x = add_rms_norm(hidden, delta, layer.mlp_norm.weight, layer.mlp_norm.eps)
        gated: Tensor = layer.mlp.down(silu_and_mul(layer.mlp.gate_up(x)))
        return gated


class _Place:
    """What all layers of one step share."""

    def __init__(self, turns: Turns, kv: KVStore, batch: AttentionBatch, plans: dict[int | None, CompiledPlan]) -> None:
        self.turns = turns
        self.kv = kv
        self._batch = batch
        self._plans = plans

    def plan(self, attention: Attention) -> CompiledPlan:
        plan = self._plans.get(attention.window)
        if plan is None:
            shape = PoolShape(attention.num_heads, attention.num_kv_heads, self.kv.num_pages, self.kv.page_size)
            plan = self._plans[attention.window] = compiled_plan(self._batch.spans, shape, attention.window)
        return plan
