"""From settings to a running engine.  The only module outside ``agentcache.model`` that touches torch."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from agentcache.cache.disk import DiskTier
from agentcache.cache.hashing import namespace_root
from agentcache.cache.lower import LowerTiers
from agentcache.cache.manager import CacheManager
from agentcache.cache.public import PublicPrefixes
from agentcache.cache.tiers import HostTier, PageIO, Tier
from agentcache.chat.detokenizer import TextStream
from agentcache.chat.public_prefix import read_public_prefixes
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.engine.cores import compute_threads
from agentcache.engine.loop import AsyncEngine, EngineInfo
from agentcache.engine.outside import Outside
from agentcache.engine.own_thread import on_own_thread
from agentcache.errors import SettingsError
from agentcache.faults import Clock, Faults
from agentcache.model.config import ModelConfig
from agentcache.model.hub import ModelFiles, resolve_model
from agentcache.model.kv_store import KVStore
from agentcache.model.loader import load_transformer
from agentcache.model.quantized_load import WeightFormat
from agentcache.model.runner import ModelRunner
from agentcache.model.transformer import Transformer
from agentcache.scheduler.plan import Runner
from agentcache.scheduler.policy import POLICIES
from agentcache.scheduler.preemption import Costs
from agentcache.scheduler.scheduler import Limits, Scheduler
from agentcache.settings import Settings
from agentcache.store.base import PageStore
from agentcache.store.codec import StoreKeys
from agentcache.store.tier import StoreLimits, StoreTier

Progress = Callable[[str], None]

_ARITHMETIC = 2
"""Raise it whenever a prompt's keys and values get other bits than before: pages that an older version left on a disk would be
read, and warm would no longer equal cold."""


def build_engine(settings: Settings, progress: Progress | None = None, *, kernels: bool | None = None) -> AsyncEngine:
    """Load the model, size the pool and wire everything up; the engine is not started yet.

    It is done on a thread that ends with it.  OpenMP keeps a team for each thread that computed, and once all teams together
    have more threads than the machine has cores, none of them waits awake, not even between two products of one step: a step of
    a few rows takes up to half as long again.  So only the engine's own thread may have one.

    Args:
        kernels: run the model on the Triton kernels.  By default a GPU does and a CPU does not; on a CPU they need Triton's
            interpreter (``TRITON_INTERPRET=1``), and serve for checks only.

    Raises:
        UnsupportedModelError: the model cannot be loaded or cached correctly.
        SettingsError: the settings do not fit the model or the machine.
    """
    outside = Outside.open(settings)
    try:
        return on_own_thread(lambda: _build(settings, progress, kernels, outside))
    except BaseException:
        outside.close()
        raise


def _build(settings: Settings, progress: Progress | None, kernels: bool | None, outside: Outside) -> AsyncEngine:
    device = _device(settings)
    dtype = _dtype(settings, device)
    if device.type == "cpu":
        torch.set_num_threads(settings.threads or compute_threads())
    files = resolve_model(settings.model, settings.home, progress=progress)
    transformer = load_transformer(
        files,
        device=device,
        dtype=dtype,
        load_format=settings.load_format,
        weights=WeightFormat(settings.weights, settings.weights_policy),
        progress=progress,
    )
    config = transformer.config
    max_model_len = _max_model_len(settings, config)
    on_kernels = device.type == "cuda" if kernels is None else kernels
    store = _Store(settings.page_size, dtype, device, on_kernels)
    model = (
        _on_triton(settings, transformer, store)
        if on_kernels
        else _without_triton(settings, transformer, store, progress)
    )
    kv, num_pages = model.kv, model.kv.num_pages
    tokenizer = Tokenizer.from_folder(files.folder)
    renderer = ChatRenderer(tokenizer, allow_special_tokens=settings.allow_special_tokens)
    # Keys and values depend on the weights, the type of numbers and the order of sums: pages never cross those.
    kernels_used = "triton" if on_kernels else "compiled" if kv.compiled else "torch"
    numbers = f"{_numbers(settings, dtype)}, {kernels_used} {_ARITHMETIC}"
    root_base = (files.revision, settings.load_format, numbers, "no adapter")
    public = _public_prefixes(settings, renderer, root_base, progress)
    faults = Faults()
    fingerprint = _fingerprint(settings, files, kv, numbers)
    near = _near_tiers(settings, fingerprint, faults)
    far = _far_tier(settings, fingerprint, config, store, outside.store)
    manager = CacheManager(
        num_pages,
        settings.page_size,
        enabled=settings.prefix_cache,
        quota=settings.namespace_pages,
        public_root=public.root,
        lower=LowerTiers(near, model.pages, faults, model.when_read, far) if near or far is not None else None,
        faults=faults,
    )
    limits = Limits(
        settings.prefill_chunk,
        settings.max_running,
        settings.max_waiting,
        max_overtakes=settings.max_overtakes,
        look_ahead=settings.look_ahead,
    )
    bounds = Bounds(
        max_model_len=max_model_len,
        capacity=min(max_model_len, num_pages * settings.page_size),
        vocab_size=config.vocab_size,
        max_running=settings.max_running,
    )
    core = EngineCore(
        scheduler=Scheduler(manager, limits, POLICIES[settings.schedule], _costs(settings)),
        runner=model.runner,
        make_text=lambda stop, shown: TextStream(tokenizer, stop, shown=shown),
        eos_token_ids=tokenizer.eos_token_ids,
        bounds=bounds,
        clock=Clock(),
        faults=faults,
        seeds=random.Random(),
    )
    engine = AsyncEngine(
        core,
        info=_info(files, settings, bounds, kv),
        settings=settings,
        tokenizer=tokenizer,
        renderer=renderer,
        root_base=root_base,
        public=public,
    )
    _meet(engine, manager, outside)
    return engine


def _meet(engine: AsyncEngine, manager: CacheManager, outside: Outside) -> None:
    """Have the engine know what it works with outside its process."""
    engine.page_store = outside.store
    if isinstance(manager.far, StoreTier):
        engine.neighbours.append(manager.far)
    if outside.events is not None:
        outside.events.follow(manager, engine.look_soon)
        engine.neighbours.append(outside.events)


class _Store(NamedTuple):
    """What all stores of one engine have in common."""

    page_size: int
    dtype: torch.dtype
    device: torch.device
    on_kernels: bool

    def make(self, config: ModelConfig, num_pages: int) -> KVStore:
        return KVStore(
            config.num_layers,
            num_pages,
            self.page_size,
            config.num_kv_heads,
            config.head_dim,
            self.dtype,
            self.device,
            compiled=False if self.on_kernels else None,
        )


class _Model(NamedTuple):
    """A loaded model over a store."""

    kv: KVStore
    runner: Runner
    pages: PageIO
    when_read: Callable[[], Callable[[], None]] | None


def _without_triton(settings: Settings, transformer: Transformer, store: _Store, progress: Progress | None) -> _Model:
    num_pages = _num_pages(settings, transformer, store)
    kv = store.make(transformer.config, num_pages)
    runner = ModelRunner(transformer, kv, store.device)
    if kv.compiled:
        from agentcache_kernels.cpu import compiling  # numba, which other devices do without

        if progress is not None and not compiling.compiled_before():
            progress("Compiling kernels for this processor, once (about half a minute)")
        runner.warm_up()
        compiling.note_compiled()
    else:
        runner.warm_up()
    return _Model(kv, runner, kv, None)


def _on_triton(settings: Settings, transformer: Transformer, store: _Store) -> _Model:
    from agentcache.engine.gpu import kernel_options, kernel_parts, measured_pages  # triton, which others do without

    def make(num_pages: int) -> KVStore:
        return store.make(transformer.config, num_pages)

    options = kernel_options(settings, _max_model_len(settings, transformer.config))
    if store.device.type == "cuda" and settings.num_pages is None and settings.kv_memory is None:
        page = _page_bytes(transformer.config, store)
        num_pages = measured_pages(transformer, make, options, settings.prefill_chunk, page)
    else:
        num_pages = _num_pages(settings, transformer, store)
    parts = kernel_parts(transformer, make, num_pages, options, settings.prefill_chunk)
    return _Model(parts.kv, parts.runner, parts.pages, parts.pages.when_read)


def _public_prefixes(
    settings: Settings, renderer: ChatRenderer, root_base: tuple[str, ...], progress: Progress | None
) -> PublicPrefixes:
    size = settings.page_size
    prefixes = read_public_prefixes(settings.public_prefix, renderer, size) if settings.public_prefix else []
    if prefixes and progress is not None:
        shared = ", ".join(f"{len(prefix) // size * size:,}" for prefix in prefixes)
        progress(f"every key shares the pages of {settings.public_prefix} ({shared} tokens)")
    return PublicPrefixes(namespace_root(*root_base, "public"), size, prefixes)


def _costs(settings: Settings) -> Costs:
    """Of preempting, until they are measured: copying a page out and in is taken to cost less than a token."""
    return Costs(page=1.0 if settings.preempt == "swap" else None)


def _fingerprint(settings: Settings, files: ModelFiles, kv: KVStore, numbers: str) -> str:
    """Of everything that a page's bytes depend on beside its key."""
    shape = (len(kv.k), *kv.k[0].shape[:1], *kv.k[0].shape[2:])
    return f"{files.revision} {settings.load_format} {numbers} {shape}"


