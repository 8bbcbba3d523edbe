"""What a step costs besides the model's arithmetic, in processor time of the thread that bears it.

    python bench/step_overhead.py loop       # the engine's thread between two forward passes, and the event loop's share
    python bench/step_overhead.py runner     # the rows of a step as tensors, without model and sampler
    python bench/step_overhead.py sampler    # from logits to tokens

``loop`` runs the real engine with the default model's tokenizer on a runner that draws the words of a text and rests for
``--step-ms`` in place of a forward pass.  Medians over steps in which every running sequence decodes one token; processor
time of one thread is what neighbours on a machine disturb least.  To compare with another version of the code, run this
file with that version's folders as ``PYTHONPATH``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.append(str(Path(__file__).resolve().parents[1]))
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.detokenizer import TextStream
from agentcache.chat.tokenizer import Tokenizer
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.engine.loop import AsyncEngine
from agentcache.model.hub import resolve_model
from agentcache.model.kv_store import KVStore
from agentcache.model.runner import ModelRunner
from agentcache.model.sampler import Scratch, sample
from agentcache.request import Request, SamplingParams, Sequence, TokenLogprob
from agentcache.scheduler.plan import Chunk, StepPlan, StepResult
from agentcache.scheduler.scheduler import Limits, Scheduler
from agentcache.settings import default_home

CPU = torch.device("cpu")
PAGE = 16
PROMPT = 1000
VOCAB = 49_152


# -- the engine's thread --------------------------------------------------------------------------------------------


@dataclass
class RestingRunner:
    """Implements ``scheduler.plan.Runner``; notes the thread time between two steps of nothing but decoding."""

    words: list[int]
    """Tokens of a text, which the sequences say."""
    running: int
    rest_s: float
    between: list[float] = field(default_factory=list)
    _left: float | None = None

    def run(self, plan: StepPlan) -> StepResult:
        now = time.thread_time()
        decodes = len(plan.chunks) == self.running == plan.num_tokens
        if decodes and self._left is not None:
            self.between.append(now - self._left)
        samples = [
            [TokenLogprob(self.words[(s.seed + chunk.end) % len(self.words)], -1.0) for s in chunk.samples]
            for chunk in plan.chunks
        ]
        result = StepResult(samples, [None for _ in plan.chunks])
        time.sleep(self.rest_s)
        self._left = time.thread_time() if decodes else None
        return result


@dataclass(frozen=True)
class Load:
    """``running`` sequences decode while ``waiting`` requests wait."""

    running: int
    waiting: int
    steps: int
    stop: bool = False


def make_engine(load: Load, tokenizer: Tokenizer, runner: RestingRunner) -> AsyncEngine:
    pages = (load.running + 2) * (-(-(PROMPT + load.steps) // PAGE) + 2)
    core = EngineCore(
        Scheduler(CacheManager(pages, PAGE), Limits(1 << 20, load.running, 10_000)),
        runner,
        lambda stop, shown: TextStream(tokenizer, stop, shown=shown),
        eos_token_ids=frozenset([2]),
        bounds=Bounds(1 << 20, 1 << 20, VOCAB, load.running),
        seeds=random.Random(0),
    )
    return AsyncEngine(
        core,
        info=cast(Any, SimpleNamespace()),
        settings=cast(Any, SimpleNamespace(max_waiting=10_000)),
        tokenizer=tokenizer,
        renderer=cast(Any, None),
        root_base=("bench",),
    )


async def decode(load: Load, tokenizer: Tokenizer, rest_s: float) -> tuple[float, float]:
    """Milliseconds a step of the engine's thread, and of the event loop that reads all streams."""
    words = tokenizer.encode(Path(__file__).read_text("utf-8"))
    runner = RestingRunner(words, load.running, rest_s)
    engine = make_engine(load, tokenizer, runner)
    rng = random.Random(1)
    stop = ("</never said>", "\n\nObservation:") if load.stop else ()
    params = SamplingParams(temperature=0, max_tokens=load.steps, stop=stop)

    async def read(number: int) -> None:
        prompt = rng.choices(range(100, 40_000), k=PROMPT)
        async for _ in engine.submit(prompt, params, root=b"bench", request_id=str(number)):
            pass

    readers = [asyncio.ensure_future(read(number)) for number in range(load.running + load.waiting)]
    await asyncio.sleep(0)
    engine.start()
    while not runner.between:
        await asyncio.sleep(0.01)
        for reader in readers:
            if reader.done():
                reader.result()
                raise RuntimeError("a reply ended before all sequences decoded in one step")
    began, steps = time.thread_time(), len(runner.between)
    await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
    reading = (time.thread_time() - began) / (len(runner.between) - steps)
    await engine.stop()
    await asyncio.gather(*readers)
    return 1e3 * statistics.median(runner.between), 1e3 * reading


