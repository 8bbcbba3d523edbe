"""The Triton kernels compiled for GPUs that need not be there: no spills, within shared memory, on the matrix units."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import triton

from agentcache_kernels.gpu.tuning import architecture, blocks_for
from bench.kernels_aot import CHIPS, Chip, Figures, compile_launch, faults
from bench.kernels_cases import LLAMA_8B, Case, Shape, attention_cases, cases, row_cases, sampling_case

HEADS = [(9, 3), (14, 2), (32, 8), (7, 1), (4, 4), (71, 1), (64, 8)]
HEAD_DIMS = [16, 64, 72, 80, 96, 112, 128, 192, 256]
DTYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        yield


def check(cases_of_chip: Iterator[Case], chip: Chip) -> None:
    found = []
    for case in cases_of_chip:
        wrong = faults(case.launch, chip, compile_launch(case.launch, chip))
        found += [f"{case.kernel} for {case.variant}: {fault}" for fault in wrong]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_attention_in_the_shape_of_llama_3_8b_compiles_well(chip: Chip) -> None:
    wanted = ("prefill_attention", "decode_attention")
    check((case for case in attention_cases(LLAMA_8B, chip.name) if case.kernel in wanted), chip)


@pytest.mark.kernels
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_attention_compiles_well_for_every_head_size(head_dim: int, chip: Chip) -> None:
    """Ratios and page sizes take turns."""
    for index, (dtype, window) in enumerate(itertools.product(DTYPES, (None, 1024))):
        turn = index + HEAD_DIMS.index(head_dim)
        shape = Shape(*HEADS[turn % len(HEADS)], head_dim, dtype, (8, 16, 32, 64, 128)[turn % 5], window)
        check(attention_cases(shape, chip.name), chip)


@pytest.mark.kernels
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_the_other_kernels_compile_well_in_every_type(chip: Chip) -> None:
    for dtype in DTYPES:
        check(row_cases(dtype, chip.name), chip)
    check(iter([sampling_case(chip.name)]), chip)


def test_what_is_wrong_with_a_kernel_is_told() -> None:
    hopper = CHIPS[1]
    prefill = next(case.launch for case in attention_cases(LLAMA_8B, "sm90") if case.kernel == "prefill_attention")
    good = Figures(255, 0, 227 * 1024, 2000, "wgmma")
    assert faults(prefill, hopper, good) == []
    assert faults(prefill, hopper, Figures(255, 3, 227 * 1024 + 1, 2000, "mma")) == [
        "3 spills",
        "232449 bytes of shared memory, the chip has 232448",
        "matrix instructions 'mma', expected wgmma",
    ]


def test_single_rows_and_shared_splits_read_keys_in_equal_blocks() -> None:
    """Else a row's bits would depend on who else reads its prefix."""
    for arch, bits, size in itertools.product(("sm80", "sm90", "sm100", "gfx942"), (16, 32), HEAD_DIMS):
        alone, shared = (blocks_for(kernel, arch, bits, size) for kernel in ("decode_attention", "shared_prefix"))
        assert alone.columns == shared.columns


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm80"), ((8, 9), "sm80"), ((9, 0), "sm90"), ((10, 3), "sm100"), ((12, 0), "sm80")],
)
def test_chips_that_are_not_in_the_file_use_entries_that_fit(
    capability: tuple[int, int], arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert architecture(torch.device("cuda")) == arch
    assert architecture(torch.device("cpu")) == "interpreter"


def test_every_kernel_has_blocks_for_every_chip() -> None:
    for chip in CHIPS:
        shapes = tuple(Shape(4, 2, dim, dtype) for dim in HEAD_DIMS for dtype in DTYPES)
        kernels = {case.kernel for case in cases(shapes, tuple(DTYPES), chip.name)}
        assert len(kernels) == 9
    with pytest.raises(ValueError, match=r"got kernel 'merge' on 'sm70' for 32 bits and size 64, expected one of"):
        blocks_for("merge", "sm70", 32, 64)
