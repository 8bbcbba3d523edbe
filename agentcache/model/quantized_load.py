"""Puts quantised layers in the place of native ones while a checkpoint is read.

A native layer's memory is touched only while its own tensors are read: as soon as all of them are there it is quantised and
dropped, so that loading needs little more than the quantised model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor, nn

from agentcache.errors import UnsupportedModelError
from agentcache.model.layers import Embedding, Linear, Slot
from agentcache.model.quantized import HalfEmbedding, Int8Head, QuantizedLinear, Wide, make_product, refusal
from agentcache.model.quantized_codes import ChannelCodes, GroupCodes, to_channel_codes, to_group_codes
from agentcache.model.quantized_store import StoredGroups
from agentcache.model.transformer import Transformer
from agentcache_kernels.cpu.available import compiles

_NARROW_ROWS = 32
"""Under ``fast``, up to so many rows are multiplied in whole numbers (``bench/weights.py layers`` shows where lines cross)."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How the weights of layers and of the output layer are kept.

    Attributes:
        kind: ``native`` in the type of numbers of the model; ``int8`` one scale a row; ``int4`` one scale and zero for 32
            inputs.  Embedding and output layer are the same in both (:class:`Int8Head`).
        policy: ``exact`` one operator for prompts and replies; ``fast`` products of many rows in floating point.
    """

    kind: Literal["native", "int8", "int4"] = "native"
    policy: Literal["exact", "fast"] = "exact"

    def __str__(self) -> str:
        return "native" if self.kind == "native" else f"{self.kind} {self.policy}"


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """A layer to be replaced: ``weights`` are the names of its matrices, in the order of its rows."""

    parent: nn.Module
    attribute: str
    layer: Any
    weights: tuple[str, ...]


class Quantizer:
    """Replaces the layers of ``model``, which the loader fills tensor by tensor and reports to :meth:`filled`.

    Args:
        stored: codes that are taken as they are.

    Attributes:
        stored_names: weights that the loader need not read, since their codes are stored.
    """

    def __init__(
        self, model: Transformer, slots: Mapping[str, Slot], weights: WeightFormat, stored: StoredGroups
    ) -> None:
        self._int4 = weights.kind == "int4"
        self._stored = stored
        self._tied = model.config.tie_word_embeddings
        self._fast = weights.policy == "fast"
        # A compiled product of many rows is as fast as any in float32.
        faster = wide_type() is not torch.float32 or not compiles(torch.device("cpu"), torch.float32)
        self._wide = Wide(_NARROW_ROWS, wide_type()) if self._fast and faster else None
        self.stored_names = stored.names & slots.keys() if self._int4 else frozenset[str]()
        self._counts: Counter[str] = Counter()
        self._places: dict[str, _Place] = {}
        self._missing: Counter[_Place] = Counter()
        for place, names in _places(model, slots):
            self._places |= dict.fromkeys(names, place)
            self._missing[place] = len(names)

    def filled(self, name: str) -> None:
        """Tensor ``name`` is in its slot, or need not be.

        Raises:
            UnsupportedModelError: its layer has a size that the operators do not take.
        """
        if (place := self._places.pop(name, None)) is None:
            return
        self._missing[place] -= 1
        if not self._missing[place]:
            del self._missing[place]
            setattr(place.parent, place.attribute, self._quantized(place))

    def summary(self) -> str:
        """A sentence for whoever starts the server."""
        parts = [f"{count} {'matrix' if count == 1 else 'matrices'} {text}" for text, count in self._counts.items()]
        exact = "one operator for prompts and replies, so warm equals cold to the last bit"
        if not self._fast:
            policy = f"exact: {exact}"
        elif self._wide is None:
            policy = f"fast: on this processor the same as exact, {exact}"
        else:
            number = str(self._wide.dtype).removeprefix("torch.")
            policy = (
                f"fast: more than {self._wide.rows} rows are multiplied in {number}; warm and cold differ by rounding"
            )
        return f"Weights: {', '.join(parts)}, output layer int8 with the best tokens in float32; policy {policy}"

    def _quantized(self, place: _Place) -> nn.Module:
        weight = place.layer.weight.data
        if isinstance(place.layer, Embedding):
            head = self._head(place.weights[0], weight) if self._tied else None
            return HalfEmbedding(weight.half() if head is None else head.table, head)
        if place.attribute == "head":
            return self._head(place.weights[0], weight)
        parts = zip(place.weights, weight.split(place.layer.outputs), strict=True)
        codes = _joined([self._codes(name, rows) for name, rows in parts])
        products = [make_product(each, self._wide) for each in codes]
        bias = place.layer.bias
        return QuantizedLinear(products, None if bias is None else bias.data, self._wide)

    def _codes(self, name: str, weight: Tensor) -> ChannelCodes | GroupCodes:
        if name in self.stored_names:
            self._counts["int4 with the codes of the GGUF file"] += 1
            return self._stored.codes(name)
        fits = refusal("int4", *weight.shape) is None
        # Who made a file of mixed types wanted these finer than the others.
        if not self._int4 or self.stored_names or not fits:
            return self._channel_codes(name, weight)
        self._counts["int4, one scale for 32 inputs"] += 1
        return to_group_codes(weight)

    def _head(self, name: str, weight: Tensor) -> Int8Head:
        _check_size(name, weight)
        return Int8Head(weight)

    def _channel_codes(self, name: str, weight: Tensor) -> ChannelCodes:
        _check_size(name, weight)
        self._counts["int8, one scale a row"] += 1
        return to_channel_codes(weight)


def _check_size(name: str, weight: Tensor) -> None:
    if (reason := refusal("int8", *weight.shape)) is not None:
        raise UnsupportedModelError(f"tensor {name} {reason}: use --weights native")


def wide_type() -> torch.dtype:
    """In which type this processor multiplies many rows fastest: bfloat16 where it has instructions for that."""
    if torch.backends.cpu.get_cpu_capability() in {"DEFAULT", "AVX2"}:  # also where ATEN_CPU_CAPABILITY says so
        return torch.float32
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    found = any(getattr(torch.cpu, name, lambda: False)() for name in probes)
    return torch.bfloat16 if found else torch.float32


def _places(model: nn.Module, slots: Mapping[str, Slot]) -> Iterator[tuple[_Place, list[str]]]:
    """Every layer to be replaced, with the names of all tensors that fill it."""
    names_of: dict[int, list[str]] = {}
    for name, slot in slots.items():
        names_of.setdefault(slot.target.untyped_storage().data_ptr(), []).append(name)
    for path, layer in model.named_modules():
        if isinstance(layer, (Linear, Embedding)):
            parent, _, attribute = path.rpartition(".")
            weights, biases = (
                [] if part is None else names_of[part.untyped_storage().data_ptr()]
                for part in (layer.weight, getattr(layer, "bias", None))
            )
            yield _Place(model.get_submodule(parent), attribute, layer, tuple(weights)), weights + biases


def _joined(parts: list[ChannelCodes | GroupCodes]) -> list[ChannelCodes | GroupCodes]:
    """Neighbours of one kind become one, so that they are one product."""
    joined: list[ChannelCodes | GroupCodes] = []
    for _, same in groupby(parts, type):
        first, *rest = same
        fields = ((getattr(part, field.name) for part in (first, *rest)) for field in dataclass_fields(first))
        joined.append(type(first)(*(torch.cat(list(field)) for field in fields)) if rest else first)
    return joined
