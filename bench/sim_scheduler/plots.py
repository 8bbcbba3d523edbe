"""Times to first token as PNG files: the share of requests that had theirs within a time, by policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bench.sim_scheduler.runs import Result


def plot(results: Sequence[Result], folder: Path) -> list[Path]:
    """One file a trace; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for trace in dict.fromkeys(result.setup.trace for result in results):
        path = folder / f"scheduler_{trace}.png"
        _plot_trace([result for result in results if result.setup.trace == trace], path)
        paths.append(path)
    return paths


def _plot_trace(results: Sequence[Result], path: Path) -> None:
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    every, cold = figure.subplots(1, 2, sharey=True)
    for result in results:
        label = result.setup.policy if result.setup.programs else f"{result.setup.policy}, no programs"
        for axes, kinds in ((every, None), (cold, ("cold", "first", "compacted"))):
            pairs = zip(result.ttft, result.kinds, strict=True)
            times = sorted(seconds for seconds, kind in pairs if kinds is None or kind in kinds)
            shares = [(index + 1) / len(times) for index in range(len(times))]
            axes.step(times, shares, where="post", label=label)
    every.set_title(f"{results[0].setup.trace}: every request")
    cold.set_title("only those whose prompt was new")
    every.set_ylabel("share of requests")
    for axes in (every, cold):
        axes.set_xscale("log")
        axes.set_xlabel("seconds to the first token, at most")
        axes.grid(visible=True, alpha=0.3)
    every.legend()
    figure.savefig(path, dpi=120)
