"""Every kernel against its twin in float64."""

from __future__ import annotations

import torch

from agentcache_kernels.gpu import (
    AttentionRules,
    Draws,
    PagePool,
    RotaryInputs,
    StepAttention,
    page_copy,
    rms_norm,
    rotary_write,
    sample_tokens,
    sequences_on,
    silu_mul,
)
from agentcache_kernels.gpu.page_copy import page_copy_twin
from agentcache_kernels.gpu.prefill import prefill_attention_twin
from agentcache_kernels.gpu.rms_norm import rms_norm_twin
from agentcache_kernels.gpu.rotary_write import rotary_write_twin
from agentcache_kernels.gpu.sampling import sample_twin
from agentcache_kernels.gpu.silu_mul import silu_mul_twin
from bench.gpu_parts.notes import Notes, relative_error
from bench.gpu_parts.steps import Heads, make_step

_SHAPES = {
    torch.bfloat16: [(32, 8, 128, 16), (9, 3, 64, 16), (16, 8, 256, 32), (7, 1, 80, 8)],
    torch.float16: [(32, 8, 128, 16), (7, 1, 80, 8)],
    torch.float32: [(32, 8, 128, 16), (9, 3, 64, 128)],
}
"""Query heads, key heads, their size, page size: few enough that compiling them ends in time."""

_TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}


def run(notes: Notes) -> None:
    torch.manual_seed(0)
    types = [torch.float32] if notes.interpret else [torch.bfloat16, torch.float16, torch.float32]
    for dtype in types:
        attention(notes, dtype)
        rotary(notes, dtype)
        rows(notes, dtype)
        copies(notes, dtype)
    sampling(notes)


def attention(notes: Notes, dtype: torch.dtype) -> None:
    """Prompts, single rows in splits, and single rows that share a prefix, in one step."""
    shapes = [(4, 2, 16, 8)] if notes.interpret else _SHAPES[dtype]
    long = 8 if notes.interpret else 64
    rules = AttentionRules(64 if notes.interpret else 256)
    for q_heads, kv_heads, head_dim, page_size in shapes:
        heads = Heads(q_heads, kv_heads, head_dim, dtype, page_size)
        lens = [(1, 9 * long), (1, 11 * long + 3), (5 * long + 1, 9 * long + 5), (1, 10 * long), (1, 8 * long + 1)]
        inputs, specs = make_step(heads, lens, notes.device, shared=8 * long)
        expected = torch.zeros_like(inputs.q)
        prefill_attention_twin(inputs, sequences_on(notes.device, specs, page_size), expected)
        for way, chosen in (("splits", rules), ("one kernel", AttentionRules(rules.split, one_kernel=True))):
            ours = StepAttention.plan(inputs, specs, chosen).attend(inputs)
            name = f"attention, {way}, {heads.name}"
            notes.at_most(name, relative_error(ours, expected), _TOLERANCE[dtype], "relative error")


