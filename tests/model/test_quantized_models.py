"""Whole models with quantised weights: parity with what the codes stand for, and warm equals cold to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_models
import torch
from gguf import GGMLQuantizationType as Kind
from tiny_gguf import write_gguf
from tiny_models import PagedRun
from torch import Tensor

from agentcache.errors import UnsupportedModelError
from agentcache.model.convert import convert_gguf
from agentcache.model.hub import ModelFiles
from agentcache.model.layers import Linear
from agentcache.model.loader import load_transformer
from agentcache.model.quantized import Product, QuantizedLinear
from agentcache.model.quantized_load import WeightFormat
from agentcache.model.transformer import Transformer

_VARIANTS = ["llama", "qwen2"]
_PROMPT = tiny_models.random_prompt(90, seed=1)


def _load(
    files: ModelFiles, kind: str, policy: str = "exact", load_format: str = "auto"
) -> tuple[Transformer, list[str]]:
    said: list[str] = []
    model = load_transformer(
        files,
        device=tiny_models.CPU,
        dtype=torch.float32,
        load_format=load_format,
        weights=WeightFormat(kind, policy),
        progress=said.append,
    )
    return model, said


@pytest.fixture(scope="module", params=_VARIANTS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    model = tiny_models.reference_model(request.param)
    # Initial weights of 0.3 make a random model chaotic; here small errors are to stay small.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "embed" not in name and "lm_head" not in name:
                parameter.mul_(0.3)
    return tiny_models.save(model, tmp_path_factory.mktemp(request.param))


def _unpacked(files: ModelFiles, quantized: Transformer) -> Transformer:
    """The native model with the weights that ``quantized`` stands for."""
    native = tiny_models.load(files)
    for path, layer in quantized.named_modules():
        if isinstance(layer, QuantizedLinear):
            weight = torch.cat([_stood_for(part) for part in layer.parts])
            native.get_submodule(path).weight.data.copy_(weight)
    return native


def _stood_for(product: Product) -> Tensor:
    """By multiplying one input at a time, which needs nothing kept beside the product."""
    return product(torch.eye(product.packed.inputs)).T


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_log_probabilities_are_those_of_the_unpacked_weights(files: ModelFiles, kind: str) -> None:
    model, said = _load(files, kind)
    assert not any(isinstance(layer, Linear) for layer in model.modules())
    got = PagedRun(model).logprobs(_PROMPT, chunk=90)
    expected = PagedRun(_unpacked(files, model)).logprobs(_PROMPT, chunk=90)
    float32 = PagedRun(tiny_models.load(files)).logprobs(_PROMPT, chunk=90)
    rounding, quantization = ((got - other).abs().mean() for other in (expected, float32))
    assert rounding < 0.02  # of embedding and output layer
    if kind == "int4":
        assert rounding < quantization / 2  # or the comparison would say nothing about the codes
    assert len(said) == 1 and f"matrices {kind}" in said[0] and "policy exact" in said[0]


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_warm_equals_cold_to_the_last_bit(files: ModelFiles, kind: str) -> None:
    model, _ = _load(files, kind)
    output = tiny_models.random_prompt(6, seed=2)
    whole = PagedRun(model).step({0: _PROMPT + output})
    before = torch.get_num_threads()
    try:
        for threads, chunk in ((1, 13), (2, 37)):
            torch.set_num_threads(threads)
            run = PagedRun(model, seed=chunk)
            run.step({1: output})
            cuts = range(0, len(_PROMPT), chunk)
            rows = [run.step({0: _PROMPT[cut : min(cut + chunk, len(_PROMPT))]}) for cut in cuts]
            rows += [run.step({0: [token], 1: [7]})[:1] for token in output]
            assert torch.equal(torch.cat(rows), whole), f"{threads} threads, {chunk} tokens at a time"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_fast_agrees_with_exact_but_for_rounding(files: ModelFiles, kind: str) -> None:
    exact, fast = _load(files, kind)[0], _load(files, kind, "fast")
    assert "policy fast" in fast[1][0]
    one, other = (PagedRun(model).logprobs(_PROMPT, chunk=90) for model in (exact, fast[0]))
    assert 0 < (one - other).abs().mean() < 0.02
    few = (PagedRun(model).logprobs(_PROMPT[:32], chunk=32) for model in (exact, fast[0]))
    assert torch.equal(*few)


def test_dummy_weights_are_quantised_too(files: ModelFiles) -> None:
    model, _ = _load(files, "int8", load_format="dummy")
    assert PagedRun(model).logprobs(_PROMPT, chunk=16).isfinite().all()


def _converted(path: Path, kinds: dict[str, Kind]) -> ModelFiles:
    source = write_gguf(path / "small.gguf", tiny_models.reference_model("llama-tied-mha"), kinds=kinds)
    convert_gguf(source, path / "folder", lambda sentence: None)
    return ModelFiles(path / "folder", "small", "test")


def _kinds_in(model: Transformer) -> set[tuple[str, ...]]:
    return {tuple(part.kind for part in layer.parts) for layer in model.modules() if isinstance(layer, QuantizedLinear)}


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1])
def test_the_codes_of_a_gguf_file_are_used_as_they_are(kind: Kind, tmp_path: Path) -> None:
    files = _converted(tmp_path, {"blk.": kind})
    model, said = _load(files, "int4")
    assert "21 matrices int4 with the codes of the GGUF file" in said[0]
    assert _kinds_in(model) == {("int4",)}
    native = tiny_models.load(files)
    for path, layer in model.named_modules():
        if isinstance(layer, QuantizedLinear):
            (part,) = layer.parts
            assert torch.equal(_stood_for(part), native.get_submodule(path).weight)


def test_finer_matrices_of_a_mixed_gguf_file_become_int8(tmp_path: Path) -> None:
    files = _converted(tmp_path, {"attn_v": Kind.Q8_0, "ffn_down": Kind.F16, "blk.": Kind.Q4_1})
    model, said = _load(files, "int4")
    assert _kinds_in(model) == {("int4", "int8"), ("int4",), ("int8",)}
    assert "15 matrices int4 with the codes of the GGUF file" in said[0] and "6 matrices int8" in said[0]
    _, said = _load(files, "int8")
    assert "21 matrices int8" in said[0]


def test_a_gguf_file_without_4_bit_matrices_is_quantised_here(tmp_path: Path) -> None:
    _, said = _load(_converted(tmp_path, {}), "int4")
    assert "21 matrices int4, one scale for 32 inputs" in said[0]


def test_sizes_that_do_not_fit_int4_are_int8_and_torchs_operators_are_asked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"vocab_size": 64, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True}
    config = {"model_type": "llama", "max_position_embeddings": 64, **sizes, **heads}
    (tmp_path / "config.json").write_text(json.dumps(config))
    files = ModelFiles(tmp_path, "odd", "test")
    model, said = _load(files, "int4", load_format="dummy")
    assert "7 matrices int8" in said[0]
    assert PagedRun(model).logprobs([1, 2, 3], chunk=2).isfinite().all()
    monkeypatch.setattr("agentcache.model.quantized.compiles", lambda *_: False)  # a machine without compiled kernels
    with pytest.raises(
        UnsupportedModelError, match=r"down_proj\.weight has 72 inputs, .* multiples of 16: use --weights"
    ):
        _load(files, "int8", load_format="dummy")
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 80}))
    assert "7 matrices int8" in _load(files, "int4", load_format="dummy")[1][0]
