"""One decoder layer: attention through pages, then a gated feed-forward, each after an RMSNorm and added back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentcache.model.config import ModelConfig
from agentcache.model.kv_store import KVStore
from agentcache.model.rope import rotate
from agentcache_kernels import AttentionBatch, PageWrites, paged_attention, write_kv

if TYPE_CHECKING:
    from agentcache_kernels.cpu.linear import PackedWeight


@dataclass(frozen=True, slots=True)
class Placement:
    """Where weights live and in which type."""

    dtype: torch.dtype
    device: torch.device

    def empty(self, *shape: int) -> nn.Parameter:
        """A parameter to be filled by the loader."""
        return nn.Parameter(torch.empty(shape, dtype=self.dtype, device=self.device), requires_grad=False)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one tensor of a checkpoint goes: ``target`` is (a part of) a parameter, ``shape`` what the file must hold.

    ``target`` may have more dimensions in front, over which the tensor is repeated.
    """

    target: Tensor
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers of one forward pass share.

    ::

        rows of the hidden state:  [ real rows (one per token) ............ ][ padding ]
                                   0                                     rows
    """

    cos: Tensor
    sin: Tensor
    writes: PageWrites
    kv: KVStore
    batch: AttentionBatch
    rows: int


class Linear(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """``x @ weight.T + bias`` whose weight may hold several projections of the checkpoint, one below the other."""

    def __init__(self, inputs: int, outputs: tuple[int, ...], bias: bool, place: Placement) -> None:
        super().__init__()
        self.outputs = outputs
        self.weight = place.empty(sum(outputs), inputs)
        self.bias = place.empty(sum(outputs)) if bias else None
        self.packed: PackedWeight | None = None

    def pack(self) -> None:
        """Keep the weights only in the order that compiled kernels read."""
        if self.packed is None:
            self.packed = _packed(self.weight)
            del self.weight

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is None:
            return functional.linear(x, self.weight, self.bias)
        y = self.packed(x)
        return y if self.bias is None else y.add_(self.bias)

    def weight_slots(self, *names: str) -> dict[str, Slot]:
        """Slots of the projections, which the checkpoint stores under ``names``."""
        slots = {}
        for part, parameter in (("weight", self.weight), ("bias", self.bias)):
            if parameter is not None:
                for name, rows in zip(names, parameter.split(self.outputs), strict=True):
                    slots[f"{name}.{part}"] = Slot(rows, tuple(rows.shape))
        return slots


class Embedding(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """One row per token of the vocabulary; models that tie their output layer to it multiply by the same rows."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.weight = place.empty(config.vocab_size, config.hidden_size)
        # Intel MKL multiplies the last 1-3 rows of a thread's share in float32 by other code, which rounds differently;
        # multiples of four agree to the last bit, whatever their number (docs/determinism.md).
        self.row_multiple = 4 if place.dtype == torch.float32 and place.device.type == "cpu" else 1
        self.packed: PackedWeight | None = None

    def pack(self) -> None:
        """Keep the weights only in the order that compiled kernels read, which take any number of rows."""
        if self.packed is None:
            self.packed = _packed(self.weight)
            self.row_multiple = 1
            del self.weight

    def forward(self, token_ids: Tensor) -> Tensor:
        return functional.embedding(token_ids, self.weight) if self.packed is None else self.packed.rows(token_ids)

    def project(self, hidden: Tensor) -> Tensor:
        """``[rows, vocab_size]``: the tied output layer."""
        return functional.linear(hidden, self.weight) if self.packed is None else self.packed(hidden)


