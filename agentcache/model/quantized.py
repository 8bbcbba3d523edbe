"""Layers whose weights are int8 or int4 and whose rows do not depend on each other.

Weights are multiplied by torch's own CPU operators, which take activations in bfloat16, add up in float32 and give
bfloat16.  Everything between these products (norms, attention, the residual) stays in float32.

A row's result has the same bits in any company and with any number of threads, so that warm equals cold as long as one
operator serves all numbers of rows: the policy *exact*.  Under *fast*, products of many rows are done in floating point
from weights that are unpacked for each product, which is faster there and rounds differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentcache.model.quantized_codes import CENTRE, GROUP, ChannelCodes, GroupCodes, to_channel_codes

INPUT_MULTIPLE = {"int8": 16, "int4": GROUP}
"""The operators read whole vectors of inputs: other sizes give wrong numbers or end the process."""

OUTPUT_MULTIPLE = {"int8": 1, "int4": 16}

_RESCORED = 64
"""Logits that are computed again in float32."""


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


class Int8Product(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """``x @ weight.T`` of bfloat16 ``[rows, inputs]`` as bfloat16 ``[rows, outputs]``."""

    kind = "int8"

    def __init__(self, codes: ChannelCodes) -> None:
        super().__init__()
        self.register_buffer("codes", codes.codes, persistent=False)
        self.register_buffer("scales", codes.scales, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten._weight_int8pack_mm(x, self.codes, self.scales)

    def unpacked(self, wide: Wide) -> Tensor:
        """The weights in ``wide.room``."""
        return torch.mul(self.codes, self.scales.to(wide.dtype)[:, None], out=wide.room(*self.codes.shape))


class Int4Product(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """As :class:`Int8Product`; ``wide`` makes :meth:`unpacked` possible, for a byte a weight."""

    kind = "int4"

    def __init__(self, codes: GroupCodes, wide: Wide | None) -> None:
        super().__init__()
        # The order inside is the operator's own affair and depends on the processor.
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.codes.int(), 1)
        pairs = torch.stack((codes.scales, codes.zeros), -1)
        self.register_buffer("packed", packed, persistent=False)
        self.register_buffer("scales_and_zeros", pairs.transpose(0, 1).contiguous(), persistent=False)
        if wide is not None:
            centred = codes.codes.to(torch.int8).sub_(CENTRE).unflatten(1, (-1, GROUP))
            self.register_buffer("codes", centred, persistent=False)
            self.register_buffer("scales", codes.scales.to(wide.dtype)[..., None], persistent=False)
            self.register_buffer("zeros", codes.zeros.to(wide.dtype)[..., None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed, GROUP, self.scales_and_zeros)

    def unpacked(self, wide: Wide) -> Tensor:
        """The weights in ``wide.room``."""
        outputs, groups, _ = self.codes.shape
        room = wide.room(outputs, groups * GROUP)
        torch.mul(self.codes, self.scales, out=room.unflatten(1, (groups, GROUP))).add_(self.zeros)
        return room


class QuantizedLinear(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Takes the place of :class:`agentcache.model.layers.Linear`: float32 in, float32 out.

    Args:
        parts: products whose outputs lie one behind the other.
        bias: float32 ``[outputs]`` of all parts.
        wide: when and how products are done in floating point; ``None``: never.
    """

    def __init__(self, parts: Sequence[Int8Product | Int4Product], bias: Tensor | None, wide: Wide | None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.register_buffer("bias", bias, persistent=False)
        self.wide = wide

    def forward(self, x: Tensor) -> Tensor:
        if self.wide is not None and x.shape[0] > self.wide.rows:
            x = x.to(self.wide.dtype)
            outputs = [functional.linear(x, part.unpacked(self.wide)) for part in self.parts]
        else:
            x = x.to(torch.bfloat16, memory_format=torch.contiguous_format)
            outputs = [part(x) for part in self.parts]
        y = (outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)).float()
        return y if self.bias is None else y.add_(self.bias)


class Int8Head(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The output layer: int8 for all of the vocabulary, then float32 for the best of it.

    int8 alone would cost more agreement with float32 than int4 does in all layers together, and bfloat16 holds a logit to
    8 bits: the best two are often equal, and greedy text would follow the order of the vocabulary.

    Args:
        weight: float ``[vocab_size, hidden_size]``; kept in float16.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.product = Int8Product(to_channel_codes(weight))
        self.register_buffer("table", weight.half(), persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Float32 ``[rows, vocab_size]`` of float32 ``[rows, hidden_size]``."""
        logits = self.product(hidden.to(torch.bfloat16, memory_format=torch.contiguous_format)).float()
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
