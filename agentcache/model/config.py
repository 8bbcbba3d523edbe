"""``config.json`` as one checked, frozen object.  No torch here.

Both forms of the rotary settings are read: ``rope_theta`` beside ``rope_scaling`` (older files) and ``rope_parameters``
(transformers 5).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentcache.errors import UnsupportedModelError
from agentcache.model.supported import refuse_unsupported


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How rotary frequencies are scaled.  Fields that a type does not use keep their defaults.

    ``rope_type``: ``default``, ``linear`` (positions divided by ``factor``), ``llama3`` (low frequencies divided by
    ``factor``, Llama 3.1) or ``yarn`` (Peng et al., "YaRN", 2023).
    """

    rope_type: str = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float = 0.0
    mscale_all_dim: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder of the Llama, Mistral, Qwen2 or Qwen3 family.  Lengths are in tokens."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    """Per layer: how many positions a token sees, itself included; ``None`` sees all before it."""
    tie_word_embeddings: bool
    attention_bias: bool
    """Bias of the query, key and value projections."""
    attention_output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    """RMSNorm over each head's queries and keys, before the rotation (Qwen3)."""
    bos_token_id: int | None
    eos_token_ids: frozenset[int]
    dtype: str | None
    """The type the weights were published in, such as ``bfloat16``."""

    @property
    def sliding_window(self) -> int | None:
        """The window of the layers that have one."""
        return next((window for window in self.windows if window is not None), None)


def read_config(folder: Path) -> ModelConfig:
    """Read ``config.json`` (and the end tokens of ``generation_config.json``) of a folder in Hugging Face layout.

    Raises:
        UnsupportedModelError: the file is missing or broken, or describes a model that is not served.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise UnsupportedModelError(f"{folder}: no config.json in it, so it is not a model in Hugging Face layout")
    raw = _read_json(path)
    generation = folder / "generation_config.json"
    return parse_config(raw, str(path), _read_json(generation) if generation.is_file() else {})


def parse_config(raw: Mapping[str, Any], where: str, generation: Mapping[str, Any] | None = None) -> ModelConfig:
    """Check ``raw`` (the content of ``config.json``); ``where`` begins every message."""
    refuse_unsupported(raw, where)
    fields = _Fields(raw, where)
    model_type = str(raw["model_type"])
    hidden = fields.count("hidden_size")
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=8 if model_type == "mistral" else heads)
    if heads % kv_heads:
        raise fields.error(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    head_dim = fields.count("head_dim", default=128 if model_type == "qwen3" else hidden // heads)
    if head_dim % 2:
        raise fields.error(f"head_dim is {head_dim}, expected an even number: rotary embedding turns pairs")
    layers = fields.count("num_hidden_layers")
    max_position = fields.count("max_position_embeddings")
    rope = _rope(fields, max_position)
    if rope.rope_type == "yarn":
        # The scaled length is what the factor is for; files often keep the length before scaling.
        max_position = max(max_position, int(rope.original_max_position * rope.factor))
    biased = model_type in {"llama", "qwen3"} and fields.flag("attention_bias")
    bos = raw.get("bos_token_id")
    return ModelConfig(
        model_type=model_type,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=max_position,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=rope,
        windows=_windows(fields, model_type, layers, max_position),
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        attention_bias=biased or model_type == "qwen2",
        attention_output_bias=biased,
        mlp_bias=model_type == "llama" and fields.flag("mlp_bias"),
        qk_norm=model_type == "qwen3",
        bos_token_id=bos if isinstance(bos, int) else None,
        eos_token_ids=_token_ids(raw.get("eos_token_id")) | _token_ids((generation or {}).get("eos_token_id")),
        dtype=raw.get("dtype") or raw.get("torch_dtype"),
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed reading of one JSON object; ``null`` counts as absent."""

    raw: Mapping[str, Any]
    where: str

    def error(self, message: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self.where}: {message}")

    def count(self, name: str, default: int | None = None) -> int:
        value = self.raw.get(name)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(f"{name} is {value!r}, expected a whole number above 0")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.raw.get(name)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.error(f"{name} is {value!r}, expected a number above 0")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.raw.get(name)
        if value not in {None, True, False}:
            raise self.error(f"{name} is {value!r}, expected true or false")
        return bool(value)


