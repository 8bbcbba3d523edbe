"""Fills a :class:`Transformer` from safetensors files, or with random numbers.

transformers is not imported: that alone takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from agentcache.errors import UnsupportedModelError
from agentcache.model.checkpoint import Checkpoint
from agentcache.model.config import read_config
from agentcache.model.hub import ModelFiles
from agentcache.model.layers import Slot
from agentcache.model.quantized_load import Quantizer, WeightFormat
from agentcache.model.quantized_store import StoredGroups
from agentcache.model.transformer import Transformer

# Written by older exporters; computed here from config.json.
_DERIVED = (".rotary_emb.inv_freq", ".attn.masked_bias")
_NATIVE = WeightFormat()


def load_transformer(
    files: ModelFiles,
    *,
    device: torch.device,
    dtype: torch.dtype,
    load_format: str = "auto",
    weights: WeightFormat = _NATIVE,
    progress: Callable[[str], None] | None = None,
) -> Transformer:
    """Build the model that ``files.folder`` describes.

    Args:
        weights: how layers keep their weights; anything but native needs a CPU and float32.
        progress: is told how the weights are kept, unless they are native.
        load_format: ``auto`` reads the folder's ``*.safetensors``; ``dummy`` fills the weights with random numbers (the
            same ones every time on a kind of device) from ``config.json`` alone.

    Raises:
        UnsupportedModelError: the model is not served, or its files are missing, broken, or do not fit ``config.json``;
            names the file or the tensor.
    """
    if load_format not in {"auto", "dummy"}:
        raise UnsupportedModelError(f"load format is {load_format!r}, expected auto or dummy")
    model = Transformer(read_config(files.folder), dtype=dtype, device=device)
    slots = model.weight_slots()
    quantizer = None
    if weights.kind != "native":
        quantizer = Quantizer(model, slots, weights, StoredGroups(files.folder if load_format == "auto" else None))
    if load_format == "dummy":
        _fill_randomly(slots, quantizer)
    else:
        _fill(model, slots, files.folder, quantizer)
    if quantizer is not None and progress is not None:
        progress(quantizer.summary())
    return model


def _fill(model: Transformer, slots: dict[str, Slot], folder: Path, quantizer: Quantizer | None) -> None:
    checkpoint = Checkpoint.open(folder)
    names = checkpoint.names()
    if model.config.tie_word_embeddings:
        # Some exporters store the tied head a second time.
        names.discard("lm_head.weight")
    names = {name for name in names if not name.endswith(_DERIVED)}
    if missing := slots.keys() - names:
        raise UnsupportedModelError(
            f"{folder}: {_listed(missing)} missing from the weights, which config.json asks for"
        )
    if unexpected := names - slots.keys():
        raise UnsupportedModelError(
            f"{folder}: {_listed(unexpected)} in the weights, for which a {model.config.model_type} model of this "
            "config.json has no place"
        )
    with torch.inference_mode(False), torch.no_grad():
        stored = quantizer.stored_names if quantizer is not None else frozenset[str]()
        for name, tensor in checkpoint.tensors(slots.keys() - stored):
            # Popped, since a slot keeps the memory of a layer that is replaced.
            _copy(slots.pop(name), name, tensor, folder)
            if quantizer is not None:
                quantizer.filled(name)
        if quantizer is not None:
            for name in stored:
                quantizer.filled(name)


def _copy(slot: Slot, name: str, tensor: Tensor, folder: Path) -> None:
    if tuple(tensor.shape) != slot.shape:
        raise UnsupportedModelError(
            f"{folder}: tensor {name} has shape {list(tensor.shape)}, expected {list(slot.shape)} from config.json"
        )
    if tensor.dtype not in {torch.float32, torch.bfloat16, torch.float16, torch.float64}:
        raise UnsupportedModelError(
            f"{folder}: tensor {name} is stored as {tensor.dtype}, expected float32, bfloat16 or float16"
        )
    slot.target.copy_(tensor)


def _fill_randomly(slots: dict[str, Slot], quantizer: Quantizer | None) -> None:
    # Numbers are made where they are needed: a GPU makes eight billion in no time.
    generators: dict[torch.device, torch.Generator] = {}
    for name in list(slots):
        slot = slots.pop(name)
        if name.endswith("norm.weight"):
            slot.target.fill_(1.0)
        else:
            device = slot.target.device
            if device not in generators:
                generators[device] = torch.Generator(device).manual_seed(0)
            slot.target.copy_(torch.empty(slot.shape, device=device).normal_(std=0.02, generator=generators[device]))
        del slot
        if quantizer is not None:
            quantizer.filled(name)


def _listed(names: set[str]) -> str:
    shown = sorted(names)
    if len(shown) == 1:
        return f"tensor {shown[0]} is"
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"tensors {', '.join(shown[:3])}{more} are"
