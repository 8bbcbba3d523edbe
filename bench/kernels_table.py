"""What every Triton kernel uses on every chip, as the table of docs/kernels.md.  Needs no GPU.

    python bench/kernels_table.py            print the table
    python bench/kernels_table.py --write    put it into docs/kernels.md

Fails where a kernel spills registers, needs more shared memory than the chip has, or does not use its matrix units.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
import triton

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.kernels_aot import CHIPS, compile_launch, faults
from bench.kernels_cases import SHOWN, cases

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs" / "kernels.md"
BEGIN, END = "<!-- bench/kernels_table.py: begin -->\n", "<!-- bench/kernels_table.py: end -->\n"


def measure() -> tuple[list[str], list[str]]:
    """Lines of the table, and what is wrong."""
    rows: dict[tuple[str, str], list[str]] = {}
    found = []
    for chip in CHIPS:
        for case in cases(SHOWN, (torch.bfloat16,), chip.name):
            figures = compile_launch(case.launch, chip)
            wrong = faults(case.launch, chip, figures)
            found += [f"{chip.name}: {case.kernel} for {case.variant}: {fault}" for fault in wrong]
            matrix = f" {figures.matrix}" if figures.matrix else ""
            shared = f"{figures.shared_bytes / 1024:.0f}"
            cell = f"{figures.registers} / {shared} / {figures.instructions}{matrix}"
            rows.setdefault((case.kernel, case.variant), []).append(cell)
    lines = [
        f"Triton {triton.__version__}; registers of a thread / KB of shared memory of a program / instructions.",
        "",
        "| kernel | for | " + " | ".join(chip.name for chip in CHIPS) + " |",
        "|---|---|" + "---|" * len(CHIPS),
    ]
    lines += [f"| `{kernel}` | {variant} | " + " | ".join(cells) + " |" for (kernel, variant), cells in rows.items()]
    return lines, found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="registers, shared memory and instructions of the Triton kernels")
    parser.add_argument("--write", action="store_true", help=f"put the table into {DOCS.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = folder
        lines, found = measure()
    table = "\n".join(lines) + "\n"
    if options.write:
        before, rest = DOCS.read_text().split(BEGIN)
        _, after = rest.split(END)
        DOCS.write_text(before + BEGIN + table + END + after)
    else:
        print(table)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
