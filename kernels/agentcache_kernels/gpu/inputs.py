"""What the attention kernels read: queries, pools of pages, and which sequence owns which pages."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentcache_kernels.gpu.launch import power_of_two
from agentcache_kernels.gpu.upload import on_device


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """One layer's queries and pools.

    ``q`` is ``[tokens, q_heads, head_dim]``, a row's heads in one piece (rows may lie apart); ``k_pages`` and ``v_pages``
    are ``[kv_heads, num_pages, page_size, head_dim]``, contiguous, in the type of ``q``.  A row at position p sees the keys
    of positions ``p - window + 1 .. p``, or all up to p without a window.

    Raises:
        ValueError: shapes or types that do not belong together, a head of more than 256, or a window below 1.
    """

    q: Tensor
    k_pages: Tensor
    v_pages: Tensor
    scale: float
    window: int | None = None

    def __post_init__(self) -> None:
        q, k, v = self.q, self.k_pages, self.v_pages
        if (
            k.shape != v.shape
            or k.dim() != 4
            or k.shape[3] != q.shape[2]
            or not (k.is_contiguous() and v.is_contiguous())
        ):
            raise ValueError(
                f"got keys {list(k.shape)} and values {list(v.shape)}, expected both as "
                f"[kv_heads, num_pages, page_size, {q.shape[2]}], contiguous"
            )
        if q.shape[1] % k.shape[0] or q.stride()[1:] != (q.shape[2], 1):
            raise ValueError(
                f"got queries {list(q.shape)} with strides {q.stride()}, expected a multiple of {k.shape[0]} heads, "
                "side by side"
            )
        if not q.dtype == k.dtype == v.dtype:
            raise ValueError(f"got queries, keys and values as {q.dtype}, {k.dtype} and {v.dtype}, expected one type")
        if q.shape[2] > 256:
            raise ValueError(f"got heads of {q.shape[2]}, expected at most 256")
        if self.window is not None and self.window < 1:
            raise ValueError(f"got window {self.window}, expected at least 1")

    @property
    def q_heads(self) -> int:
        return int(self.q.shape[1])

    @property
    def kv_heads(self) -> int:
        return int(self.k_pages.shape[0])

    @property
    def group(self) -> int:
        """Query heads that share one head of keys."""
        return self.q_heads // self.kv_heads

    @property
    def head_dim(self) -> int:
        return int(self.q.shape[2])

    @property
    def page_size(self) -> int:
        return int(self.k_pages.shape[2])

    @property
    def bits(self) -> int:
        return 8 * int(self.q.element_size())

    def constants(self) -> dict[str, int]:
        """What every attention kernel is compiled for."""
        return {
            "GROUP": self.group,
            "HEAD_DIM": self.head_dim,
            "PAGE_SIZE": self.page_size,
            "HAS_WINDOW": self.window is not None,
            "BLOCK_DIM": max(16, power_of_two(self.head_dim)),
        }


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of one attention call, on the device; all tensors are int32 ``[sequences]`` but ``tables``.

    ::

        rows of the step:   | rows[0] .. rows[0] + query_lens[0] | rows[1] .. |      the last query_lens of context_lens
        tables[0]:          page page page page  x  x  x  x                          positions; x: never read

    ``longest_query`` and ``longest_context`` are upper bounds that the host knows, so that grids need no synchronisation.
    """

    rows: Tensor
    query_lens: Tensor
    context_lens: Tensor
    tables: Tensor
    """``[sequences, width]``."""
    longest_query: int
    longest_context: int

    def __len__(self) -> int:
        return int(self.rows.shape[0])


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """One sequence as the host knows it: ``query_len`` rows from ``row`` on, the last of ``context_len`` positions."""

    row: int
    query_len: int
    context_len: int
    pages: Sequence[int]


def sequences_on(device: torch.device, specs: Sequence[SequenceSpec], page_size: int) -> Sequences:
    """Put sequences on a device, in one transfer.

    Raises:
        ValueError: a table is too short for its context.
    """
    needed = [-(-spec.context_len // page_size) for spec in specs]
    for spec, pages in zip(specs, needed, strict=True):
        if len(spec.pages) < pages:
            raise ValueError(
                f"got {len(spec.pages)} pages for {spec.context_len} positions, expected {pages} of {page_size} tokens"
            )
    width = max(needed, default=0)
    packed = [
        [spec.row, spec.query_len, spec.context_len, *spec.pages[:pages], *[0] * (width - pages)]
        for spec, pages in zip(specs, needed, strict=True)
    ]
    table = on_device(packed, torch.int32, device).view(len(specs), width + 3)
    rows, query_lens, context_lens = table[:, :3].T.contiguous()
    return Sequences(
        rows,
        query_lens,
        context_lens,
        table[:, 3:],
        max((spec.query_len for spec in specs), default=0),
        max((spec.context_len for spec in specs), default=0),
    )


def gathered(pages: Tensor, table: Tensor, context: int) -> Tensor:
    """For the twins: the ``context`` slots of a sequence as float64 ``[kv_heads, context, head_dim]``."""
    used = table[: -(-context // pages.shape[2])].long()
    return pages[:, used].flatten(1, 2)[:, :context].double()
