"""Compile the Triton kernels for GPUs that need not be there, and read from the machine code what they would use.

Triton brings NVIDIA's assembler and disassembler and LLVM for AMD along, so nothing here needs a driver.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from agentcache_kernels.gpu.launch import Launch

_TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass(frozen=True, slots=True)
class Chip:
    """A target and what a program may use on it."""

    name: str
    target: GPUTarget
    shared_bytes: int
    """Shared memory of one program.  The smallest of the chips that use the entries of this name in ``tuning.json``."""
    matrix: str
    """The chip's own matrix instructions."""


CHIPS = (
    # 8.0 has 163 KB, but 8.6 and 8.9 use the same entries and have 99 KB.
    Chip("sm80", GPUTarget("cuda", 80, 32), 99 * 1024, "mma"),
    Chip("sm90", GPUTarget("cuda", 90, 32), 227 * 1024, "wgmma"),
    Chip("sm100", GPUTarget("cuda", 100, 32), 227 * 1024, "tcgen05"),
    Chip("gfx942", GPUTarget("hip", "gfx942", 64), 64 * 1024, "mfma"),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one kernel uses on one chip."""

    registers: int
    """Of a thread; on AMD vector registers, accumulators included."""
    spills: int
    """Instructions that move registers to or from local memory (NVIDIA), or vector registers spilled (AMD)."""
    shared_bytes: int
    instructions: int
    matrix: str
    """The matrix instructions that the code holds: wgmma, tcgen05, mma, mfma, or nothing."""


def compile_launch(launch: Launch, chip: Chip) -> Figures:
    """Compile what ``launch`` would run, with its arguments' types and alignments.

    Raises:
        triton.CompilationError, triton.runtime.errors.PTXASError: the kernel cannot be compiled for the chip.
    """
    signature: dict[str, str] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for index, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants:
            signature[name] = "constexpr"
            continue
        value = launch.arguments[name]
        if isinstance(value, Tensor):
            signature[name] = f"*{_TYPES[value.dtype]}"
        elif isinstance(value, float):
            signature[name] = "fp32"
            continue
        else:
            signature[name] = "i32" if value < 2**31 else "i64"
            if value % 16:
                continue
        parameter = launch.kernel.params[index]
        if parameter.do_not_specialize or parameter.do_not_specialize_on_alignment:
            continue
        attributes[index,] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, dict(launch.constants), attributes)
    options = {
        "num_warps": launch.blocks.warps,
        "num_stages": launch.blocks.stages,
        "enable_fp_fusion": launch.fused,
    }
    compiled = triton.compile(source, target=chip.target, options=options)
    read: Callable[[Any], Figures] = _amd_figures if chip.target.backend == "hip" else _nvidia_figures
    return read(compiled)


def faults(launch: Launch, chip: Chip, figures: Figures) -> list[str]:
    """What is wrong with a kernel: too few registers, too much shared memory, or attention beside the matrix units."""
    found = []
    if figures.spills:
        found.append(f"{figures.spills} spills")
    if figures.shared_bytes > chip.shared_bytes:
        found.append(f"{figures.shared_bytes} bytes of shared memory, the chip has {chip.shared_bytes}")
    q = launch.arguments.get("q")
    if q is not None and q.element_size() == 2:
        # Hopper's and Blackwell's own instructions need 64 lines, which single rows seldom have.
        names = (chip.matrix,) if launch.constants["BLOCK_ROWS"] >= 64 else (chip.matrix, "mma")
        if figures.matrix not in names:
            found.append(f"matrix instructions '{figures.matrix}', expected {' or '.join(names)}")
    return found


def _nvidia_figures(compiled: Any) -> Figures:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = _output("cuobjdump", "--dump-resource-usage", file.name)
        code = _output("nvdisasm", "-c", file.name)
    lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", code)
    lines = [line for line in lines if line != "NOP"]
    spills = sum(line.startswith(("LDL", "STL")) for line in lines)
    ptx = compiled.asm["ptx"]
    matrix = next((name for name in ("tcgen05.mma", "wgmma", "mma.sync") if name in ptx), "")
    return Figures(_number(r"REG:(\d+)", usage), spills, compiled.metadata.shared, len(lines), matrix.partition(".")[0])


def _amd_figures(compiled: Any) -> Figures:
    code = compiled.asm["amdgcn"]
    body = code[: code.index("s_endpgm")]
    instructions = re.findall(r"^\t(?:[svd]|ds|buffer|global|flat)_\w+", body, re.MULTILINE)
    # Scalar registers are spilled into lanes of vector registers, not to memory.
    spills = _number(r"\.vgpr_spill_count:\s+(\d+)", code)
    matrix = "mfma" if "v_mfma" in code else ""
    # The count of a program's vector registers includes its accumulators.
    return Figures(_number(r"\.vgpr_count:\s+(\d+)", code), spills, compiled.metadata.shared, len(instructions), matrix)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"got no '{pattern}' in the compiler's output, expected one")
    return int(found.group(1))


def _output(tool: str, *arguments: str) -> str:
    return subprocess.run([str(_TOOLS / tool), *arguments], check=True, capture_output=True, text=True).stdout
