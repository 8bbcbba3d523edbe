"""What an engine on the kernels launches while it warms up, compiled for GPUs that need not be there."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import tiny_folder
import torch
import triton

from agentcache.engine.gpu import kernel_parts
from agentcache.model.gpu.runner import KernelOptions
from agentcache.model.hub import ModelFiles
from agentcache.model.kv_store import KVStore
from agentcache.model.loader import load_transformer
from agentcache_kernels.gpu.launch import Launch
from bench.kernels_aot import CHIPS, Chip, compile_launch, faults

KERNELS = [
    "decode",
    "prefill",
    "merge",
    "shared_prefix",
    "rotary_write",
    "rms_norm",
    "silu_mul",
    "sampling",
    "page_copy",
]
CPU = torch.device("cpu")


@pytest.mark.kernels
@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_warming_up_meets_every_kernel_and_all_that_it_launches_compiles_well(
    chip: Chip, batch_invariant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_folder.SIZES | {"model_type": "llama", "head_dim": 128, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    files = ModelFiles(tmp_path, "tiny", "test")
    model = load_transformer(files, device=CPU, dtype=torch.bfloat16, load_format="dummy")
    launched: dict[tuple[object, ...], Launch] = {}

    def note(launch: Launch) -> None:
        if 0 in launch.grid:
            return
        types = tuple(str(getattr(value, "dtype", type(value))) for value in launch.arguments.values())
        launched[(launch.kernel, *launch.constants.items(), launch.fused, *types)] = launch

    for name in KERNELS:
        monkeypatch.setattr(
            importlib.import_module(f"agentcache_kernels.gpu.{name}"), "architecture", lambda _: chip.name
        )
    monkeypatch.setattr(Launch, "run", note)

    def make_store(num_pages: int) -> KVStore:
        return KVStore(1, num_pages, 16, 2, 128, torch.bfloat16, CPU, compiled=False)

    kernel_parts(model, make_store, 40, KernelOptions(2, 1024, batch_invariant), 40)
    names = {launch.kernel.fn.__name__.removesuffix("_kernel") for launch in launched.values()}
    # In the batch-invariant mode single rows take the way of prompts.
    apart = {"decode_attention", "shared_prefix", "merge"}
    always = {"prefill_attention", "rotary_write", "rms_norm", "silu_mul", "sampling", "page_copy"}
    assert names == (always if batch_invariant else always | apart)
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path / "cache")
        found = [fault for launch in launched.values() for fault in faults(launch, chip, compile_launch(launch, chip))]
    assert found == []
