"""How fast attention is, against what the chip can do: memory for single rows, products for prompts."""

from __future__ import annotations

from functools import partial

import torch

from agentcache_kernels.gpu import AttentionRules, StepAttention
from bench.gpu_parts.notes import Notes
from bench.gpu_parts.steps import Heads, make_step

_NEVER = 2**62
"""Bytes that no step spares."""


def bandwidth(notes: Notes) -> None:
    """Single rows, nothing shared: keys and values are read once, and that should be all that takes time."""
    moved = 2**16 if notes.interpret else 2**30
    source = torch.zeros(moved, dtype=torch.uint8, device=notes.device)
    target = torch.empty_like(source)
    copied = 2 * moved / notes.seconds(partial(target.copy_, source))
    notes.figure("copy, read and written", copied / 1e9, "GB/s")
    del source, target
    heads, rules = _llama(notes), _rules(notes, _NEVER)
    for sequences, context in [(2, 70)] if notes.interpret else [(64, 4096), (16, 16384), (1, 65536)]:
        inputs, specs = make_step(heads, [(1, context)] * sequences, notes.device)
        took = notes.seconds(partial(StepAttention.plan(inputs, specs, rules).attend, inputs))
        share = sequences * context * heads.key_bytes / took / copied
        name = f"decode attention, {sequences} x {context:,} tokens, share of copy bandwidth"
        if (sequences, context) == (64, 4096):
            notes.speed(name, share, 0.85, "")
        else:
            notes.figure(name, share, "")


def prefill(notes: Notes) -> None:
    """Prompts: two products of the triangle of queries and keys."""
    side = 64 if notes.interpret else 8192
    heads, rules = _llama(notes), _rules(notes, _NEVER)
    a, b = (torch.randn(side, side, device=notes.device, dtype=heads.dtype) for _ in range(2))
    rate = 2 * side**3 / notes.seconds(partial(torch.mm, a, b))
    notes.figure(f"product of {side} x {side}, {heads.dtype}".replace("torch.", ""), rate / 1e12, "TFLOP/s")
    del a, b
    shapes = [(20, 20)] if notes.interpret else [(8192, 8192), (2048, 2048), (512, 8192)]
    for rows, context in shapes:
        inputs, specs = make_step(heads, [(rows, context)], notes.device)
        took = notes.seconds(partial(StepAttention.plan(inputs, specs, rules).attend, inputs))
        seen = rows * (context - rows) + rows * (rows + 1) // 2
        share = 4 * seen * heads.q_heads * heads.head_dim / took / rate
        name = f"prefill attention, {rows:,} rows on {context:,} tokens, share of the product rate"
        if (rows, context) == (8192, 8192):
            notes.speed(name, share, 0.60, "")
        else:
            notes.figure(name, share, "")


def shared(notes: Notes) -> None:
    """What reading a shared beginning once is worth, and whether the rule that decides about it decides well."""
    heads = _llama(notes)
    length = 64 if notes.interpret else 4096
    for sequences in (2,) if notes.interpret else (16, 64):
        apart, together = _ways(notes, heads, sequences, length)
        notes.speed(f"shared prefix of {length:,} tokens, {sequences} requests: speed-up", apart / together, 1.0, "x")
    for sequences, few in () if notes.interpret else ((2, 256), (2, 1024), (4, 512), (8, 256), (16, 256)):
        apart, together = _ways(notes, heads, sequences, few)
        spared = (sequences - 1) * few * heads.key_bytes / 2**20
        notes.figure(
            f"{sequences} requests over {few} tokens, {spared:.0f} MiB spared: speed-up", apart / together, "x"
        )


def _ways(notes: Notes, heads: Heads, sequences: int, length: int) -> tuple[float, float]:
    """Seconds with nothing read together, and with everything."""
    own = 5 if notes.interpret else 100
    inputs, specs = make_step(heads, [(1, length + own)] * sequences, notes.device, shared=length)
    plans = [StepAttention.plan(inputs, specs, _rules(notes, least)) for least in (_NEVER, 0)]
    apart, together = (notes.seconds(partial(plan.attend, inputs)) for plan in plans)
    return apart, together


def _llama(notes: Notes) -> Heads:
    """One layer of Llama 3 8B."""
    return Heads(4, 2, 16, torch.float32, 8) if notes.interpret else Heads(32, 8, 128, torch.bfloat16)


def _rules(notes: Notes, least_spared: int) -> AttentionRules:
    return AttentionRules(64 if notes.interpret else 256, least_spared)
