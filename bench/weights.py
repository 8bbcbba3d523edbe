"""Quantised weights against float32: time of the layers, quality, and how a server starts.

    OMP_NUM_THREADS=1 python bench/weights.py layers
    python bench/weights.py quality --threads 2
    python bench/weights.py start

``layers`` takes all matrices of one step, and the output layer by itself, in turns so that a busy machine hurts every
format alike.  With one thread it counts processor time, which neighbours disturb least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import httpx
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from agentcache.chat.tokenizer import Tokenizer
from agentcache.model.hub import ModelFiles, resolve_model
from agentcache.model.layers import Embedding, Linear
from agentcache.model.loader import load_transformer
from agentcache.model.quantized_load import WeightFormat
from agentcache.model.transformer import Transformer
from agentcache.settings import default_home
from agentcache_kernels.cpu.available import compiles
from bench.weights_quality import CPU, Text, greedy, predict, prompts, tokens_in_common
from examples.agents.local_server import LocalServer

ROWS = (1, 4, 6, 8, 16, 32, 64, 128, 512)
FORMATS = (
    WeightFormat(),
    WeightFormat("int8"),
    WeightFormat("int8", "fast"),
    WeightFormat("int4"),
    WeightFormat("int4", "fast"),
)


def load(files: ModelFiles, weights: WeightFormat, progress: Callable[[str], None] | None = None) -> Transformer:
    return load_transformer(files, device=CPU, dtype=torch.float32, weights=weights, progress=progress)


def layers_of(model: Transformer) -> Callable[[dict[int, Tensor]], None]:
    """All products of one step but the output layer, on inputs by their width."""
    products = [
        (product, width)
        for layer in model.layers
        for product, width in (
            (layer.attention.qkv, model.config.hidden_size),
            (layer.attention.output, model.config.num_heads * model.config.head_dim),
            (layer.mlp.gate_up, model.config.hidden_size),
            (layer.mlp.down, model.config.intermediate_size),
        )
    ]

    def run(inputs: dict[int, Tensor]) -> None:
        for product, width in products:
            product(inputs[width])

    return run


def milliseconds(runs: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Median time of each, taken in turns."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            began = clock()
            with torch.inference_mode():
                run()
            found[name].append(1000 * (clock() - began))
    return {name: statistics.median(times) for name, times in found.items()}


def time_layers(files: ModelFiles, repeat: int, console: Console) -> Table:
    models = {"torch's float32": load(files, FORMATS[0])} | {str(weights): load(files, weights) for weights in FORMATS}
    config = models["native"].config
    if compiles(CPU, torch.float32):
        for module in models["native"].modules():
            if isinstance(module, (Linear, Embedding)):
                module.pack()  # as the first step of a server does
    widths = {config.hidden_size, config.num_heads * config.head_dim, config.intermediate_size}
    heads = ("torch's float32", "native", "int8 exact")
    table = Table("rows", *models, *(f"output layer, {name}" for name in heads), box=None)
    generator = torch.Generator().manual_seed(0)
    for rows in ROWS:
        console.print(f"{rows} rows")
        inputs = {width: torch.randn(rows, width, generator=generator) for width in widths}
        times = milliseconds({name: partial(layers_of(model), inputs) for name, model in models.items()}, repeat)
        cells = [f"{times[name]:.1f} ({times[name] / times['native']:.2f})" for name in models]
        hidden = inputs[config.hidden_size]
        times = milliseconds({name: partial(models[name].logits, hidden) for name in heads}, repeat)
        table.add_row(str(rows), *cells, *(f"{value:.1f}" for value in times.values()))
    return table


def without_stored_codes(files: ModelFiles, folder: Path) -> ModelFiles:
    """The same model as if its weights had never been 4 bits."""
    for path in files.folder.iterdir():
        if path.name != "int4.safetensors":
            (folder / path.name).symlink_to(path)
    return ModelFiles(folder, files.name, files.revision)


def compared(files: ModelFiles) -> Iterator[tuple[str, Transformer]]:
    for weights in FORMATS:
        yield str(weights), load(files, weights)
    with tempfile.TemporaryDirectory() as folder:
        yield "int4 exact, codes chosen anew", load(without_stored_codes(files, Path(folder)), WeightFormat("int4"))


def measure_quality(files: ModelFiles, windows: int, tokens: int, console: Console) -> Table:
    tokenizer = Tokenizer.from_folder(files.folder)
    text, asked = Text.read(tokenizer, windows), prompts(tokenizer)
    title = f"{windows} windows of text {text.digest}; {len(asked)} greedy replies of {tokens} tokens"
    headings = (
        "perplexity",
        "same likeliest token",
        "mean change of a token's loss",
        "replies the same",
        "tokens until",
    )
    table = Table("weights", *headings, title=title, box=None)
    first = None
    for name, model in compared(files):
        console.print(name)
        seen, replies = predict(model, text), greedy(model, asked, tokens)
        first = first or (seen, replies)
        common = [tokens_in_common(one, other) for one, other in zip(replies, first[1], strict=True)]
        table.add_row(
            name,
            f"{seen.perplexity:.3f}",
            f"{100 * float((seen.likeliest == first[0].likeliest).float().mean()):.1f} %",
            f"{float((seen.loss - first[0].loss).abs().mean()):.4f}",
            f"{sum(count == tokens for count in common)} of {len(common)}",
            f"{statistics.mean(common):.1f}",
        )
    return table


def time_starts(model: str, console: Console) -> Table:
    """From starting the process to the first token of a reply, and what it holds in memory then."""
    table = Table("weights", "until the first token", "memory", box=None)
    body = {"prompt": "Hello", "max_tokens": 1}
    for weights in FORMATS:
        options = ["--model", model, "--weights", weights.kind, "--weights-policy", weights.policy]
        began = time.perf_counter()
        with LocalServer(*options, "--num-pages", "512", console=console) as server:
            headers = {"authorization": f"Bearer {server.api_key}"}
            httpx.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=60).raise_for_status()
            seconds = time.perf_counter() - began
            table.add_row(str(weights), f"{seconds:.1f} s", f"{_private_bytes() / 2**20:,.0f} MiB")
    return table


def _private_bytes() -> int:
    """Of the server, our only child; without pages of mapped files, which the system can take back."""
    (server,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split()
    status = Path(f"/proc/{server}/status").read_text("utf-8")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what: tuple[Literal["layers", "quality", "start"], ...] = ("layers", "quality", "start")
    parser.add_argument("what", choices=what)
    parser.add_argument("--model", default="smollm2", help="as for agentcache serve; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--repeat", type=int, default=5, help="times of each product; default: %(default)s")
    parser.add_argument("--windows", type=int, default=12, help="of 512 tokens; default: %(default)s")
    parser.add_argument("--tokens", type=int, default=48, help="of each greedy reply; default: %(default)s")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console(stderr=True, highlight=False)
    files = resolve_model(args.model, default_home(), progress=console.print)
    if args.what == "layers":
        table = time_layers(files, args.repeat, console)
    elif args.what == "quality":
        table = measure_quality(files, args.windows, args.tokens, console)
    else:
        table = time_starts(args.model, console)
    out = Console(width=170, highlight=False)
    out.print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {args.threads} threads")
    out.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
