"""Times paged attention on the CPU, at the shapes of SmolLM2-135M: one JSON line for each mix of rows and kind of kernels.

Usage: ``python bench/attention_cpu.py [--threads 2] [--layers 6] [--seconds 3]``.  Milliseconds are medians for a step of
30 layers (``cpu_ms``: processor time of all threads, which neighbours on the machine disturb least; ``build_ms``: what is
built once a step).  The layers' pools are separate, so keys and values come from memory as they do in the model.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time

import torch

from agentcache_kernels import AttentionBatch, make_attention_batch, paged_attention
from agentcache_kernels.attention import turned
from agentcache_kernels.cpu.available import compiles

Q_HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, MODEL_LAYERS = 9, 3, 64, 16, 30
CPU = torch.device("cpu")
KERNELS = ("torch", "compiled") if compiles(CPU, torch.float32) else ("torch",)

MIXES: dict[str, list[tuple[int, int]]] = {
    "decode 1 x 2,000": [(1, 2000)],
    "decode 6 x 1,900-2,400": [(1, 1900 + 100 * i) for i in range(6)],
    "decode 16 x 1,900-2,500": [(1, 1900 + 40 * i) for i in range(16)],
    "prefill 512 at 0": [(512, 512)],
    "prefill 130 on 1,700": [(130, 1830)],
    "prefill 512 on 1,888": [(512, 2400)],
    "prefill 130 on 1,700 and decode 6": [(130, 1830)] + [(1, 1900 + 100 * i) for i in range(6)],
}
"""(rows, context) of each sequence of a step."""


def tables_for(lens: list[tuple[int, int]]) -> tuple[list[list[int]], int]:
    """Page tables in random order, and the size of a pool that holds them."""
    needed = [-(-context // PAGE_SIZE) for _, context in lens]
    order = list(range(sum(needed)))
    random.Random(0).shuffle(order)
    return [[order.pop() for _ in range(count)] for count in needed], sum(needed)


def measure(lens: list[tuple[int, int]], layers: int, seconds: float, *, compiled: bool) -> dict[str, float]:
    tables, num_pages = tables_for(lens)
    shape = (KV_HEADS, num_pages, PAGE_SIZE, HEAD_DIM)
    pools = [(torch.randn(shape), torch.randn(shape)) for _ in range(layers)]
    if compiled:
        pools = [(turned(keys), values) for keys, values in pools]
    q = torch.randn(sum(rows for rows, _ in lens), Q_HEADS, HEAD_DIM)

    def build() -> AttentionBatch:
        return make_attention_batch([n for n, _ in lens], [c for _, c in lens], tables, PAGE_SIZE, CPU)

    def layer(batch: AttentionBatch, index: int) -> None:
        paged_attention(q, *pools[index], batch, scale=HEAD_DIM**-0.5)

    layer(build(), 0)
    first: list[float] = []
    each: list[float] = []
    busy: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(each) < 3:
        started = time.perf_counter()
        batch = build()
        layer(batch, 0)
        built, work = time.perf_counter(), time.process_time()
        for index in range(layers):
            layer(batch, index)
        each.append((time.perf_counter() - built) / layers)
        busy.append((time.process_time() - work) / layers)
        first.append(built - started)
    return {
        "step_ms": round(statistics.median(each) * MODEL_LAYERS * 1e3, 1),
        "cpu_ms": round(statistics.median(busy) * MODEL_LAYERS * 1e3, 1),
        "build_ms": round((statistics.median(first) - statistics.median(each)) * 1e3, 2),
        "runs": len(each),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    for name, lens in MIXES.items():
        for kernels in KERNELS:
            result = measure(lens, args.layers, args.seconds, compiled=kernels == "compiled")
            print(json.dumps({"mix": name, "kernels": kernels, "threads": args.threads, **result}), flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
