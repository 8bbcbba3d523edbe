# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Drawing tokens within top_k, then top_p of what is left, then min_p; a draw is a function of (seed, position).

No row is sorted.  Logits are read as whole numbers in the same order (*keys*), and what a sort would be asked for is found by
narrowing down a key, two bits a pass: the largest key at and above which there are k tokens, or a given mass.  All three
filters keep a beginning of the sorted order, and the draw is its inverse cumulative distribution::

    sorted:    | best ............................ cut |  dropped ...          cut: key, and how many tokens of that key
    draw:             ^ where the running mass exceeds u * mass up to the cut

Equal logits count as sorted by token id.  A row without filters is inverted in order of token ids, in one pass.  Uniform
numbers come from Philox 4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the seed as its
key and the position as its counter; 24 bits of the first word are used.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.launch import Launch
from agentcache_kernels.gpu.tuning import architecture, blocks_for


@triton.jit
def _uniform(seed, position):
    c0 = (position + 1).to(tl.uint64)
    c1 = c0 * 0
    c2 = c1
    c3 = c1
    k0 = seed.to(tl.uint64)
    k1 = c1
    for _ in tl.static_range(10):
        low0 = c0 * 0xD2E7470EE14C6C93
        high0 = tl.umulhi(c0, c1 + 0xD2E7470EE14C6C93)
        low1 = c2 * 0xCA5A826395121157
        high1 = tl.umulhi(c2, c1 * 0 + 0xCA5A826395121157)
        c0 = high1 ^ c1 ^ k0
        c2 = high0 ^ c3 ^ k1
        c1 = low1
        c3 = low0
        k0 = k0 + 0x9E3779B97F4A7C15
        k1 = k1 + 0xBB67AE8584CAA73B
    return (c0 >> 40).to(tl.float32) * 5.9604644775390625e-08
