"""A GGUF file seen as a Hugging Face checkpoint: ``config.json`` fields, and tensors under their names there.

Written against the GGUF specification of the ggml project; reading and unpacking are done by its ``gguf`` package.
Everything that would change the text and that cannot be carried over is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import torch
from torch import Tensor

from agentcache.errors import UnsupportedModelError
from agentcache.model.config import RopeConfig
from agentcache.model.quantized_codes import GroupCodes
from agentcache.model.quantized_gguf import group_codes
from agentcache.model.rope import rotary_frequencies
from agentcache.model.supported import FAMILIES

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_ROPE_FACTORS = "rope_freqs.weight"
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFFile:
    """One opened file.

    Raises:
        UnsupportedModelError: not a readable GGUF file, one piece of several, or an architecture that is not served.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = gguf.GGUFReader(path)
        except (ValueError, IndexError, KeyError, OSError, OverflowError, UnicodeDecodeError) as error:
            raise UnsupportedModelError(f"{path}: not a readable GGUF file: {error}") from None
        self.architecture = str(self._field("general.architecture"))
        if (self._field("split.count") or 1) > 1:
            raise self._error("one piece of a GGUF split over several files, which is not supported: merge them first")
        if self.architecture not in _ARCHITECTURES:
            raise self._error(
                f"GGUF architecture '{self.architecture}' is not supported; served are {', '.join(_ARCHITECTURES)} "
                f"(families {', '.join(FAMILIES)})"
            )
        self._shapes = {tensor.name: [int(n) for n in reversed(tensor.shape)] for tensor in self._reader.tensors}

    def config(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        if experts := self._field(f"{self.architecture}.expert_count"):
            raise self._error(f"expert_count {experts} says mixture of experts, which is not supported")
        heads, kv_heads = self._head_counts()
        hidden = self._count("embedding_length")
        head_dim = self._head_dim(hidden // heads)
        biased = "blk.0.attn_q.bias" in self._shapes
        eos = sorted({token for kind in ("eos", "eot") if (token := self._token(kind)) is not None})
        context = self._count("context_length")
        theta = float(self._key("rope.freq_base") or 10_000.0)
        return {
            "architectures": [f"{self.architecture.capitalize()}ForCausalLM"],
            "model_type": self.architecture,
            "vocab_size": self._shape("token_embd.weight")[0],
            "hidden_size": hidden,
            "intermediate_size": self._count("feed_forward_length"),
            "num_hidden_layers": self._count("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": context,
            "rms_norm_eps": float(self._key("attention.layer_norm_rms_epsilon") or 1e-6),
            "rope_parameters": {"rope_theta": theta, **self._rope_scaling(theta, head_dim, context)},
            "attention_bias": biased and self.architecture != "qwen2",
            "mlp_bias": "blk.0.ffn_gate.bias" in self._shapes,
            "tie_word_embeddings": "output.weight" not in self._shapes,
            "bos_token_id": self._token("bos"),
            "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
            "pad_token_id": self._token("padding"),
            "dtype": "float32",
        }

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight, unpacked to float32, under its name in a Hugging Face checkpoint."""
        for name, tensor in self._weights():
            try:
                values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
            except (NotImplementedError, ValueError) as error:
                raise self._error(f"tensor {tensor.name} cannot be unpacked: {error}") from None
            yield name, self._reordered(name, values)

    def group_codes(self) -> Iterator[tuple[str, GroupCodes]]:
        """Yield the codes of every layer's matrix that the file stores in 4 bits, under the names of :meth:`tensors`."""
        for name, tensor in self._weights():
            if not name.startswith("model.layers."):
                continue
            if (codes := group_codes(torch.from_numpy(tensor.data.copy()), tensor.tensor_type)) is not None:
                parts = (self._reordered(name, part) for part in (codes.codes, codes.scales, codes.leasts))
                yield name, GroupCodes(*parts)

    def _weights(self) -> Iterator[tuple[str, Any]]:
        for tensor in self._reader.tensors:
            if tensor.name != _ROPE_FACTORS:
                yield self._name(tensor.name), tensor

    def _reordered(self, name: str, rows: Tensor) -> Tensor:
        """``rows`` of a weight, or of what belongs to its rows, in the order that is used here."""
        heads, kv_heads = self._head_counts()
        if self.architecture == "llama" and ".q_proj." in name:
            return _halves_from_pairs(rows, heads)
        if self.architecture == "llama" and ".k_proj." in name:
            return _halves_from_pairs(rows, kv_heads)
        return rows

    def _name(self, name: str) -> str:
        if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name):
            layer, part, kind = match.groups()
            if part in _IN_LAYER:
                return f"model.layers.{layer}.{_IN_LAYER[part]}.{kind}"
        elif (match := re.fullmatch(r"(\w+)\.(weight|bias)", name)) and match[1] in _WHOLE:
            return f"{_WHOLE[match[1]]}.{match[2]}"
        raise self._error(f"tensor {name} has no place in a {self.architecture} model")

    def _head_counts(self) -> tuple[int, int]:
        heads = self._count("attention.head_count")
        kv_heads = self._key("attention.head_count_kv")
        if isinstance(kv_heads, list):
            if len(set(kv_heads)) != 1:
                raise self._error(f"attention.head_count_kv is {kv_heads}, expected the same count in every layer")
            kv_heads = kv_heads[0]
        return heads, int(kv_heads or heads)

    def _head_dim(self, default: int) -> int:
        rotated = int(self._key("rope.dimension_count") or 0)
        keys = int(self._key("attention.key_length") or rotated or default)
        values = int(self._key("attention.value_length") or keys)
        if values != keys or rotated not in {0, keys}:
            raise self._error(
                f"heads have {keys} key, {values} value and {rotated or keys} rotated dimensions, expected one number"
            )
        return keys

    def _rope_scaling(self, theta: float, head_dim: int, context: int) -> dict[str, Any]:
        scaling = self._key("rope.scaling.type")
        if _ROPE_FACTORS in self._shapes:
            return self._llama3_scaling(theta, head_dim)
        if scaling in {None, "none"}:
            return {"rope_type": "default"}
        factor = self._key("rope.scaling.factor")
        original = self._key("rope.scaling.original_context_length") or context
        if scaling == "linear" and factor:
            return {"rope_type": "linear", "factor": float(factor)}
        if scaling == "yarn" and factor:
            return {
                "rope_type": "yarn",
                "factor": float(factor),
                "original_max_position_embeddings": int(original),
            }
        raise self._error(f"rope.scaling.type '{scaling}' (factor {factor}) is not supported, expected linear or yarn")

    def _llama3_scaling(self, theta: float, head_dim: int) -> dict[str, Any]:
        """Name the scaling whose effect the file stores as one divisor per rotary pair."""
        stored = next(tensor for tensor in self._reader.tensors if tensor.name == _ROPE_FACTORS)
        divisors = torch.from_numpy(stored.data.copy()).flatten().float()
        plain, _ = rotary_frequencies(RopeConfig(theta=theta), head_dim)
        factor = round(float(divisors.max()), 3)
        llama3 = RopeConfig("llama3", theta, factor, original_max_position=8192)
        expected = plain / rotary_frequencies(llama3, head_dim)[0]
        if divisors.shape != expected.shape or not torch.allclose(divisors, expected, rtol=1e-3):
            raise self._error(f"tensor {_ROPE_FACTORS} scales rotary frequencies otherwise than Llama 3.1 does")
        return {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": llama3.low_freq_factor,
            "high_freq_factor": llama3.high_freq_factor,
            "original_max_position_embeddings": llama3.original_max_position,
        }

    def _token(self, kind: str) -> int | None:
        value = self._field(f"tokenizer.ggml.{kind}_token_id")
        return None if value is None else int(value)

    def _count(self, key: str) -> int:
        value = self._key(key)
        if not isinstance(value, int) or value < 1:
            raise self._error(f"{self.architecture}.{key} is {value!r}, expected a whole number above 0")
        return value

    def _key(self, key: str) -> Any:
        return self._field(f"{self.architecture}.{key}")

    def _field(self, key: str) -> Any:
        field = self._reader.fields.get(key)
        return None if field is None else field.contents()

    def _shape(self, name: str) -> list[int]:
        if name not in self._shapes:
            raise self._error(f"tensor {name} is missing")
        return self._shapes[name]

    def _error(self, message: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self.path}: {message}")


def _halves_from_pairs(rows: Tensor, heads: int) -> Tensor:
    """Undo the row order that llama files use for queries and keys.

    ::

        one head in the file:     a0 b0 a1 b1 a2 b2 ...     (pairs that turn together lie side by side)
        one head as used here:    a0 a1 a2 ... b0 b1 b2 ... (pairs are half a head apart)
    """
    paired = rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return paired.transpose(1, 2).reshape(rows.shape)
