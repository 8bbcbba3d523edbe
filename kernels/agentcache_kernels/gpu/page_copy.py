# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Copying pages of all layers in one launch, inside a store (copy on write) or between two (swapping).

::

    program:   copy i of a list (source page, target page, tokens) x tensor t of the store x head h
    moves:     source[t][h, source page, :tokens]  ->  target[t][h, target page, :tokens]

A store is a list of tensors, so the kernel gets a table of their addresses.  A store in pinned host memory has addresses
that a GPU can use, which is how pages are swapped without a staging buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.launch import Launch
from agentcache_kernels.gpu.tuning import architecture, blocks_for
from agentcache_kernels.gpu.upload import on_device

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit
def page_copy_kernel(
    sample,
    source_addresses,
    target_addresses,
    copies,
    source_head_stride,
    target_head_stride,
    source_page_stride,
    target_page_stride,
    slot_stride,
    BLOCK: tl.constexpr,
):
    copy = tl.program_id(0).to(tl.int64)
    tensor = tl.program_id(1)
    head = tl.program_id(2).to(tl.int64)
    words = sample.dtype
    # The compiler cannot see that addresses from a table are aligned, and would move one element at a time.
    source = tl.multiple_of(tl.load(source_addresses + tensor).to(words), 16) + head * source_head_stride
    target = tl.multiple_of(tl.load(target_addresses + tensor).to(words), 16) + head * target_head_stride
    source += tl.load(copies + 3 * copy) * source_page_stride
    target += tl.load(copies + 3 * copy + 1) * target_page_stride
    size = tl.load(copies + 3 * copy + 2) * slot_stride
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(target + at, tl.load(source + at, mask=at < size), mask=at < size)


@dataclass(frozen=True, slots=True)
class PagePool:
    """Every tensor of a store, each ``[kv_heads, num_pages, page_size, head_dim]``, the slots of a page in one piece, of one
    type and with the same strides, and their addresses (int64) where the kernel runs."""

    tensors: Sequence[Tensor]
    addresses: Tensor

    @classmethod
    def of(cls, tensors: Sequence[Tensor], device: torch.device) -> "PagePool":
        """``device`` is where copies are made; the tensors lie there or in pinned host memory.

        Raises:
            ValueError: tensors of different shapes or strides, pages in pieces, or addresses that are no multiples of 16.
        """
        if not tensors or any(t.shape != tensors[0].shape or t.stride() != tensors[0].stride() for t in tensors):
            raise ValueError(f"got {[list(t.shape) for t in tensors]}, expected tensors of one shape, laid out alike")
        if tensors[0].stride()[2:] != (tensors[0].shape[3], 1):
            raise ValueError(f"got strides {tensors[0].stride()}, expected the slots of a page in one piece")
        addresses = [t.data_ptr() for t in tensors]
        if any(address % 16 for address in addresses):
            raise ValueError(f"got tensors at {addresses}, expected multiples of 16")
        return cls(tensors, on_device(addresses, torch.int64, device))


def copy_waves(copies: Sequence[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """Cut an ordered list of ``(source, target, tokens)`` inside one pool into lists whose copies may be made at once."""
    waves: list[list[tuple[int, int, int]]] = []
    sources: set[int] = set()
    targets: set[int] = set()
    for source, target, tokens in copies:
        if not waves or source in targets or target in targets or target in sources:
            waves.append([])
            sources, targets = set(), set()
        waves[-1].append((source, target, tokens))
        sources.add(source)
        targets.add(target)
    return waves


def page_copy(
    source: PagePool, target: PagePool, copies: Sequence[tuple[int, int, int]], arch: str | None = None
) -> Launch:
    """Copy the first ``tokens`` slots of each ``(source page, target page, tokens)``, in no order: see :func:`copy_waves`.

    Bits are moved, whatever they mean.
    """
    shape, aim = source.tensors[0].shape, target.tensors[0].shape
    if (shape[0], *shape[2:]) != (aim[0], *aim[2:]) or source.tensors[0].dtype != target.tensors[0].dtype:
        raise ValueError(f"got pools of {list(shape)} and {list(aim)}, expected the same but for the number of pages")
    words = source.tensors[0].view(_WORDS[source.tensors[0].element_size()])
    device = source.addresses.device
    blocks = blocks_for("page_copy", arch or architecture(device), 8 * words.element_size(), shape[2] * shape[3])
    arguments = {
        "sample": words,
        "source_addresses": source.addresses,
        "target_addresses": target.addresses,
        "copies": on_device(copies, torch.int64, device).view(-1, 3),
        "source_head_stride": words.stride(0),
        "target_head_stride": target.tensors[0].stride(0),
        "source_page_stride": words.stride(1),
        "target_page_stride": target.tensors[0].stride(1),
        "slot_stride": words.stride(2),
    }
    grid = (len(copies), len(source.tensors), shape[0])
    return Launch(page_copy_kernel, grid, arguments, {"BLOCK": blocks.columns}, blocks)


def page_copy_twin(source: PagePool, target: PagePool, copies: Sequence[tuple[int, int, int]]) -> None:
    """The same in plain torch."""
    for before, after in zip(source.tensors, target.tensors, strict=True):
        for page, other, tokens in copies:
            after[:, other, :tokens] = before[:, page, :tokens]
