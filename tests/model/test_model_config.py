"""What ``config.json`` may say, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.errors import UnsupportedModelError
from agentcache.model.config import RopeConfig, parse_config, read_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
_FULL, _SLIDING = "full_attention", "sliding_attention"


def parse(**changes: Any) -> Any:
    return parse_config(LLAMA | changes, "here")


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"model_type": "gemma2"}, "model_type 'gemma2' is not supported; served families are llama, mistral, qwen2, qwen3"),
        ({"model_type": None}, "model_type is missing"),
        ({"model_type": "mamba2"}, "model_type 'mamba2' has recurrent layers, whose recurrent state cannot be cached as pages"),
        (
            {"model_type": "qwen3", "layer_types": [_FULL, "linear_attention", _FULL]},
            "layer_types[1] is 'linear_attention', whose recurrent state cannot be cached as pages of keys and values",
        ),
        ({"model_type": "newhybrid", "mamba_d_state": 16}, "'mamba_d_state' says that there are recurrent layers"),
        ({"layer_types": ["chunked_attention"] * 3}, "chunked_attention, which is not supported"),
        ({"is_encoder_decoder": True, "model_type": "t5"}, "'t5' is an encoder-decoder"),
        ({"vision_config": {"depth": 2}}, "'vision_config' says that model_type 'llama' reads more than text"),
        ({"num_local_experts": 8, "model_type": "mixtral"}, "'num_local_experts': 8 says mixture of experts"),
        ({"quantization_config": {"quant_method": "gptq"}}, "weights packed with 'gptq' are not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported, expected silu"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "has no language-model head"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic' turns keys by an angle that depends on"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "rope type 'longrope'"),
        ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "rope type 'spiral' is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is missing, which rope type 'linear' needs"),
        ({"rope_parameters": {_FULL: {"rope_theta": 1e4}}}, "differ by layer type"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, expected 1"),
        ({"hidden_size": "64"}, "hidden_size is '64', expected a whole number above 0"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
        ({"head_dim": 15}, "head_dim is 15, expected an even number"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', expected true or false"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0, expected a number above 0"),
        ({"layer_types": [_FULL]}, "layer_types has 1 entries, expected num_hidden_layers = 3"),
        ({"layer_types": [_SLIDING] * 3}, "which model_type 'llama' does not have"),
        ({"model_type": "mistral", "sliding_window": None, "layer_types": [_SLIDING] * 3}, "disagrees with sliding_window None"),
        ({"model_type": "qwen2", "layer_types": [_SLIDING] * 3}, "but use_sliding_window is false"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        parse(**changes)
    assert str(caught.value).startswith("here: ")
    assert said in str(caught.value)


def test_old_and_new_rope_settings_mean_the_same() -> None:
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    old = parse(rope_theta=500.0, rope_scaling={"type": "llama3", **llama3})
    new = parse(rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, **llama3})
    assert old == new
    assert new.rope == RopeConfig("llama3", 500.0, 8.0, original_max_position=64)
    assert parse(rope_theta=500.0, rope_scaling=None).rope.theta == 500.0
    assert parse().rope == RopeConfig("default", 10_000.0, original_max_position=2048)


def test_yarn_lengthens_the_context_to_what_its_factor_reaches() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    assert parse(rope_scaling=yarn).max_position_embeddings == 8192
    assert parse(rope_scaling=yarn, max_position_embeddings=16384).max_position_embeddings == 16384


def test_defaults_follow_the_family() -> None:
    plain = parse(num_key_value_heads=None)
    assert (plain.num_kv_heads, plain.head_dim, plain.attention_bias, plain.qk_norm) == (4, 16, False, False)
    qwen3 = parse(model_type="qwen3")
    assert (qwen3.head_dim, qwen3.qk_norm, qwen3.attention_bias) == (128, True, False)
    qwen2 = parse(model_type="qwen2")
    assert (qwen2.attention_bias, qwen2.attention_output_bias, qwen2.mlp_bias) == (True, False, False)


@pytest.mark.parametrize(
    "changes, windows",
    [
        ({"model_type": "mistral", "sliding_window": 100}, (100, 100, 100)),
        ({"model_type": "mistral", "sliding_window": None}, (None, None, None)),
        ({"model_type": "mistral", "max_position_embeddings": 8192}, (4096, 4096, 4096)),
        ({"model_type": "mistral"}, (None, None, None)),  # the default window, 4096, is beyond the context
        ({"model_type": "qwen2", "sliding_window": 100, "max_window_layers": 1}, (None, None, None)),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 100, "max_window_layers": 1},
            (None, 100, 100),
        ),
        (
            {
                "model_type": "qwen3",
                "use_sliding_window": True,
                "sliding_window": 100,
                "layer_types": [_SLIDING, _FULL, _SLIDING],
            },
            (100, None, 100),
        ),
    ],
)
def test_each_family_says_its_window_in_its_own_way(changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert parse(**changes).windows == windows


def test_end_tokens_come_from_both_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"eos_token_id": 7, "bos_token_id": 1}))
    assert read_config(tmp_path).eos_token_ids == {7}
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    config = read_config(tmp_path)
    assert (config.eos_token_ids, config.bos_token_id) == ({7, 9}, 1)


def test_a_folder_without_a_readable_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"no config\.json in it"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UnsupportedModelError, match=r"config\.json: not valid JSON"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UnsupportedModelError, match="got list, expected a JSON object"):
        read_config(tmp_path)
