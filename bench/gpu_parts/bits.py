"""What the batch-invariant mode rests on, and what only a chip can tell: a row's bits in any place and company."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from agentcache_kernels.gpu import AttentionInputs, AttentionRules, SequenceSpec, StepAttention
from bench.gpu_parts.notes import Notes
from bench.gpu_parts.steps import Heads, make_step


def run(notes: Notes) -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    prompts(notes)
    sharing(notes)
    products(notes)


def prompts(notes: Notes) -> None:
    """Rows of a prompt that is cut in several ways, down to single rows."""
    heads = Heads(4, 2, 16, torch.float32, 8) if notes.interpret else Heads(32, 8, 128, torch.bfloat16)
    length = 24 if notes.interpret else 700
    inputs, specs = make_step(heads, [(length, length)], notes.device)
    cuts = [[length], [length // 2, length - length // 2], [1, length - 2, 1], [length - 10, *[1] * 10]]
    for way, rules in (("one kernel", AttentionRules(one_kernel=True)), ("splits", AttentionRules())):
        results = [_cut(inputs, specs[0], cut, rules) for cut in cuts]
        differing = sum(int((result != results[0]).any(-1).any(-1).sum()) for result in results[1:])
        name = f"{way}: rows of a prompt that differ when it is cut otherwise"
        if way == "one kernel":
            notes.at_most(name, differing, 0, "rows")
        else:
            notes.figure(name, differing, "rows")


def sharing(notes: Notes) -> None:
    """Single rows that read a beginning together or each for itself."""
    heads = Heads(4, 2, 16, torch.float32, 8) if notes.interpret else Heads(32, 8, 128, torch.bfloat16)
    split = 64 if notes.interpret else 256
    inputs, specs = make_step(heads, [(1, 2 * split + 9 + row) for row in range(5)], notes.device, shared=2 * split)
    together, apart = (
        StepAttention.plan(inputs, specs, AttentionRules(split, least)).attend(inputs) for least in (0, 2**62)
    )
    differing = int((together != apart).any(-1).any(-1).sum())
    notes.figure("splits: rows that differ when others read their prefix", differing, "rows")


def products(notes: Notes) -> None:
    """The library's products of a fixed number of rows: a row alone, in another place, among others."""
    rows, sizes = (8, [(32, 16)]) if notes.interpret else (128, [(4096, 6144), (4096, 28672), (14336, 4096)])
    dtype = torch.float32 if notes.interpret else torch.bfloat16
    for inner, outer in sizes:
        weight = torch.randn(outer, inner, device=notes.device, dtype=dtype)
        x = torch.randn(rows, inner, device=notes.device, dtype=dtype)
        alone = torch.zeros_like(x)
        alone[rows // 3] = x[0]
        moved = functional.linear(alone, weight)[rows // 3]
        rolled = functional.linear(x.roll(5, 0), weight).roll(-5, 0)
        usual = functional.linear(x, weight)
        wrong = int((rolled != usual).any(-1).sum()) + int((moved != usual[0]).any())
        notes.at_most(
            f"products of {rows} rows, {inner} to {outer}: rows that differ in other company", wrong, 0, "rows"
        )


def _cut(inputs: AttentionInputs, whole: SequenceSpec, counts: list[int], rules: AttentionRules) -> Tensor:
    """All rows, piece after piece, each piece in a step of its own."""
    pieces, end = [], 0
    for count in counts:
        piece = AttentionInputs(inputs.q[end : end + count], inputs.k_pages, inputs.v_pages, inputs.scale)
        end += count
        spec = SequenceSpec(0, count, end, whole.pages)
        pieces.append(StepAttention.plan(piece, [spec], rules).attend(piece))
    return torch.cat(pieces)