def _near_tiers(settings: Settings, fingerprint: str, faults: Faults) -> list[Tier]:
    """Host memory first, then the disk, each if the settings ask for it."""
    tiers: list[Tier] = []
    if settings.host_pages:
        tiers.append(HostTier(settings.host_pages))
    if settings.disk_dir is not None:
        tiers.append(DiskTier(settings.disk_dir, settings.disk_size, fingerprint, faults))
    return tiers


def _far_tier(
    settings: Settings, fingerprint: str, config: ModelConfig, store: _Store, shared: PageStore | None
) -> StoreTier | None:
    """The store that servers share, if the settings ask for one."""
    if shared is None:
        return None
    keys = StoreKeys(fingerprint, str(store.dtype).removeprefix("torch."), store.page_size)
    limits = StoreLimits(_page_bytes(config, store), store.page_size, settings.store_timeout_s)
    return StoreTier(shared, keys, limits.in_memory_of(_memory()))


def _info(files: ModelFiles, settings: Settings, bounds: Bounds, kv: KVStore) -> EngineInfo:
    return EngineInfo(
        model_name=files.name,
        max_model_len=bounds.max_model_len,
        page_size=settings.page_size,
        num_pages=kv.num_pages,
        vocab_size=bounds.vocab_size,
        max_running=bounds.max_running,
        capacity=bounds.capacity,
        created=int(time.time()),
        device=f"{kv.k[0].device}, {_numbers(settings, kv.k[0].dtype).removeprefix('torch.')}",
    )


