"""Which operations give a row other bits depending on what surrounds it, measured on this machine.

    python bench/determinism.py [--threads 1 2 7] [--head]

For each operation of a step, and each number of rows and threads: are the rows' results bit-equal to the same rows' results
among many, with one thread?  Prints one line an operation; docs/determinism.md explains them.  Ends with status 1 if an
operation that agentcache relies on differs in a form in which it uses it.

MKL uses no more threads than there are cores unless told: ``MKL_DYNAMIC=FALSE`` measures more on a small machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from agentcache.model.layers import rms_norm, silu
from agentcache.model.rope import rotate
from agentcache_kernels import make_attention_batch, paged_attention

ROWS = [*range(1, 41), 48, 64, 96, 100, 127, 128, 129, 192, 200, 244, 255, 256, 257, 300, 384, 500, 512, 513]
OFFSETS = (0, 3)
MOST = 520
LINEAR = {
    "SmolLM2 qkv": (576, 960),
    "SmolLM2 output": (576, 576),
    "SmolLM2 gate, up": (576, 3072),
    "SmolLM2 down": (1536, 576),
    "tiny qkv": (64, 128),
    "tiny output": (64, 64),
    "tiny gate, up": (64, 256),
    "tiny down": (128, 64),
    "tiny head": (64, 512),
}
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Operation:
    """``run(begin, end)`` computes rows ``begin .. end`` of one fixed input, alone."""

    name: str
    run: Callable[[int, int], Tensor]
    rows: int = MOST
    used: Callable[[int], bool] | None = lambda _count: True
    """Row counts that agentcache calls it with; ``None``: it is shown for comparison only."""


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def rows_of(x: Tensor, run: Callable[[Tensor], Tensor]) -> Callable[[int, int], Tensor]:
    # Copied, as a step of so many rows would have them.
    return lambda begin, end: run(x[begin:end].clone())


def linear(inputs: int, outputs: int, rows: int = MOST) -> Callable[[int, int], Tensor]:
    weight = random(outputs, inputs)
    return rows_of(random(rows, inputs), lambda x: functional.linear(x, weight))


def attention(window: int | None) -> Callable[[int, int], Tensor]:
    """Rows of a prompt that follow 700 others, in pieces that end at ``end``."""
    before, heads, kv_heads, size, page = 700, 9, 3, 64, 16
    pages = -(-(before + MOST) // page)
    table = torch.randperm(pages, generator=torch.Generator().manual_seed(0)).tolist()
    q, pool = random(MOST, heads, size), random(2, kv_heads, pages, page, size)

    def run(begin: int, end: int) -> Tensor:
        batch = make_attention_batch([end - begin], [before + end], [table], page, CPU)
        return paged_attention(q[begin:end], pool[0], pool[1], batch, scale=size**-0.5, window=window)

    return run


def operations(head: bool) -> Iterable[Operation]:
    fours = lambda count: count % 4 == 0  # noqa: E731
    for name, (inputs, outputs) in LINEAR.items():
        yield Operation(f"linear, {name}", linear(inputs, outputs), used=fours)
    if head:
        yield Operation("linear, SmolLM2 head", linear(576, 49152, 64), 64, used=fours)
    yield Operation("attention of a prompt's rows", attention(None))
    yield Operation("the same in a window of 300", attention(300))
    weight = random(576)
    yield Operation("RMSNorm", rows_of(random(MOST, 576), lambda x: rms_norm(x, weight, 1e-5)))
    heads = random(MOST, 12, 64)
    yield Operation("RMSNorm of heads", rows_of(heads, lambda x: rms_norm(x, weight[:64], 1e-5)))
    angles = random(MOST, 1, 64)
    turned = torch.cat((heads, angles, angles.flip(0)), 1)
    yield Operation("rotary embedding", rows_of(turned, lambda x: rotate(x[:, :12], x[:, 12:13], x[:, 13:])))
    wide = random(MOST, 1536) * 4
    yield Operation("SiLU as agentcache computes it", rows_of(wide, silu))
    yield Operation("SiLU of torch", rows_of(wide, functional.silu), used=None)
    yield Operation("SiLU of torch, 100 wide", rows_of(wide[:, :100].contiguous(), functional.silu), used=None)
    logits = random(32, 49152) * 5
    yield Operation("log-softmax, 49,152 tokens", rows_of(logits, lambda x: x.log_softmax(-1)), 32)
    yield Operation("softmax in float64", rows_of(logits.double(), lambda x: x.softmax(-1)), 32)
    yield Operation("log-sum-exp in float64", rows_of(logits.double(), lambda x: x.logsumexp(-1)), 32)
    yield Operation("running sum in float64", rows_of(logits.double(), lambda x: x.cumsum(-1)), 32)


def differing(operation: Operation, expected: Tensor, threads: int) -> list[int]:
    """Numbers of rows with which some row differs from ``expected``."""
    torch.set_num_threads(threads)
    counts = []
    for count in ROWS:
        for begin in OFFSETS:
            end = begin + count
            if end <= operation.rows and not torch.equal(operation.run(begin, end), expected[begin:end]):
                counts.append(count)
                break
    return counts


def element_table() -> Table:
    """Elementwise functions over vectors of 1 to 130 numbers, against the same numbers in a long vector."""
    x = random(4096) * 3
    y = x.abs() + 0.1
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "exp": torch.exp,
        "log": lambda v: v.abs().log(),
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "silu": functional.silu,
        "gelu (tanh)": lambda v: functional.gelu(v, approximate="tanh"),
        "exp2": torch.exp2,
        "logaddexp": lambda v: torch.logaddexp(v, y[: len(v)]),
        "division": lambda v: v / y[: len(v)],
    }
    table = Table("elementwise function", "lengths of 1 .. 130 at which an element differs", box=None)
    for name, function in functions.items():
        expected = function(x)
        bad = [n for n in range(1, 131) if not torch.equal(function(x[:n]), expected[:n])]
        table.add_row(name, brief(bad))
    return table


def brief(numbers: list[int]) -> str:
    """``1-3, 5`` for 1, 2, 3, 5; ``-`` for none."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 7], help="default: 1 2 7")
    parser.add_argument("--head", action="store_true", help="also the output layer of SmolLM2, which takes a minute")
    args = parser.parse_args()
    table = Table("rows that differ", *(f"{count} threads" for count in args.threads), box=None)
    broken = []
    for operation in operations(args.head):
        torch.set_num_threads(1)
        expected = operation.run(0, operation.rows)
        found = [differing(operation, expected, threads) for threads in args.threads]
        table.add_row(operation.name, *map(brief, found))
        if operation.used is not None and any(operation.used(count) for counts in found for count in counts):
            broken.append(operation.name)
    torch.set_num_threads(1)
    console = Console(width=160)
    console.print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}", highlight=False)
    console.print(table, element_table(), sep="\n\n", highlight=False)
    if broken:
        console.print(f"agentcache's promise does not hold here for: {', '.join(broken)}", style="red")
    return 1 if broken else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