def _packed(weight: Tensor) -> PackedWeight:
    from agentcache_kernels.cpu.linear import PackedWeight

    return PackedWeight(weight)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x`` scaled to a mean square of 1 along its last dimension, times ``weight``, as a new tensor."""
    if x.dtype != torch.float32:
        return functional.rms_norm(x, x.shape[-1:], None, eps).mul_(weight)  # sums in float32
    # On a CPU the library's own call does the same in more operations, which a step of few rows feels.
    scales = (x * x).mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (x * scales).mul_(weight)


class RMSNorm(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.weight = place.empty(config.hidden_size)
        self.shape = (config.hidden_size,)
        self.eps = config.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)

    def weight_slots(self, name: str) -> dict[str, Slot]:
        return {f"{name}.weight": Slot(self.weight, self.shape)}


class Attention(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Grouped-query attention with rotary positions; keys and values go to and come from pages."""

    def __init__(self, config: ModelConfig, layer: int, place: Placement) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5
        self.window = config.windows[layer]
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.qkv = Linear(config.hidden_size, (queries, keys, keys), config.attention_bias, place)
        self.output = Linear(queries, (config.hidden_size,), config.attention_output_bias, place)
        self.eps = config.rms_norm_eps
        # One row per head, so that queries and keys are normalised and turned in one go.
        self.qk_norm = place.empty(config.num_heads + config.num_kv_heads, config.head_dim) if config.qk_norm else None

    def forward(self, x: Tensor, step: Step) -> Tensor:
        heads = self.qkv(x).view(x.shape[0], -1, self.head_dim)
        turning, values = heads.split((self.num_heads + self.num_kv_heads, self.num_kv_heads), 1)
        if self.qk_norm is not None:
            turning = rms_norm(turning, self.qk_norm, self.eps)
        queries, keys = rotate(turning, step.cos, step.sin).split((self.num_heads, self.num_kv_heads), 1)
        k_pages, v_pages = step.kv.k[self.layer], step.kv.v[self.layer]
        write_kv(keys[: step.rows], values[: step.rows], k_pages, v_pages, step.writes)
        mixed = paged_attention(queries, k_pages, v_pages, step.batch, scale=self.scale, window=self.window)
        return self.output(mixed.flatten(1))

    def weight_slots(self, name: str) -> dict[str, Slot]:
        slots = self.qkv.weight_slots(f"{name}.q_proj", f"{name}.k_proj", f"{name}.v_proj")
        slots |= self.output.weight_slots(f"{name}.o_proj")
        if self.qk_norm is not None:
            queries, keys = self.qk_norm.split((self.num_heads, self.num_kv_heads))
            slots[f"{name}.q_norm.weight"] = Slot(queries, (self.head_dim,))
            slots[f"{name}.k_norm.weight"] = Slot(keys, (self.head_dim,))
        return slots


def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)`` as a new tensor.

    torch's own kernel works in vectors and rounds what is left over at the end of a thread's share differently.  Where
    shares end follows from the number of rows and threads, so in float32 on a CPU it is written out in operations that
    give an element the same bits wherever it stands (docs/determinism.md).
    """
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return functional.silu(x)
    denominator = x.neg().exp_().add_(1)
    return torch.div(x, denominator, out=denominator)


class GatedMLP(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """``down(silu(gate(x)) * up(x))`` (Shazeer, "GLU Variants Improve Transformer", 2020)."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.width = config.intermediate_size
        self.gate_up = Linear(config.hidden_size, (self.width, self.width), config.mlp_bias, place)
        self.down = Linear(self.width, (config.hidden_size,), config.mlp_bias, place)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).split(self.width, -1)
        return self.down(silu(gate).mul_(up))

    def weight_slots(self, name: str) -> dict[str, Slot]:
        return self.gate_up.weight_slots(f"{name}.gate_proj", f"{name}.up_proj") | self.down.weight_slots(
            f"{name}.down_proj"
        )


class DecoderLayer(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Attention and feed-forward; the hidden state is updated in place."""

    def __init__(self, config: ModelConfig, layer: int, place: Placement) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config, place)
        self.attention = Attention(config, layer, place)
        self.mlp_norm = RMSNorm(config, place)
        self.mlp = GatedMLP(config, place)

    def forward(self, hidden: Tensor, step: Step) -> Tensor:
        hidden.add_(self.attention(self.attention_norm(hidden), step))
        return hidden.add_(self.mlp(self.mlp_norm(hidden)))

    def weight_slots(self, name: str) -> dict[str, Slot]:
        return (
            self.attention_norm.weight_slots(f"{name}.input_layernorm")
            | self.attention.weight_slots(f"{name}.self_attn")
            | self.mlp_norm.weight_slots(f"{name}.post_attention_layernorm")
            | self.mlp.weight_slots(f"{name}.mlp")
        )