def _rope(fields: _Fields, max_position: int) -> RopeConfig:
    raw = fields.raw
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(scaling, Mapping):
        raise fields.error(f"rope_parameters is {scaling!r}, expected an object")
    if any(isinstance(value, Mapping) for value in scaling.values()):
        raise fields.error("rope_parameters differ by layer type, which is not supported: expected one set for all")
    partial = scaling.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if partial not in {None, 1}:
        raise fields.error(
            f"partial_rotary_factor is {partial}, expected 1: rotating a part of a head is not supported"
        )
    rope_type = scaling.get("rope_type") or scaling.get("type") or "default"
    if rope_type in {"dynamic", "longrope", "su"}:
        raise fields.error(
            f"rope type '{rope_type}' turns keys by an angle that depends on how long the whole sequence is, "
            "so keys that one request cached would be wrong for another"
        )
    if rope_type not in {"default", "linear", "llama3", "yarn"}:
        raise fields.error(f"rope type '{rope_type}' is not supported, expected default, linear, llama3 or yarn")
    given = _Fields({"rope_theta": raw.get("rope_theta"), **scaling}, f"{fields.where}: rope settings")
    if rope_type != "default" and given.raw.get("factor") is None:
        raise given.error(f"factor is missing, which rope type '{rope_type}' needs")
    original = raw.get("original_max_position_embeddings") or scaling.get("original_max_position_embeddings")
    attention_factor = scaling.get("attention_factor")
    return RopeConfig(
        rope_type=rope_type,
        theta=given.number("rope_theta", 10_000.0),
        factor=given.number("factor", 1.0),
        original_max_position=int(original or max_position),
        low_freq_factor=given.number("low_freq_factor", 1.0),
        high_freq_factor=given.number("high_freq_factor", 4.0),
        beta_fast=given.number("beta_fast", 32.0),
        beta_slow=given.number("beta_slow", 1.0),
        truncate=scaling.get("truncate", True),
        attention_factor=None if attention_factor is None else float(attention_factor),
        mscale=float(scaling.get("mscale") or 0.0),
        mscale_all_dim=float(scaling.get("mscale_all_dim") or 0.0),
    )


def _windows(fields: _Fields, model_type: str, layers: int, max_position: int) -> tuple[int | None, ...]:
    """Which layers see only a sliding window; each family has its own way of saying so."""
    raw = fields.raw
    types = raw.get("layer_types")
    if types is not None and len(types) != layers:
        raise fields.error(f"layer_types has {len(types)} entries, expected num_hidden_layers = {layers}")
    if model_type == "llama":
        if types is not None and "sliding_attention" in types:
            raise fields.error("layer_types asks for sliding_attention, which model_type 'llama' does not have")
        return (None,) * layers
    if model_type == "mistral":
        # A file without the key means the family's default; null means no window.
        window = fields.count("sliding_window", 4096) if raw.get("sliding_window", 4096) is not None else None
        kind = "full_attention" if window is None else "sliding_attention"
        if types is not None and any(entry != kind for entry in types):
            raise fields.error(f"layer_types {types} disagrees with sliding_window {window} of model_type 'mistral'")
        slides = [window is not None] * layers
    else:
        window = fields.count("sliding_window", 4096) if fields.flag("use_sliding_window") else None
        if types is None:
            first = int(raw.get("max_window_layers", 28))
            slides = [window is not None and layer >= first for layer in range(layers)]
        else:
            slides = [entry == "sliding_attention" for entry in types]
        if any(slides) and window is None:
            raise fields.error("layer_types asks for sliding_attention, but use_sliding_window is false")
    # A window that no sequence can outgrow is no window; full attention is the faster path.
    return tuple(window if slide and window is not None and window < max_position else None for slide in slides)


def _token_ids(value: Any) -> frozenset[int]:
    if isinstance(value, int):
        return frozenset({value})
    return frozenset(value or ())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UnsupportedModelError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise UnsupportedModelError(f"{path}: got {type(raw).__name__}, expected a JSON object")
    return raw
