"""The decoder run by kernels that are compiled for this processor (``agentcache_kernels.cpu``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from agentcache.model.kv_store import KVStore
from agentcache.model.layers import DecoderLayer, Embedding, Linear
from agentcache_kernels import AttentionBatch
from agentcache_kernels.blocks import PoolShape
from agentcache_kernels.cpu.attention import attend
from agentcache_kernels.cpu.rows import HeadNorm, Turns, add_rms_norm, rotate_and_write, silu_and_mul

if TYPE_CHECKING:
    from agentcache.model.transformer import Transformer

Multiply = Callable[[Tensor], Tensor]


class CompiledDecoder:
    """Does what ``Transformer.forward`` does; float32 weights are packed, and gone from where they were.

    A row's bits depend on its tokens alone (docs/determinism.md), so rows need no padding here.
    """

    def __init__(self, model: Transformer) -> None:
        self._model = model
        for module in model.modules():
            if isinstance(module, (Linear, Embedding)):
                module.pack()
        self._layers = [_Layer(layer) for layer in model.layers]

    def __call__(
        self, token_ids: Tensor, positions: Tensor, slots: Tensor, kv: KVStore, batch: AttentionBatch
    ) -> Tensor:
        model = self._model
        with torch.inference_mode():
            step = _Step(Turns.of(*model.rotary.halves, positions, slots), kv, batch)
            hidden = model.embedding(token_ids).contiguous()
            delta: Tensor | None = None
            for layer in self._layers:
                delta = layer.run(hidden, delta, step)
            return add_rms_norm(hidden, delta, model.norm.weight, model.norm.eps)


class _Step(NamedTuple):
    """What all layers of one step share."""

    turns: Turns
    kv: KVStore
    batch: AttentionBatch


class _Layer:
    """A decoder layer, with what is looked up once: a step of few rows is short enough to feel every look."""

    def __init__(self, layer: DecoderLayer) -> None:
        attention, mlp = layer.attention, layer.mlp
        self._index = attention.layer
        self._heads = attention.num_heads, attention.num_kv_heads
        self._scale, self._window = attention.scale, attention.window
        self._norms = tuple((norm.weight, norm.eps) for norm in (layer.attention_norm, layer.mlp_norm))
        self._head_norm = None if attention.qk_norm is None else HeadNorm(attention.qk_norm, attention.eps)
        self._qkv, self._output = _multiply(attention.qkv), _multiply(attention.output)
        self._gate_up, self._down = _multiply(mlp.gate_up), _multiply(mlp.down)

    def run(self, hidden: Tensor, delta: Tensor | None, step: _Step) -> Tensor:
        """Adds ``delta`` to ``hidden`` and all of the layer but its last result, which is returned: adding that up is the
        next norm's first act."""
        k_pages, v_pages = step.kv.k[self._index], step.kv.v[self._index]
        plan = step.batch.compiled_plan(PoolShape(*self._heads, *k_pages.shape[1:3]), self._window)
        x = add_rms_norm(hidden, delta, *self._norms[0])
        queries = rotate_and_write(self._qkv(x), step.turns, k_pages, v_pages, self._head_norm)
        mixed = attend(queries, k_pages, v_pages, plan, self._scale)
        x = add_rms_norm(hidden, self._output(mixed.flatten(1)), *self._norms[1])
        return self._down(silu_and_mul(self._gate_up(x)))


def _multiply(layer: nn.Module) -> Multiply:
    """The layer itself, or the packed product that is all there is to it."""
    if isinstance(layer, Linear) and layer.packed is not None and layer.bias is None:
        return layer.packed
    multiply: Multiply = layer
    return multiply
