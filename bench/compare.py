"""agentcache against Hugging Face ``generate`` on the same conversations: both JSON lines, then a table of ratios.

    python bench/compare.py          (or: make bench)

Every run starts from an empty cache: the server answers one unrelated request to get warm, is flushed, and is stopped
before the baseline runs, so the two never share the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich import box
from rich.console import Console
from rich.table import Table

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.agents import token_counter
from bench.cli import add_workload_options, spec_from
from bench.workload import Workload, WorkloadError, WorkloadSpec, build_workload
from examples.agents.local_server import LocalServer, ServerFailedError, ending_on_signals

_HERE = Path(__file__).resolve().parent
_ROWS = (
    ("wall_s", "wall time"),
    ("ttft_p50_s", "time to first token, median"),
    ("ttft_p95_s", "time to first token, 95th percentile"),
    ("inter_token_p50_s", "between tokens, median"),
    ("inter_token_p99_s", "between tokens, 99th percentile"),
    ("prompt_tokens", "prompt tokens"),
    ("cached_tokens", "cached tokens"),
    ("output_tokens", "output tokens"),
)


class RunFailedError(Exception):
    """A runner ended with an error, which it has printed itself."""


@dataclass(frozen=True)
class Side:
    """One run of one side: its JSON line, and its replies by (agent, turn)."""

    line: dict[str, Any]
    replies: dict[tuple[int, int], str]


@dataclass(frozen=True)
class Comparison:
    """Runs both sides on the workload file that the first server measured.

    Args:
        folder: where the workload and the records are written.
        model: as for ``agentcache serve``.
        options: further options of ``agentcache serve``.
    """

    console: Console
    folder: Path
    model: str
    options: tuple[str, ...]
    spec: WorkloadSpec

    @property
    def workload(self) -> Path:
        return self.folder / "workload.json"

    def serve_and_replay(self) -> Side:
        """One run against a fresh server with an empty cache."""
        with LocalServer("--model", self.model, *self.options, console=self.console) as server:
            headers = {"authorization": f"Bearer {server.api_key}"}
            with httpx.Client(base_url=server.url, headers=headers, timeout=300) as http:
                model = str(http.get("/v1/models").raise_for_status().json()["data"][0]["id"])
                if not self.workload.exists():
                    build_workload(self.spec, token_counter(http, model)).save(self.workload)
                _warm_up(http, model)
            try:
                return self._run("agents.py", "--base-url", server.url, "--model", model, "--api-key", server.api_key)
            except RunFailedError as error:
                raise RunFailedError(f"{error}\n{server.last_log_lines()}") from None

    def baseline(self) -> Side:
        return self._run("baseline_hf.py", "--model", self.model)

    def _run(self, script: str, *options: str) -> Side:
        """Run a script of this folder in a process of its own; its progress goes to our standard error."""
        records = self.folder / f"{script}.json"
        command = [sys.executable, str(_HERE / script), "--workload", str(self.workload), "--records", str(records)]
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        try:
            output, _ = process.communicate()
        except BaseException:
            process.kill()
            process.wait()
            raise
        print(output, end="", flush=True)
        if process.returncode:
            raise RunFailedError(f"{script} ended with status {process.returncode}")
        replies = {
            (record["agent"], record["turn"]): record["reply"] for record in json.loads(records.read_text("utf-8"))
        }
        return Side(json.loads(output), replies)


def _warm_up(http: httpx.Client, model: str) -> None:
    """The first request of a process pays for memory and threads; then forget its pages."""
    messages = [{"role": "user", "content": "Count from one to five, then say what a page table is for."}]
    body = {"model": model, "messages": messages, "max_tokens": 16, "temperature": 0}
    http.post("/v1/chat/completions", json=body).raise_for_status()
    http.post("/v1/cache/flush").raise_for_status()


def medians(sides: Sequence[Side]) -> dict[str, float | None]:
    """The median of every figure over the runs of one side."""
    found: dict[str, float | None] = {}
    for key, _ in _ROWS:
        values = [side.line[key] for side in sides if side.line[key] is not None]
        found[key] = statistics.median(values) if values else None
    return found


def table_of(ours: Sequence[Side], baseline: Sequence[Side]) -> Table:
    """Medians of both sides and how many times less time (or more tokens) agentcache needs (or reuses)."""
    runs = f", medians of {len(ours)} runs" if len(ours) > 1 else ""
    line = ours[0].line
    table = Table(
        title=f"{line['agents']} agents x {line['turns']} turns{runs}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("")
    for heading in ("agentcache", "generate", "ratio") if baseline else ("agentcache",):
        table.add_column(heading, justify="right", no_wrap=True)
    a, b = medians(ours), medians(baseline)
    for key, label in _ROWS:
        cells = [_cell(key, a[key])]
        if baseline:
            timed = key.endswith("_s") and a[key] and b[key]
            cells += [_cell(key, b[key]), f"{(b[key] or 0) / (a[key] or 1):.1f} x" if timed else ""]
        table.add_row(label, *cells)
    return table


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    if not key.endswith("_s"):
        return f"{value:,.0f}"
    return f"{value:.1f} s" if key == "wall_s" else f"{1000 * value:,.0f} ms"


def agreement(ours: Sequence[Side], baseline: Sequence[Side]) -> str:
    """How many replies are the same text on both sides.

    A reply is part of the next prompt, so after the first difference an agent's later replies may differ as well.
    """
    pairs = [(one.replies, other.replies) for one, other in zip(ours, baseline, strict=True)]
    same = sum(mine.get(turn) == reply for mine, theirs in pairs for turn, reply in theirs.items())
    return f"{same} of {sum(len(theirs) for _, theirs in pairs)} replies are identical"


def _advise(console: Console) -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    console.print("For steady figures let nothing else run: both sides use every core.", highlight=False)
    if load > 0.3 * cores:
        console.print(
            f"The machine is busy now (load {load:.1f} on {cores} cores): the times below are not worth quoting.",
            style="yellow",
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="The agent workload through agentcache and through Hugging Face generate.",
        epilog="Options after -- go to agentcache serve.",
    )
    parser.add_argument("--model", default="smollm2", help="as for agentcache serve; default: %(default)s")
    parser.add_argument("--skip-baseline", action="store_true", help="only agentcache")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each side, in turns; default: %(default)s")
    parser.add_argument("serve_options", nargs="*", help=argparse.SUPPRESS)
    add_workload_options(parser)
    return parser


def _run_all(args: argparse.Namespace, console: Console) -> tuple[list[Side], list[Side]]:
    # The servers run in folders of their own, where a relative path would not lead anywhere.
    model = str(Path(args.model).resolve()) if Path(args.model).exists() else args.model
    ours: list[Side] = []
    baseline: list[Side] = []
    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="agentcache-bench-") as folder:
        comparison = Comparison(console, Path(folder), model, tuple(args.serve_options), spec_from(args))
        if args.workload:
            Workload.load(args.workload).save(comparison.workload)
        for _ in range(args.repeat):
            ours.append(comparison.serve_and_replay())
            if not args.skip_baseline:
                baseline.append(comparison.baseline())
    return ours, baseline


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, 1 when a run failed, 2 for a bad command line, 130 after Ctrl-C."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.repeat < 1:
        parser.error(f"--repeat: got {args.repeat}, expected at least 1")
    console, errors = Console(), Console(stderr=True)
    _advise(errors)
    try:
        ours, baseline = _run_all(args, errors)
    except (WorkloadError, ServerFailedError, RunFailedError, httpx.HTTPError) as error:
        errors.print(f"bench/compare.py: {error}", style="red", markup=False, highlight=False)
        return 2 if isinstance(error, WorkloadError) else 1
    except KeyboardInterrupt:
        return 130
    console.print(table_of(ours, baseline))
    if baseline:
        console.print(agreement(ours, baseline) + ".", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
