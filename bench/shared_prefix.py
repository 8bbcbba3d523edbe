"""Time of a decode step whose requests share a prefix, by length of the prefix and number of requests.

    python bench/shared_prefix.py [--threads 2] [--weights int4]

Whole steps of the model: embedding, layers, output layer.  Each request has 64 tokens of its own after the shared ones.  "apart"
is the same step with every request on pages of its own, where nothing can be read once for several; it is left out where it
would need more than ``--memory`` GiB.  Medians, in milliseconds; with one thread, processor time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from agentcache.model.hub import resolve_model
from agentcache.model.kv_store import KVStore
from agentcache.model.loader import load_transformer
from agentcache.model.quantized_load import WeightFormat
from agentcache.model.transformer import Transformer
from agentcache.settings import default_home
from agentcache_kernels import make_attention_batch

REQUESTS = (1, 4, 16, 64)
SHARED = (256, 1024, 2048, 4096)
OWN, PAGE = 64, 16
CPU = torch.device("cpu")


def tables_of(requests: int, shared: int, *, apart: bool) -> tuple[list[list[int]], int]:
    """Page tables, and how many pages they need."""
    common, own = shared // PAGE, OWN // PAGE
    if apart:
        length = common + own
        return [list(range(n * length, (n + 1) * length)) for n in range(requests)], requests * length
    begin = list(range(common))
    return [
        begin + list(range(common + n * own, common + (n + 1) * own)) for n in range(requests)
    ], common + requests * own


def step_of(model: Transformer, kv: KVStore, tables: list[list[int]], context: int) -> Callable[[], None]:
    ids = torch.arange(len(tables)) + 100
    positions = torch.full_like(ids, context - 1)
    slots = torch.tensor([table[-1] * PAGE + PAGE - 1 for table in tables])

    def step() -> None:
        count = len(tables)
        batch = make_attention_batch([1] * count, [context] * count, tables, PAGE, CPU)
        model.logits(model(ids, positions, slots, kv, batch))

    return step


def median_ms(step: Callable[[], None], seconds: float) -> float:
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    step()
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < 3:
        began = clock()
        step()
        times.append(1000 * (clock() - began))
    return statistics.median(times)


def filled_store(model: Transformer, pages: int) -> KVStore:
    config = model.config
    kv = KVStore(config.num_layers, pages, PAGE, config.num_kv_heads, config.head_dim, torch.float32, CPU)
    generator = torch.Generator().manual_seed(0)
    for pool in (*kv.k, *kv.v):
        pool.normal_(generator=generator)
    return kv


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="as for agentcache serve; default: %(default)s")
    parser.add_argument("--weights", choices=("native", "int8", "int4"), default="native")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement; default: %(default)s")
    parser.add_argument("--memory", type=float, default=3.0, help="GiB for keys and values; default: %(default)s")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console(stderr=True, highlight=False)
    files = resolve_model(args.model, default_home(), progress=console.print)
    weights = WeightFormat(args.weights)
    model = load_transformer(files, device=CPU, dtype=torch.float32, weights=weights, progress=console.print)
    config = model.config
    page_bytes = KVStore.bytes_per_page(config.num_layers, PAGE, config.num_kv_heads, config.head_dim, torch.float32)
    table = Table("requests", *(f"{shared:,} shared" for shared in SHARED), box=None)
    for requests in REQUESTS:
        cells = []
        for shared in SHARED:
            found = []
            for apart in (False, True):
                tables, pages = tables_of(requests, shared, apart=apart)
                if pages * page_bytes > args.memory * 2**30 or (apart and requests == 1):
                    continue
                kv = filled_store(model, pages)
                found.append(median_ms(step_of(model, kv, tables, shared + OWN), args.seconds))
            console.print(f"{requests} requests, {shared:,} shared tokens")
            cells.append(f"{found[0]:.1f}" + (f" (apart {found[1]:.1f})" if len(found) > 1 else ""))
        table.add_row(str(requests), *cells)
    Console(width=130, highlight=False).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
