"""Runners on the kernels and on the processor's code, over stores that begin as NaN, and what they are asked to run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import tiny_models
import torch

from agentcache.cache.tokens import PagedTokens
from agentcache.model.gpu.graphs import Recorder, recorder_of
from agentcache.model.gpu.pages import DevicePages
from agentcache.model.gpu.runner import KernelOptions, KernelRunner
from agentcache.model.gpu.side import Side, side_of
from agentcache.model.kv_store import KVStore
from agentcache.model.loader import load_transformer
from agentcache.model.runner import ModelRunner
from agentcache.model.transformer import Transformer
from agentcache.request import Request, SamplingParams, Sequence
from agentcache.scheduler.plan import Chunk, StepPlan, StepResult

PAGE_SIZE = 8
PAGES = 160
GREEDY = SamplingParams(temperature=0.0, logprobs=4, max_tokens=100)


def model_of(variant: str, folder: Path, device: torch.device) -> Transformer:
    files = tiny_models.save(tiny_models.reference_model(variant), folder)
    return load_transformer(files, device=device, dtype=torch.float32)


def store(model: Transformer) -> KVStore:
    config, device = model.config, model.embedding.weight.device
    # The layout of GPUs for both runners; the compiled kernels of processors would also repack the weights that they share.
    kv = KVStore(
        config.num_layers, PAGES, PAGE_SIZE, config.num_kv_heads, config.head_dim, torch.float32, device, compiled=False
    )
    for pages in (*kv.k, *kv.v):
        pages.fill_(math.nan)
    return kv


def kernel_runner(
    model: Transformer, side: Side | None = None, recorder: Recorder | None = None, **options: int
) -> KernelRunner:
    kv = store(model)
    device = kv.k[0].device
    chosen = KernelOptions(
        **({"max_running": 6, "max_context": 300, "least_spared": 0, "split": 64, "row_grid": 8} | options)
    )
    return KernelRunner(model, kv, DevicePages(kv, side or side_of(device)), chosen, recorder or recorder_of(device))


def plain_runner(model: Transformer) -> ModelRunner:
    kv = store(model)
    return ModelRunner(model, kv, kv.k[0].device)


@dataclass
class Story:
    """Sequences over pages that were handed out in any order, run one step after another."""

    run: Callable[[StepPlan], StepResult]
    tables: dict[str, list[int]] = field(default_factory=dict)
    sequences: dict[str, Sequence] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)

    def begin(
        self, name: str, ids: list[int], pages: list[int], params: SamplingParams = GREEDY, seed: int = 7
    ) -> None:
        request = Request(name, ids, params, b"", lambda _: None)
        self.sequences[name] = Sequence(request, 0, PagedTokens(ids, PAGE_SIZE, b""), len(ids), 100, seed=seed)
        self.tables[name] = pages
        self.computed[name] = 0

    def read(self, names: str) -> None:
        """Begin a sequence for each letter and run its prompt of nine tokens; letter ``n`` has pages ``10 n + 1, 10 n + 2``."""
        for number, name in enumerate(names):
            self.begin(name, tiny_models.random_prompt(9, seed=number), [10 * number + 1, 10 * number + 2])
            self.step(**{name: 9})

    def step(self, **rows: int) -> list[tuple[int, list[int]]]:
        """Run so many rows of each sequence and add what was drawn; tokens with the best alternatives."""
        chunks = []
        for name, count in rows.items():
            sequence, start = self.sequences[name], self.computed[name]
            while len(self.tables[name]) * PAGE_SIZE < start + count:
                self.tables[name].append(max(page for table in self.tables.values() for page in table) + 1)
            last = start + count == len(sequence.tokens)
            chunks.append(Chunk(sequence, start, count, start, self.tables[name], (sequence,) if last else ()))
        result = self.run(StepPlan(chunks))
        seen = []
        for chunk, drawn in zip(chunks, result.samples):
            self.computed[chunk.sequence.request.request_id] += chunk.count
            for entry in drawn:
                chunk.sequence.tokens.append(entry.token)
                seen.append((entry.token, [token for token, _ in entry.top]))
        return seen


def conversation(story: Story) -> list[tuple[int, list[int]]]:
    """Prompts in pieces beside decodes, a shared prefix longer than a split, growing batches, and one that leaves."""
    shared, seen = tiny_models.random_prompt(64, seed=1), []
    story.begin("a", shared + tiny_models.random_prompt(9, seed=2), list(range(3, 13)))
    seen += story.step(a=40)
    seen += story.step(a=33)
    common = story.tables["a"][:8]
    for number, name in enumerate("bcd"):
        own = [50 + 10 * number, 49 + 10 * number]
        story.begin(name, shared + tiny_models.random_prompt(3 + number, seed=5 + number), common + own)
        story.computed[name] = 64
    seen += story.step(b=3, a=1, c=4)
    seen += story.step(d=5, c=1)
    for _ in range(2):
        seen += story.step(a=1, b=1, c=1, d=1)
    seen += story.step(a=1)
    story.begin("e", tiny_models.random_prompt(5, seed=9), [100])
    seen += story.step(e=5)
    for _ in range(2):
        seen += story.step(e=1, d=1)
    return seen
