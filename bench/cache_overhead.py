"""(b) What the cache costs when nothing is ever shared: wall time of one engine with it on and off, turn about.

Three figures, because a cache costs in two ways, and wall time on a shared machine moves by more than either:

* the ratio of times with the cache on and off, as passed and as worked;
* the same against a cache that is off while its pages are used in turn.  Without a cache the pages that were just given back
  are written again, and stay in the processor's caches; keeping them for later means to write those that are oldest;
* the index's own share: the same requests through the same engine with a model that costs nothing, on minus off, divided
  by the wall time with the real model.
"""

from __future__ import annotations

import enum
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.pages import PagePool
from agentcache.cache.tokens import PagedTokens
from agentcache.model.hub import ModelFiles, resolve_model
from agentcache.model.kv_store import KVStore
from agentcache.model.loader import load_transformer
from agentcache.model.runner import ModelRunner
from agentcache.model.transformer import Transformer
from agentcache.scheduler.plan import Runner
from agentcache.settings import default_home
from bench.cache_counts import Line
from bench.free_engine import FreeEngine, Shape, Texts

TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
}
"""A model of 6 million random weights: small, so that whatever the cache costs shows."""


@dataclass(frozen=True)
class OverheadSpec:
    """``count`` prompts at once that share nothing, over a pool of which they take twice as much as there is."""

    model: str = "tiny"
    threads: int | None = None
    rounds: int = 7
    count: int = 32
    prompt_tokens: int = 512
    output_tokens: int = 32

    @property
    def num_pages(self) -> int:
        return self.count * -(-(self.prompt_tokens + self.output_tokens) // 16) // 2


class Variant(enum.Enum):
    ON = "cache on"
    OFF = "cache off"
    IN_TURN = "cache off, pages in turn"


class Time(NamedTuple):
    """Seconds: what passed, and what all threads of this process worked (which neighbours disturb less)."""

    wall: float
    cpu: float


class PoolInTurn(PagePool):
    """Hands out the page that has been free for longest, as a full cache does, instead of the one just given back."""

    def allocate(self) -> int:
        self._free.append(self._free.pop(0))
        return super().allocate()


def overhead(spec: OverheadSpec) -> Iterator[Line]:
    """The lines of (b).  Sets the number of torch's threads."""
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    model = _load(spec.model)
    shape = model.config
    kv = KVStore(
        shape.num_layers, spec.num_pages, 16, shape.num_kv_heads, shape.head_dim, torch.float32, torch.device("cpu")
    )
    runner = ModelRunner(model, kv, torch.device("cpu"))
    texts = Texts()
    prompts = [[token % shape.vocab_size for token in texts(spec.prompt_tokens)] for _ in range(spec.count)]
    times = _turn_about(lambda variant: _serve(spec, prompts, runner, variant), list(Variant), spec.rounds)
    free = _turn_about(lambda variant: _serve(spec, prompts, None, variant), [Variant.ON, Variant.OFF], 5 * spec.rounds)
    wall = {variant: statistics.median(taken.wall for taken in times[variant]) for variant in times}
    own = statistics.median(on.wall - off.wall for on, off in zip(free[Variant.ON], free[Variant.OFF], strict=True))
    case = f"0 % sharing, {spec.count} x {spec.prompt_tokens} + {spec.output_tokens} tokens, model {spec.model}"
    yield Line("b", case, "wall time", wall[Variant.ON], wall[Variant.OFF], "s")
    yield Line("b", case, "more wall time than off", _more(times, Variant.OFF, lambda taken: taken.wall), 0.0, "%")
    yield Line("b", case, "more processor time than off", _more(times, Variant.OFF, lambda taken: taken.cpu), 0.0, "%")
    in_turn = _more(times, Variant.IN_TURN, lambda taken: taken.cpu)
    yield Line("b", case, "more processor time than off, pages in turn", in_turn, 0.0, "%")
    yield Line("b", case, "index's own share of wall time", 100 * own / wall[Variant.OFF], 0.0, "%")


def _more(times: dict[Variant, list[Time]], than: Variant, of: Callable[[Time], float]) -> float:
    """Median over the rounds, in percent."""
    pairs = zip(times[Variant.ON], times[than], strict=True)
    return 100 * (statistics.median(of(on) / of(other) for on, other in pairs) - 1)


def _turn_about(run: Callable[[Variant], Time], variants: list[Variant], rounds: int) -> dict[Variant, list[Time]]:
    """The time of each run, after one of each that does not count; the order turns round from round to round."""
    for variant in variants:
        run(variant)
    times: dict[Variant, list[Time]] = {variant: [] for variant in variants}
    for number in range(rounds):
        for variant in variants if number % 2 else reversed(variants):
            times[variant].append(run(variant))
    return times


def _serve(spec: OverheadSpec, prompts: list[list[int]], runner: Runner | None, variant: Variant) -> Time:
    """Time for all prompts.  With the cache on, others have filled the pool, so that every new page evicts one."""
    engine = FreeEngine(Shape(spec.num_pages, enabled=variant is Variant.ON, token_budget=512, max_running=8))
    if variant is Variant.IN_TURN:
        engine.manager.pool = PoolInTurn(spec.num_pages)
    _fill(engine.manager)
    if runner is not None:
        engine.core.runner = runner
    for prompt in prompts:
        engine.send(prompt, spec.output_tokens)
    gc.collect()
    started, worked = time.perf_counter(), time.process_time()
    while engine.core.has_work:
        engine.core.step()
    taken = Time(time.perf_counter() - started, time.process_time() - worked)
    assert engine.core.metrics.counters["cached_tokens"] == 0
    return taken


def _fill(manager: CacheManager) -> None:
    """Fill the pool with pages that nobody asks for again (nothing is kept when the cache is off)."""
    size = manager.page_size
    ids = [1 << 21, *range(manager.pool.num_pages * size - 1)]
    lease = manager.acquire(PagedTokens(ids, size, b"others"))
    assert isinstance(lease, Lease)
    lease.commit(len(ids))
    lease.release()


def _load(model: str) -> Transformer:
    cpu = torch.device("cpu")
    if model != "tiny":
        files = resolve_model(model, default_home())
        return load_transformer(files, device=cpu, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY), "utf-8")
        files = ModelFiles(Path(folder), "tiny", "random weights")
        return load_transformer(files, device=cpu, dtype=torch.float32, load_format="dummy")
