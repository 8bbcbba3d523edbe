"""Layers whose weights are int8 or int4 and whose rows do not depend on each other.

Where kernels are compiled for the processor, a product has the bits of the float32 product with the weights that the codes
stand for (``agentcache_kernels.cpu.linear``).  Elsewhere torch's own CPU operators multiply: they take activations in
bfloat16, add up in float32 and give bfloat16.  Everything between these products (norms, attention, the residual) is float32.

Either way a row's result has the same bits in any company and with any number of threads, so that warm equals cold as long
as one operator serves all numbers of rows: the policy *exact*.  Under *fast*, products of many rows are done in another type
from weights that are unpacked for each product, which is faster there and rounds differently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentcache.model.quantized_codes import GROUP, ChannelCodes, GroupCodes, to_channel_codes
from agentcache_kernels.cpu.available import compiles

_RESCORED = 64
"""Logits that are computed again in float32."""

_CENTRE = 8
"""From here codes are counted by torch's operator, and where they are unpacked."""


class Wide:
    """Under ``fast``: products of more than ``rows`` rows are done in ``dtype``.

    All layers of a model share one, and with it the memory into which weights are unpacked: getting that anew from the
    system for each product would take several times as long as unpacking does.
    """

    def __init__(self, rows: int, dtype: torch.dtype) -> None:
        self.rows = rows
        self.dtype = dtype
        self._memory = torch.empty(0, dtype=dtype)

    def room(self, outputs: int, inputs: int) -> Tensor:
        """``[outputs, inputs]`` of anything, until the next call."""
        if self._memory.numel() < outputs * inputs:
            self._memory = torch.empty(outputs * inputs, dtype=self.dtype)
        return self._memory[: outputs * inputs].view(outputs, inputs)


class Product(nn.Module, ABC):  # type: ignore[misc]  # torch is untyped to mypy here
    """``x @ weight.T``: float32 ``[rows, outputs]`` from float32 ``[rows, inputs]``."""

    kind: str
    """``int8`` or ``int4``."""

    @abstractmethod
    def unpacked(self, wide: Wide) -> Tensor:
        """The weights ``[outputs, inputs]`` in ``wide.room``."""


class CompiledProduct(Product):
    """By compiled kernels; ``wide`` makes :meth:`unpacked` possible, for another byte a weight."""

    def __init__(self, codes: ChannelCodes | GroupCodes, wide: Wide | None) -> None:
        from agentcache_kernels.cpu.linear import PackedInt4, PackedInt8

        super().__init__()
        if isinstance(codes, ChannelCodes):
            self.kind = "int8"
            self.packed: PackedInt8 | PackedInt4 = PackedInt8(codes.codes, codes.scales)
        else:
            self.kind = "int4"
            self.packed = PackedInt4(codes.codes, codes.scales, codes.leasts)
        self._channels = codes if wide is not None and isinstance(codes, ChannelCodes) else None
        self._centred = _Centred.of(codes) if wide is not None and isinstance(codes, GroupCodes) else None

    def forward(self, x: Tensor) -> Tensor:
        return self.packed(x)

    def unpacked(self, wide: Wide) -> Tensor:
        if self._channels is not None:
            return _unpacked_channels(self._channels, wide)
        assert self._centred is not None
        return self._centred.unpacked(wide)


class Int8Product(Product):
    """By torch's operator."""

    kind = "int8"

    def __init__(self, codes: ChannelCodes) -> None:
        super().__init__()
        # The operator takes its scales in bfloat16.
        self._codes = ChannelCodes(codes.codes, codes.scales.bfloat16().float())

    def forward(self, x: Tensor) -> Tensor:
        scales = self._codes.scales.bfloat16()
        return torch.ops.aten._weight_int8pack_mm(_narrow(x), self._codes.codes, scales).float()

    def unpacked(self, wide: Wide) -> Tensor:
        return _unpacked_channels(self._codes, wide)


class Int4Product(Product):
    """By torch's operator; ``wide`` makes :meth:`unpacked` possible, for a byte a weight."""

    kind = "int4"

    def __init__(self, codes: GroupCodes, wide: Wide | None) -> None:
        super().__init__()
        # The operator takes these in bfloat16.
        scales = codes.scales.bfloat16().float()
        zeros = (codes.leasts.float() + _CENTRE * scales).bfloat16().float()
        centred = _Centred(codes.codes.to(torch.int8) - _CENTRE, scales, zeros)
        # The order inside is the operator's own affair and depends on the processor.
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.codes.int(), 1)
        pairs = torch.stack((centred.scales, centred.zeros), -1).bfloat16()
        self._scales_and_zeros = pairs.transpose(0, 1).contiguous()
        self._centred = None if wide is None else centred

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(
            _narrow(x), self._packed, GROUP, self._scales_and_zeros
        ).float()

    def unpacked(self, wide: Wide) -> Tensor:
        assert self._centred is not None
        return self._centred.unpacked(wide)


