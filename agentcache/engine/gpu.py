"""Wiring of the model on a GPU: its store, what runs steps on it, and what moves its pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from agentcache.model.gpu.graphs import Rerun, recorder_of
from agentcache.model.gpu.memory import bytes_of, memory_of, pages_that_fit
from agentcache.model.gpu.pages import DevicePages
from agentcache.model.gpu.runner import KernelOptions, KernelRunner
from agentcache.model.gpu.side import AtOnce, side_of
from agentcache.model.kv_store import KVStore
from agentcache.model.transformer import Transformer
from agentcache.settings import Settings

MakeStore = Callable[[int], KVStore]
"""Makes a store of so many pages."""


class KernelParts(NamedTuple):
    """What an engine on the kernels stands on."""

    kv: KVStore
    runner: KernelRunner
    pages: DevicePages


def kernel_options(settings: Settings, max_model_len: int) -> KernelOptions:
    return KernelOptions(settings.max_running, max_model_len, settings.batch_invariant)


def kernel_parts(
    transformer: Transformer, make_store: MakeStore, num_pages: int, options: KernelOptions, prompt_rows: int
) -> KernelParts:
    """Build and warm up: kernels are compiled, and decode steps of short contexts captured.

    Args:
        prompt_rows: rows of the longest piece of a prompt.
    """
    kv = make_store(num_pages)
    device = kv.k[0].device
    if options.batch_invariant:
        # A product may otherwise be cut along its sum and put together in the half type.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    pages = DevicePages(kv, side_of(device))
    runner = KernelRunner(transformer, kv, pages, options, recorder_of(device))
    runner.warm_up(prompt_rows)
    return KernelParts(kv, runner, pages)


def measured_pages(
    transformer: Transformer, make_store: MakeStore, options: KernelOptions, prompt_rows: int, page_bytes: int
) -> int:
    """How many pages fit beside the model and the largest step, which is run to see what it takes.

    Raises:
        SettingsError: not one does.
    """
    step = _step_bytes(transformer, make_store, options, prompt_rows)
    device = transformer.embedding.weight.device
    return pages_that_fit(memory_of(device), step, page_bytes)


def _step_bytes(transformer: Transformer, make_store: MakeStore, options: KernelOptions, prompt_rows: int) -> int:
    """What the largest step takes beside a store, which is gone again afterwards."""
    page_size = make_store(1).page_size
    kv = make_store(-(-prompt_rows // page_size))
    runner = KernelRunner(transformer, kv, DevicePages(kv, AtOnce()), options, Rerun())
    return bytes_of(lambda: runner.run_largest(prompt_rows), kv.k[0].device) + runner.standing_bytes
