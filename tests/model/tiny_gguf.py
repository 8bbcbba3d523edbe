"""Writes small GGUF files as llama.cpp's own converter would: its names, its row order, a byte-level vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_SPECIAL = ["<|end|>", "<|start|>"]


def gguf_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """The model's weights under GGUF names, queries and keys of a llama in GGUF's row order."""
    config = model.config
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stem, _, kind = name.rpartition(".")
        layer = ""
        if stem.startswith("model.layers."):
            _, _, index, stem = stem.split(".", 3)
            layer = f"blk.{index}."
        if config.model_type == "llama" and stem in {"self_attn.q_proj", "self_attn.k_proj"}:
            heads = config.num_attention_heads if stem == "self_attn.q_proj" else config.num_key_value_heads
            halves = tensor.view(heads, 2, -1, *tensor.shape[1:])
            tensor = halves.transpose(1, 2).reshape(tensor.shape)
        tensors[f"{layer}{_NAMES[stem]}.{kind}"] = tensor.contiguous()
    return tensors


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    tensors: Mapping[str, Tensor] | None = None,
    keys: Mapping[str, Any] | None = None,
    kinds: Mapping[str, gguf.GGMLQuantizationType] | None = None,
) -> Path:
    """Write ``model``.

    Args:
        tensors: replaces its weights.
        keys: adds metadata (whole numbers, floats or texts).
        kinds: in which type a matrix is packed, by a part of its name; Q8_0 where none fits.
    """
    config = model.config
    arch = config.model_type
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    for key, value in (keys or {}).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(key, value)
    _add_vocabulary(writer, config.vocab_size)
    for name, tensor in (gguf_tensors(model) if tensors is None else tensors).items():
        values = tensor.numpy().astype(np.float32)
        # As llama.cpp does: matrices packed, vectors not.
        packed = values.ndim == 2 and values.shape[1] % 32 == 0
        chosen = [kind for part, kind in (kinds or {}).items() if part in name] + [gguf.GGMLQuantizationType.Q8_0]
        kind = chosen[0] if packed else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def as_stored(tensor: Tensor) -> Tensor:
    """What is left of a matrix after packing and unpacking."""
    values = tensor.numpy().astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    return torch.from_numpy(gguf.dequantize(gguf.quantize(values, kind), kind).copy())


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    tokens = _SPECIAL + _byte_alphabet()
    merges = []
    for first, second in (("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("Ġw", "o")):
        merges.append(f"{first} {second}")
        tokens.append(first + second)
    tokens += [f"unused{index}" for index in range(size - len(tokens))]
    kinds = [gguf.TokenType.CONTROL] * len(_SPECIAL) + [gguf.TokenType.NORMAL] * (size - len(_SPECIAL))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_eot_token_id(1)
    writer.add_chat_template("{% for m in messages %}<|start|>{{ m['content'] }}<|end|>{% endfor %}")


def _byte_alphabet() -> list[str]:
    """One printable character per byte, as byte-level vocabularies spell them."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(shifted)) for byte in range(256)]
