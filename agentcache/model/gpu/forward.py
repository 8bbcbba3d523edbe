"""The forward pass on the Triton kernels, over the weights of a :class:`~agentcache.model.transformer.Transformer`.

::

    residual ──► norm ──► qkv ──► [norm] turn, write to pages ──► attention ──► output ──┐
        └──────────────── add, norm ◄────────────────────────────────────────────────────┘
                            └──► gate, up ──► silu(gate) * up ──► down ──► add, norm of the next layer

Nothing here asks the device for a number, so it can be captured as a graph.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentcache.model.kv_store import KVStore
from agentcache.model.transformer import Transformer
from agentcache_kernels.gpu import (
    AttentionInputs,
    RotaryInputs,
    StepAttention,
    rms_norm,
    rotary_write,
    silu_mul,
)

ROW_GRID = 128
"""Rows of every matrix product in the batch-invariant mode.  A product of few rows reads all weights anyway, which takes as
long as multiplying some 200 rows on current chips, and 128 are enough for their matrix units."""


class KernelForward:
    """One model over one store.

    Args:
        row_grid: every matrix product has exactly so many rows, so that the library always takes the same way through it and
            a row's bits do not depend on its company; ``None`` multiplies all rows at once.
    """

    def __init__(self, model: Transformer, kv: KVStore, row_grid: int | None = None) -> None:
        self.model = model
        self.kv = kv
        self.row_grid = row_grid
        self._cos, self._sin = model.rotary.halves

    def padded(self, rows: int) -> int:
        """How many rows :meth:`hidden` and :meth:`logits` want for so many."""
        return rows if self.row_grid is None else -(-rows // self.row_grid) * self.row_grid

    def inputs(self, q: Tensor, layer: int) -> AttentionInputs:
        """A layer's queries ``[rows, heads, head_dim]`` beside its pages."""
        config = self.model.config
        return AttentionInputs(q, self.kv.k[layer], self.kv.v[layer], config.head_dim**-0.5, config.windows[layer])

    def plan_inputs(self, rows: int) -> AttentionInputs:
        """What attention is planned by: shapes and types only."""
        config = self.model.config
        return self.inputs(self.kv.k[0].new_empty((rows, config.num_heads, config.head_dim)), 0)

    def hidden(self, token_ids: Tensor, positions: Tensor, slots: Tensor, attention: StepAttention) -> Tensor:
        """``[rows, hidden_size]`` after the last norm.

        Args:
            token_ids, positions, slots: int64 ``[rows]`` with as many rows as :meth:`padded` says; slot -1 writes nothing.
        """
        residual = functional.embedding(token_ids, self.model.embedding.weight)
        normed = torch.empty_like(residual)
        change = residual
        for index, layer in enumerate(self.model.layers):
            self._norm(change, layer.attention_norm, residual if index else None, normed)
            change = self._attend(normed, index, positions, slots, attention)
            self._norm(change, layer.mlp_norm, residual, normed)
            gate_up = self._linear(normed, layer.mlp.gate_up.weight, layer.mlp.gate_up.bias)
            act = gate_up.new_empty((gate_up.shape[0], gate_up.shape[1] // 2))
            silu_mul(gate_up, act).run()
            change = self._linear(act, layer.mlp.down.weight, layer.mlp.down.bias)
        self._norm(change, self.model.norm, residual, normed)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 ``[rows, vocab_size]`` of rows of :meth:`hidden`, as many as :meth:`padded` says."""
        head = self.model.head
        return self._linear(hidden, self.model.embedding.weight if head is None else head.weight).float()

    def _attend(self, normed: Tensor, index: int, positions: Tensor, slots: Tensor, attention: StepAttention) -> Tensor:
        config, own = self.model.config, self.model.layers[index].attention
        heads = self._linear(normed, own.qkv.weight, own.qkv.bias).view(normed.shape[0], -1, config.head_dim)
        q = heads.new_empty((heads.shape[0], config.num_heads, config.head_dim))
        turning = RotaryInputs(heads, self._cos, self._sin, positions, slots, own.qk_norm, config.rms_norm_eps)
        rotary_write(turning, q, self.kv.k[index], self.kv.v[index]).run()
        mixed = attention.attend(self.inputs(q, index))
        return self._linear(mixed.flatten(1), own.output.weight, own.output.bias)

    def _norm(self, x: Tensor, norm: nn.Module, residual: Tensor | None, out: Tensor) -> None:
        rms_norm(x, norm.weight, residual, out, eps=self.model.config.rms_norm_eps).run()

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.row_grid is None or x.shape[0] == self.row_grid:
            return functional.linear(x, weight, bias)
        return torch.cat([functional.linear(rows, weight, bias) for rows in x.split(self.row_grid)])
