"""Everything that only a GPU can tell, in at most eight minutes and without a network.

    python bench/gpu_check.py [--out gpu-check]        on a machine with a GPU
    python bench/gpu_check.py --interpret              on any machine: tiny shapes, only whether all of it runs

Seven parts, each in a process of its own with a time limit of its own, so that a slow or broken part does not lose the others:
kernels against their twins, bandwidth of decode attention, arithmetic of prefill attention, shared prefixes, bits of rows, and
the engine end to end with random weights of Llama 3 8B's shape, cache on and off.

Prints a table; ``gpu_check.json`` and ``gpu_check.md`` with the same are written to the folder.  The exit status is the sum of
what failed: 1 kernels, 2 bandwidth, 4 prefill, 8 shared, 16 bits, 32 cache_on, 64 cache_off; 128 when there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"kernels": 90, "bandwidth": 45, "prefill": 45, "shared": 45, "bits": 35, "cache_on": 110, "cache_off": 105}
"""Seconds; together under eight minutes."""
NO_GPU = 128
_INTERPRETED_LIMIT = 300


@dataclass(frozen=True)
class Part:
    """How one part ended, and what it found."""

    name: str
    ended: str
    """``done``, ``failed`` or ``out of time``."""
    findings: list[dict[str, Any]]

    @property
    def ok(self) -> bool:
        return self.ended == "done" and all(finding["ok"] for finding in self.findings)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path("gpu-check"), help="folder of the results (default: %(default)s)"
    )
    parser.add_argument("--interpret", action="store_true", help="tiny shapes on the CPU, under Triton's interpreter")
    parser.add_argument("--part", action="append", choices=LIMITS, help="only this part; repeatable")
    options = parser.parse_args(arguments)
    device = "a CPU, under Triton's interpreter: nothing is measured" if options.interpret else gpu_name()
    if device is None:
        print("There is no GPU: torch sees no CUDA device.  --interpret runs tiny shapes on the CPU.", file=sys.stderr)
        return NO_GPU
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        parts = run_parts(options.part or list(LIMITS), Path(folder), options.interpret)
    facts = {"device": device, "seconds": round(time.monotonic() - began, 1), **versions()}
    show(parts, facts)
    write(parts, facts, options.out)
    return status_of(parts)


def status_of(parts: Iterable[Part]) -> int:
    """The sum of 1, 2, 4, ... for the parts that failed."""
    return sum(1 << list(LIMITS).index(part.name) for part in parts if not part.ok)


def gpu_name() -> str | None:
    """The GPU's name as torch knows it, asked for in another process: this one needs no device."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "triton")}


def run_parts(names: list[str], folder: Path, interpret: bool) -> list[Part]:
    """Run parts one after another; under the interpreter all in one process, which is most of their time."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "kernels"), str(ROOT)])}
    if interpret:
        env |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    late = set()
    for group in [names] if interpret else [[name] for name in names]:
        command = [sys.executable, str(ROOT / "bench" / "gpu_parts" / "run.py"), str(folder), *group]
        try:
            subprocess.run(command, env=env, check=False, timeout=_INTERPRETED_LIMIT if interpret else LIMITS[group[0]])
        except subprocess.TimeoutExpired:
            late |= {name for name in group if not (folder / f"{name}.done").exists()}
    return [_part(name, folder, name in late) for name in names]


def _part(name: str, folder: Path, late: bool) -> Part:
    file = folder / f"{name}.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    ended = "done" if (folder / f"{name}.done").exists() else "out of time" if late else "failed"
    return Part(name, ended, [json.loads(line) for line in lines])


def _rows(parts: list[Part]) -> list[tuple[str, str, str, str, str]]:
    """Part, what, figure, goal, verdict."""
    rows = []
    for part in parts:
        for finding in part.findings:
            verdict = "" if not finding["goal"] else "ok" if finding["ok"] else "MISSED"
            figure = f"{finding['value']:.4g} {finding['unit']}".strip()
            rows.append((part.name, finding["name"], figure, finding["goal"], verdict))
        if part.ended != "done":
            rows.append((part.name, "the part itself", part.ended, "done", "FAILED"))
    return rows


def show(parts: list[Part], facts: dict[str, Any]) -> None:
    table = Table(title=f"{facts['device']}, {facts['seconds']} s", title_justify="left")
    for column in ("part", "what", "figure", "goal", ""):
        table.add_column(column)
    for row in _rows(parts):
        table.add_row(*row, style="bold red" if row[-1] in {"MISSED", "FAILED"} else None)
    Console().print(table)


def write(parts: list[Part], facts: dict[str, Any], folder: Path) -> None:
    told = [{"part": part.name, "ended": part.ended, "findings": part.findings} for part in parts]
    (folder / "gpu_check.json").write_text(json.dumps(facts | {"parts": told}, indent=2) + "\n", "utf-8")
    lines = [", ".join(f"{name}: {value}" for name, value in facts.items()), "", "| part | what | figure | goal | |"]
    lines += ["|---|---|---|---|---|", *("| " + " | ".join(row) + " |" for row in _rows(parts))]
    (folder / "gpu_check.md").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
