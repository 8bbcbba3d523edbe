"""Reading checkpoints: shards, spare tensors, and faults that name the tensor or the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from agentcache.errors import UnsupportedModelError
from agentcache.model.hub import ModelFiles
from agentcache.model.loader import load_transformer

_DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    return tiny_models.save(tiny_models.reference_model("llama"), tmp_path / "tiny")


def _rewrite(files: ModelFiles, change: Callable[[dict[str, Tensor]], object]) -> None:
    path = files.folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def _same_weights(first: ModelFiles, second: ModelFiles) -> bool:
    pairs = zip(tiny_models.load(first).parameters(), tiny_models.load(second).parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_shards_load_like_one_file(files: ModelFiles, tmp_path: Path) -> None:
    sharded = tiny_models.save(tiny_models.reference_model("llama"), tmp_path / "sharded", max_shard_size="100KB")
    assert len(list(sharded.folder.glob("*.safetensors"))) > 3
    assert _same_weights(files, sharded)


def test_half_precision_weights_load_into_float32(files: ModelFiles, tmp_path: Path) -> None:
    exact = {name: tensor.bfloat16() for name, tensor in load_file(files.folder / "model.safetensors").items()}
    save_file(exact, files.folder / "model.safetensors")
    loaded = tiny_models.load(files)
    assert torch.equal(loaded.embedding.weight, exact["model.embed_tokens.weight"].float())


def test_derived_tensors_and_a_second_copy_of_a_tied_head_are_passed_over(tmp_path: Path) -> None:
    files = tiny_models.save(tiny_models.reference_model("llama-tied-mha"), tmp_path / "tied")

    def add(tensors: dict[str, Tensor]) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    _rewrite(files, add)
    assert tiny_models.load(files).head is None


def test_a_missing_tensor_is_named(files: ModelFiles) -> None:
    _rewrite(files, lambda tensors: tensors.pop(_DOWN))
    with pytest.raises(UnsupportedModelError, match=f"tensor {_DOWN} is missing from the weights"):
        tiny_models.load(files)


def test_an_untied_model_without_its_head_is_refused(files: ModelFiles) -> None:
    _rewrite(files, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(UnsupportedModelError, match=r"lm_head\.weight is missing"):
        tiny_models.load(files)


def test_an_unexpected_tensor_is_named(files: ModelFiles) -> None:
    _rewrite(files, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}))
    with pytest.raises(UnsupportedModelError, match=r"layers\.0\.self_attn\.q_proj\.bias is in the weights, for which"):
        tiny_models.load(files)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(files: ModelFiles) -> None:
    _rewrite(files, lambda tensors: tensors.update({_DOWN: torch.zeros(64, 64)}))
    with pytest.raises(UnsupportedModelError, match=rf"{_DOWN} has shape \[64, 64\], expected \[64, 128\]"):
        tiny_models.load(files)


def test_packed_integers_are_refused(files: ModelFiles) -> None:
    _rewrite(files, lambda tensors: tensors.update({_DOWN: torch.zeros(64, 128, dtype=torch.int8)}))
    with pytest.raises(UnsupportedModelError, match=r"is stored as torch\.int8, expected float32, bfloat16 or float16"):
        tiny_models.load(files)


def test_a_truncated_file_is_named(files: ModelFiles) -> None:
    path = files.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors: not a readable safetensors file"):
        tiny_models.load(files)


def test_an_index_that_names_a_missing_shard_is_refused(files: ModelFiles) -> None:
    index = {"weight_map": {_DOWN: "model-00001-of-00002.safetensors"}}
    (files.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UnsupportedModelError, match=r"shard model-00001-of-00002\.safetensors is missing"):
        tiny_models.load(files)
    (files.folder / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(UnsupportedModelError, match="not a valid index of shards"):
        tiny_models.load(files)


def test_pickled_weights_are_refused_by_name(files: ModelFiles) -> None:
    (files.folder / "model.safetensors").rename(files.folder / "pytorch_model.bin")
    with pytest.raises(
        UnsupportedModelError, match=r"no \*\.safetensors in it but pytorch_model\.bin: pickled weights"
    ):
        tiny_models.load(files)


def test_dummy_weights_need_no_weight_file(files: ModelFiles) -> None:
    (files.folder / "model.safetensors").unlink()
    run = tiny_models.PagedRun(tiny_models.load(files, "dummy"))
    assert torch.isfinite(run.step({0: [1, 2, 3]})).all()


def test_an_unknown_load_format_is_refused(files: ModelFiles) -> None:
    with pytest.raises(UnsupportedModelError, match="load format is 'magic', expected auto or dummy"):
        load_transformer(files, device=tiny_models.CPU, dtype=torch.float32, load_format="magic")