def make_product(codes: ChannelCodes | GroupCodes, wide: Wide | None, *, compiled: bool | None = None) -> Product:
    """The product with what ``codes`` stand for, by the kernels that this machine has."""
    if compiles(torch.device("cpu"), torch.float32) if compiled is None else compiled:
        return CompiledProduct(codes, wide)
    return Int8Product(codes) if isinstance(codes, ChannelCodes) else Int4Product(codes, wide)


def refusal(kind: str, outputs: int, inputs: int) -> str | None:
    """Why a matrix of that size cannot be kept as ``kind``, or ``None``.

    torch's operators read whole vectors: sizes that they do not take give wrong numbers or end the process.
    """
    compiled = compiles(torch.device("cpu"), torch.float32)
    multiple = GROUP if kind == "int4" else 1 if compiled else 16
    if inputs % multiple:
        return f"has {inputs} inputs, and {kind} weights come in multiples of {multiple}"
    if kind == "int4" and not compiled and outputs % 16:
        return f"has {outputs} outputs, and {kind} weights come in multiples of 16"
    return None


def _narrow(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16, memory_format=torch.contiguous_format)


def _unpacked_channels(codes: ChannelCodes, wide: Wide) -> Tensor:
    return torch.mul(codes.codes, codes.scales.to(wide.dtype)[:, None], out=wide.room(*codes.codes.shape))


@dataclass(slots=True)
class _Centred:
    """int4 groups seen from their middle: ``(code - 8) * scale + zero``.

    In a type of few bits that keeps more of a weight than counting from the group's least one, which is large.
    """

    codes: Tensor
    """int8 ``[outputs, inputs]``, -8 .. 7."""
    scales: Tensor
    zeros: Tensor
    """float32 ``[outputs, inputs / 32]``, as scales."""

    @classmethod
    def of(cls, codes: GroupCodes) -> _Centred:
        scales = codes.scales.float()
        return cls(codes.codes.to(torch.int8) - _CENTRE, scales, codes.leasts.float() + _CENTRE * scales)

    def unpacked(self, wide: Wide) -> Tensor:
        room = wide.room(*self.codes.shape)
        grouped = room.unflatten(1, (-1, GROUP))
        torch.mul(self.codes.unflatten(1, (-1, GROUP)), self.scales.to(wide.dtype)[..., None], out=grouped)
        grouped.add_(self.zeros.to(wide.dtype)[..., None])
        return room


class QuantizedLinear(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Takes the place of :class:`agentcache.model.layers.Linear`: float32 in, float32 out.

    Args:
        parts: products whose outputs lie one behind the other.
        bias: float32 ``[outputs]`` of all parts.
        wide: when and how products are done in floating point; ``None``: never.
    """

    def __init__(self, parts: Sequence[Product], bias: Tensor | None, wide: Wide | None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.register_buffer("bias", bias, persistent=False)
        self.wide = wide

    def forward(self, x: Tensor) -> Tensor:
        if self.wide is not None and x.shape[0] > self.wide.rows:
            x = x.to(self.wide.dtype)
            outputs = [functional.linear(x, part.unpacked(self.wide)).float() for part in self.parts]
        else:
            outputs = [part(x) for part in self.parts]
        y = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
        return y if self.bias is None else y.add_(self.bias)


class Int8Head(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The output layer: int8 for all of the vocabulary, then float32 for the best of it.

    int8 alone would cost more agreement with float32 than int4 does in all layers together, and torch's operator gives
    bfloat16, which holds a logit to 8 bits: the best two would often be equal.

    Args:
        weight: float ``[vocab_size, hidden_size]``; kept in float16.
    """

    def __init__(self, weight: Tensor, *, compiled: bool | None = None) -> None:
        super().__init__()
        self.product = make_product(to_channel_codes(weight), None, compiled=compiled)
        self.register_buffer("table", weight.half(), persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Float32 ``[rows, vocab_size]`` of float32 ``[rows, hidden_size]``."""
        logits = self.product(hidden)
        best = logits.topk(min(_RESCORED, logits.shape[1])).indices
        # Not a matrix product: that one takes another way when there is a single row.
        return logits.scatter_(1, best, (self.table[best] * hidden[:, None]).sum(-1))


class HalfEmbedding(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Takes the place of :class:`agentcache.model.layers.Embedding`; ``project`` is the tied output layer, if it is one.

    Args:
        table: float16 ``[vocab_size, hidden_size]``.
    """

    row_multiple = 1

    def __init__(self, table: Tensor, project: Int8Head | None) -> None:
        super().__init__()
        self.project = project
        self.register_buffer("table", table, persistent=False)

    def forward(self, token_ids: Tensor) -> Tensor:
        return functional.embedding(token_ids, self.table).float()