def _device(settings: Settings) -> torch.device:
    cuda = torch.cuda.is_available()
    if settings.device == "cuda" and not cuda:
        raise SettingsError("--device cuda: this machine's torch sees no CUDA device; use --device cpu")
    device = torch.device("cuda" if cuda and settings.device != "cpu" else "cpu")
    if device.type == "cuda" and settings.weights != "native":
        raise SettingsError(
            f"--weights {settings.weights}: quantised weights are served on CPUs only; add --device cpu"
        )
    return device


def _numbers(settings: Settings, dtype: torch.dtype) -> str:
    """In what keys and values are computed."""
    if settings.weights == "native":
        return f"{dtype}, batch-invariant" if settings.batch_invariant else str(dtype)
    return f"{dtype}, {settings.weights} weights, {settings.weights_policy}"


def _dtype(settings: Settings, device: torch.device) -> torch.dtype:
    if settings.dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[settings.dtype]
    if device.type == "cpu" and dtype is torch.float16:
        raise SettingsError("--dtype float16 needs a GPU, and the device is cpu: use float32 or bfloat16")
    return dtype


def _max_model_len(settings: Settings, config: ModelConfig) -> int:
    longest = config.max_position_embeddings
    if settings.max_model_len is not None and settings.max_model_len > longest:
        raise SettingsError(f"--max-model-len {settings.max_model_len}: the model knows {longest} positions at most")
    return settings.max_model_len or longest


def _page_bytes(config: ModelConfig, store: _Store) -> int:
    return KVStore.bytes_per_page(config.num_layers, store.page_size, config.num_kv_heads, config.head_dim, store.dtype)


def _memory() -> int:
    """Bytes that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _num_pages(settings: Settings, transformer: Transformer, store: _Store) -> int:
    """Pages as asked, or as many as fit the memory as asked, or a share of what the machine has."""
    config = transformer.config
    page = _page_bytes(config, store)
    if settings.num_pages is not None:
        return settings.num_pages
    if settings.kv_memory is not None:
        pages = settings.kv_memory // page
        if pages < 1:
            raise SettingsError(f"--kv-memory {settings.kv_memory} is less than one page of this model ({page} bytes)")
        return pages
    memory = _memory()
    # Memory is touched only as pages are used, so this is a bound, not a cost.
    wanted = max(min(memory // 4, 4 * 2**30), -(-_max_model_len(settings, config) // store.page_size) * page)
    return max(1, min(wanted, memory // 2) // page)
