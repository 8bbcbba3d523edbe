# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Online softmax over keys that lie in pages: the loop that all attention kernels have in common.

Online softmax: Milakov and Gimelshein, 2018; tiled as in Dao, "FlashAttention-2", 2023.  Keys come in blocks of
``BLOCK_KEYS`` that begin at multiples of it, so a line meets the same numbers in the same order in whatever tile it lies.
"""

import triton
import triton.language as tl


@triton.jit
def attend_keys(
    acc,
    top,
    total,
    queries,
    k_head,
    v_head,
    table,
    start,
    stop,
    first_seen,
    last_seen,
    scale,
    MASKED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    """Take the keys of positions ``start .. stop`` into ``acc`` (sums of values), ``top`` (largest score) and ``total``
    (sum of exponentials), all float32.

    With ``MASKED`` line i sees positions ``first_seen[i] .. last_seen[i]`` only, and nothing is read at ``stop`` or beyond:
    such slots may hold anything, NaN included.  Without it, ``stop - start`` is a multiple of ``BLOCK_KEYS`` and every line
    sees every key.  ``scale`` includes log2(e).
    """
    dims = tl.arange(0, BLOCK_DIM)
    for block in range(start, stop, BLOCK_KEYS):
        keys = block + tl.arange(0, BLOCK_KEYS)
        if MASKED:
            pages = tl.load(table + keys // PAGE_SIZE, mask=keys < stop, other=0).to(tl.int64)
        else:
            pages = tl.load(table + keys // PAGE_SIZE).to(tl.int64)
        at = ((pages * PAGE_SIZE + keys % PAGE_SIZE) * HEAD_DIM)[:, None] + dims[None, :]
        if MASKED and HEAD_DIM != BLOCK_DIM:
            real = (keys < stop)[:, None] & (dims < HEAD_DIM)[None, :]
            k = tl.load(k_head + at, mask=real, other=0.0)
            v = tl.load(v_head + at, mask=real, other=0.0)
        elif MASKED:
            real = (keys < stop)[:, None]
            k = tl.load(k_head + at, mask=real, other=0.0)
            v = tl.load(v_head + at, mask=real, other=0.0)
        elif HEAD_DIM != BLOCK_DIM:
            real = (dims < HEAD_DIM)[None, :]
            k = tl.load(k_head + at, mask=real, other=0.0)
            v = tl.load(v_head + at, mask=real, other=0.0)
        else:
            k = tl.load(k_head + at)
            v = tl.load(v_head + at)
        scores = tl.dot(queries, tl.trans(k), input_precision="ieee") * scale
        if MASKED:
            seen = (keys[None, :] >= first_seen[:, None]) & (keys[None, :] <= last_seen[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        # A line that has seen no key yet has no largest score; any number keeps -inf - x from being NaN.
        level = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - level[:, None])
        shrink = tl.exp2(top - level)
        total = total * shrink + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        top = new_top
    return acc, top, total
