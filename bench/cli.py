"""What the command lines of the runners have in common."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.workload import WorkloadSpec


def add_workload_options(parser: argparse.ArgumentParser) -> None:
    """The sizes of the workload, the same for every runner."""
    default = WorkloadSpec()
    group = parser.add_argument_group("workload (sizes in tokens)")
    for name in ("agents", "turns", "shared_tokens", "new_tokens", "output_tokens", "seed"):
        flag = "--" + name.replace("_", "-")
        group.add_argument(flag, type=int, default=getattr(default, name), help="default: %(default)s")
    group.add_argument("--workload", type=Path, help="use the conversations in this file instead")


def spec_from(args: argparse.Namespace) -> WorkloadSpec:
    """The spec that ``add_workload_options`` parsed.

    Raises:
        WorkloadError: a size that cannot be made.
    """
    return WorkloadSpec(
        agents=args.agents,
        turns=args.turns,
        shared_tokens=args.shared_tokens,
        new_tokens=args.new_tokens,
        output_tokens=args.output_tokens,
        seed=args.seed,
    )


def progress_bar(console: Console) -> Progress:
    """Requests done, on ``console``; leaves nothing behind."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)