def rotary(notes: Notes, dtype: torch.dtype) -> None:
    q_heads, kv_heads, head_dim, tokens = (4, 2, 16, 5) if notes.interpret else (32, 8, 128, 300)
    device = notes.device
    heads = torch.randn(tokens, q_heads + 2 * kv_heads, head_dim, device=device, dtype=dtype)
    angles = torch.randn(512, head_dim // 2, device=device)
    norm = torch.rand(q_heads + kv_heads, head_dim, device=device).to(dtype) + 0.5
    slots = torch.randperm(tokens, device=device)
    slots[::3] = -1
    inputs = RotaryInputs(
        heads, angles.cos().to(dtype), angles.sin().to(dtype), torch.arange(tokens, device=device), slots, norm
    )
    results = []
    for kernel in (True, False):
        q_out = torch.zeros((tokens, q_heads, head_dim), device=device, dtype=dtype)
        k_pages, v_pages = (
            torch.zeros((kv_heads, -(-tokens // 16), 16, head_dim), device=device, dtype=dtype) for _ in range(2)
        )
        if kernel:
            rotary_write(inputs, q_out, k_pages, v_pages).run()
        else:
            rotary_write_twin(inputs, q_out, k_pages, v_pages)
        results.append(torch.cat([q_out.flatten(), k_pages.flatten(), v_pages.flatten()]))
    notes.at_most(f"rotary write, {_name(dtype)}", relative_error(*results), _TOLERANCE[dtype], "relative error")


def rows(notes: Notes, dtype: torch.dtype) -> None:
    """Norms and SiLU."""
    count, width = (3, 48) if notes.interpret else (257, 4096)
    x = torch.randn(count, width, device=notes.device, dtype=dtype)
    weight = torch.rand(width, device=notes.device).to(dtype) + 0.5
    residuals = [torch.randn(count, width, generator=torch.Generator().manual_seed(1)).to(x) for _ in range(2)]
    residuals[1] = residuals[0].clone()
    ours, theirs = torch.empty_like(x), torch.empty_like(x)
    rms_norm(x, weight, residuals[0], ours, eps=1e-5).run()
    rms_norm_twin(x, weight, residuals[1], theirs, eps=1e-5)
    notes.at_most(f"rms norm, {_name(dtype)}", relative_error(ours, theirs), _TOLERANCE[dtype], "relative error")
    gate_up = torch.randn(count, 2 * width, device=notes.device, dtype=dtype)
    silu_mul(gate_up, ours).run()
    silu_mul_twin(gate_up, theirs)
    notes.at_most(
        f"silu and multiply, {_name(dtype)}", relative_error(ours, theirs), _TOLERANCE[dtype], "relative error"
    )


def copies(notes: Notes, dtype: torch.dtype) -> None:
    """Inside a pool, and to pinned host memory and back."""
    layers, shape = (2, (2, 6, 4, 16)) if notes.interpret else (32, (8, 64, 16, 128))
    ours = [torch.randn(shape, device=notes.device, dtype=dtype) for _ in range(2 * layers)]
    theirs = [tensor.clone() for tensor in ours]
    asked = [(0, 3, shape[2]), (1, 4, 3), (2, 5, shape[2])]
    pools = [PagePool.of(tensors, notes.device) for tensors in (ours, theirs)]
    page_copy(pools[0], pools[0], asked).run()
    page_copy_twin(pools[1], pools[1], asked)
    wrong = sum(not torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    notes.at_most(f"page copy, {_name(dtype)}", wrong, 0, "tensors that differ")
    if not notes.interpret:
        host = [torch.zeros(shape, dtype=dtype).pin_memory() for _ in range(2 * layers)]
        page_copy(pools[0], PagePool.of(host, notes.device), asked).run()
        torch.cuda.synchronize()
        wrong = sum(not torch.equal(one[:, 3], other[:, 0].cpu()) for one, other in zip(host, ours, strict=True))
        notes.at_most(f"page copy to pinned memory, {_name(dtype)}", wrong, 0, "tensors that differ")


def sampling(notes: Notes) -> None:
    """Rows whose draw falls beside a border may differ: the kernel adds in float32, its twin in float64."""
    count, vocab = (4, 600) if notes.interpret else (64, 128256)
    device = notes.device
    logits = torch.randn(count, vocab, device=device) * 4
    turns = torch.arange(count, device=device)
    draws = Draws(
        torch.tensor([0.0, 0.7, 1.0, 1.3], device=device)[turns % 4],
        torch.tensor([0, 40, 0], dtype=torch.int32, device=device)[turns % 3],
        torch.tensor([1.0, 0.9], device=device)[turns % 2],
        torch.tensor([0.0, 0.0, 0.0, 0.0, 0.02], device=device)[turns % 5],
        turns * 7919 - 5,
        turns * 13,
    )
    ours, theirs = (torch.empty(count, dtype=torch.int32, device=device) for _ in range(2))
    sample_tokens(logits, draws, ours).run()
    sample_twin(logits, draws, theirs)
    notes.at_most("sampling", float((ours != theirs).sum()), count // 32, "rows that differ")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