def time_loop(args: argparse.Namespace) -> Table:
    files = resolve_model(args.model, default_home(), progress=print)
    tokenizer = Tokenizer.from_folder(files.folder)
    table = Table("running", "waiting", "stop strings", "engine's thread, ms a step", "event loop, ms a step", box=None)
    for load in (
        Load(6, 0, 300),
        Load(6, 300, 300),
        Load(256, 0, 200),
        Load(256, 300, 200),
        Load(256, 0, 200, stop=True),
    ):
        engine, reading = asyncio.run(decode(load, tokenizer, args.step_ms / 1e3))
        stop = "yes" if load.stop else "no"
        table.add_row(str(load.running), str(load.waiting), stop, f"{engine:.3f}", f"{reading:.3f}")
    return table


# -- tensors of a step ----------------------------------------------------------------------------------------------


@dataclass
class NoModel:
    """A model that computes nothing: what is left of a runner's step is the making of its inputs."""

    logit_rows: Tensor
    config: Any = field(default_factory=lambda: SimpleNamespace(num_layers=1))

    def __call__(self, ids: Tensor, *_rest: object) -> Tensor:
        return torch.empty(len(ids), 1)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.logit_rows[: len(hidden)]


def make_sequence(number: int, length: int, prompt_len: int, params: SamplingParams) -> Sequence:
    ids = random.Random(number).choices(range(VOCAB), k=length)
    request = Request(str(number), ids[:prompt_len], params, b"", lambda _: None)
    return Sequence(request, 0, PagedTokens(ids, PAGE, b""), prompt_len, 1000, seed=number)


def decode_rows(count: int, context: int) -> list[Chunk]:
    table = -(-context // PAGE)
    params = SamplingParams(temperature=0)
    return [
        Chunk(make_sequence(i, context, context - 1, params), context - 1, 1, context - 1, [*range(i, i + table)])
        for i in range(count)
    ]


def prompt_rows(count: int, rows: int) -> list[Chunk]:
    table = -(-rows // PAGE)
    params = SamplingParams(temperature=0)
    return [Chunk(make_sequence(i, rows, rows, params), 0, rows, 0, [*range(i, i + table)]) for i in range(count)]


def time_runner(args: argparse.Namespace) -> Table:
    kv = KVStore(1, 2000, PAGE, 1, 1, torch.float32, CPU)
    runner = ModelRunner(cast(Any, NoModel(torch.empty(0, 1))), kv, CPU)
    table = Table("step", "inputs, ms", box=None)
    cases = {
        "6 decodes at 2,000 tokens": decode_rows(6, 2000),
        "256 decodes at 2,000 tokens": decode_rows(256, 2000),
        "a chunk of 512 tokens": prompt_rows(1, 512),
        "6 decodes and a chunk of 512 tokens": decode_rows(6, 2000) + prompt_rows(1, 512),
        "a chunk of 8,192 tokens": prompt_rows(1, 8192),
    }
    for name, chunks in cases.items():
        table.add_row(name, f"{milliseconds(partial(runner.run, StepPlan(chunks)), args.repeat):.3f}")
    return table


def time_sampler(args: argparse.Namespace) -> Table:
    table = Table("rows", "parameters", "ms", box=None)
    logits = torch.randn(256, VOCAB, generator=torch.Generator().manual_seed(0)) * 3
    kinds = {
        "greedy": SamplingParams(temperature=0),
        "greedy, five alternatives": SamplingParams(temperature=0, logprobs=5),
        "temperature 0.7": SamplingParams(temperature=0.7),
        "temperature, top_k, top_p": SamplingParams(temperature=0.7, top_k=50, top_p=0.9),
        "penalties and a bias": SamplingParams(
            temperature=0, repetition_penalty=1.1, presence_penalty=0.5, logit_bias=((5, 1.0),)
        ),
    }
    mixed, scratch = list(kinds.values()), Scratch()
    for rows in (6, 256):
        for name, params in (kinds | {"all of these": None}).items():
            sequences = [make_sequence(i, 2000, 1900, params or mixed[i % len(mixed)]) for i in range(rows)]
            table.add_row(
                str(rows), name, f"{milliseconds(partial(sample, logits[:rows], sequences, scratch), 15):.3f}"
            )
    return table


def milliseconds(call: Callable[[], object], repeat: int) -> float:
    """Median of the thread's processor time, after one call that does not count."""
    call()
    taken = []
    for _ in range(repeat):
        began = time.thread_time()
        call()
        taken.append(time.thread_time() - began)
    return 1e3 * statistics.median(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"loop": time_loop, "runner": time_runner, "sampler": time_sampler}
    parser.add_argument("what", choices=[*parts])
    parser.add_argument("--model", default="smollm2", help="whose tokenizer; default: %(default)s")
    parser.add_argument(
        "--step-ms", type=float, default=5, help="rest in place of a forward pass; default: %(default)s"
    )
    parser.add_argument("--repeat", type=int, default=100, help="calls of the runner; default: %(default)s")
    args = parser.parse_args()
    torch.set_num_threads(1)
    Console(width=120, highlight=False).print(parts[args.what](args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
