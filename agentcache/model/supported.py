"""Which models are served, and a sentence for each way in which one is not.

Serving a model that is only nearly one of ours would give fluent, wrong text, so everything outside is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.errors import UnsupportedModelError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")

# fmt: off
_RECURRENT_TYPES = frozenset({
    "bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "mamba",
    "mamba2", "minimax", "nemotron_h", "olmo_hybrid", "plamo2", "qwen3_5", "qwen3_5_moe", "qwen3_next",
    "recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2",
})
# fmt: on
_RECURRENT_KEYS = (
    "attn_layer_period",
    "conv_L_cache",
    "hybrid_override_pattern",
    "layers_block_type",
    "linear_num_key_heads",
    "lru_width",
    "mamba_d_state",
    "mamba_expand",
    "ssm_cfg",
    "state_size",
)
_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_OTHER_INPUT_KEYS = ("vision_config", "audio_config", "speech_config", "text_config", "image_token_id")
_ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention"})


def refuse_unsupported(raw: Mapping[str, Any], where: str) -> None:
    """Raise unless ``raw`` (a ``config.json``) describes a model of a served family.

    Raises:
        UnsupportedModelError: naming the part that is the matter.
    """
    reason = _reason(raw)
    if reason:
        raise UnsupportedModelError(f"{where}: {reason}; served families are {', '.join(FAMILIES)}")


def _reason(raw: Mapping[str, Any]) -> str | None:
    model_type = raw.get("model_type")
    if raw.get("is_encoder_decoder"):
        return f"model_type '{model_type}' is an encoder-decoder, and only decoders are served"
    if recurrent := _recurrent_part(raw):
        return f"{recurrent}, whose recurrent state cannot be cached as pages of keys and values"
    if other := next((key for key in _OTHER_INPUT_KEYS if raw.get(key) is not None), None):
        return f"'{other}' says that model_type '{model_type}' reads more than text, and only text models are served"
    if experts := next((key for key in _EXPERT_KEYS if (raw.get(key) or 0) > 1), None):
        return f"'{experts}': {raw[experts]} says mixture of experts, which is not supported"
    if model_type is None:
        return "model_type is missing"
    if model_type not in FAMILIES:
        return f"model_type '{model_type}' is not supported"
    return _part_of_a_served_family(raw)


def _recurrent_part(raw: Mapping[str, Any]) -> str | None:
    for index, kind in enumerate(raw.get("layer_types") or ()):
        if kind not in _ATTENTION_LAYERS and kind != "chunked_attention":
            return f"layer_types[{index}] is '{kind}'"
    if raw.get("model_type") in _RECURRENT_TYPES:
        return f"model_type '{raw['model_type']}' has recurrent layers"
    if key := next((key for key in _RECURRENT_KEYS if raw.get(key) is not None), None):
        return f"'{key}' says that there are recurrent layers"
    return None


def _part_of_a_served_family(raw: Mapping[str, Any]) -> str | None:
    if "chunked_attention" in (raw.get("layer_types") or ()):
        return "layer_types asks for chunked_attention, which is not supported"
    quantization = raw.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, Mapping) else quantization
        return (
            f"quantization_config: weights packed with '{method}' are not supported, use the unpacked model or a GGUF"
        )
    activation = raw.get("hidden_act", "silu")
    if activation not in {"silu", "swish"}:
        return f"hidden_act '{activation}' is not supported, expected silu"
    architectures = raw.get("architectures") or ()
    if architectures and not any(str(name).endswith("ForCausalLM") for name in architectures):
        return f"architectures {list(architectures)} has no language-model head, expected one that ends in ForCausalLM"
    return None
