"""Compare orders of admission: the real scheduler and cache, a cost model in place of a model, virtual time.

    python -m bench.scheduler_sim [--plots FOLDER] [--json]
    python -m bench.scheduler_sim --trace agents --steps 84 --sessions 10000 --at-once 300 --pages 1000000 --page-size 16

Nine of ten requests of the ``open`` trace continue a cached context, one of ten is cold; the ``agents`` trace is sessions of
many steps with tool calls in between (``bench/sim_scheduler/traces.py``).  The default run takes about two minutes; from one
seed, every run is the same but for the processor times.  Plots need ``pip install '.[bench]'``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentcache.scheduler.policy import POLICIES
from agentcache.scheduler.scheduler import Limits
from bench.sim_scheduler.runs import Result, Setup, nearest, run
from bench.sim_scheduler.step import StepCost, measure_steps
from bench.sim_scheduler.traces import TraceShape

_SHAPE_FLAGS = (
    "context", "appended", "generated", "page_size", "requests", "rate", "cold_share", "cold", "contexts", "sessions",
    "at_once", "steps", "shared", "tool_s",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 140)
    results = []
    for setup in _setups(options):
        with console.status(f"{setup.trace}: {_name(setup)}"):
            results.append(run(setup))
    steps = measure_steps() if options.step else []
    if options.json:
        print(json.dumps({"runs": [_as_json(result) for result in results], "steps": [s.as_json() for s in steps]}))
    else:
        for trace in dict.fromkeys(result.setup.trace for result in results):
            console.print(_table([result for result in results if result.setup.trace == trace]))
        if steps:
            console.print(_step_table(steps))
    if options.plots is not None:
        from bench.sim_scheduler.plots import plot

        for path in plot(results, options.plots):
            console.print(f"wrote {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", choices=("open", "agents"), action="append", help="default: both")
    parser.add_argument("--policy", choices=tuple(POLICIES), action="append", help="default: all")
    parser.add_argument("--pages", type=int, help="default: 300,000 (open), 100,000 (agents)")
    parser.add_argument("--token-budget", type=int, default=4096, help="default: %(default)s")
    parser.add_argument("--max-running", type=int, default=256, help="default: %(default)s")
    parser.add_argument("--max-overtakes", type=int, default=Limits(1, 1, 1).max_overtakes, help="default: %(default)s")
    parser.add_argument("--no-programs", action="store_true", help="turns do not say which session they belong to")
    parser.add_argument("--no-step", dest="step", action="store_false", help="leave out the cost of one step")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--plots", type=Path, help="folder for PNG files")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    shape = parser.add_argument_group("traffic (means in tokens and seconds)")
    for field in fields(TraceShape):
        if field.name in _SHAPE_FLAGS:
            flag = "--" + field.name.replace("_", "-")
            shape.add_argument(flag, type=type(field.default), default=field.default, help="default: %(default)s")
    return parser


def _setups(options: argparse.Namespace) -> list[Setup]:
    shape = TraceShape(**{name: getattr(options, name) for name in _SHAPE_FLAGS})
    limits = Limits(options.token_budget, options.max_running, max_waiting=10**9, max_overtakes=options.max_overtakes)
    pages = {"open": options.pages or 300_000, "agents": options.pages or 100_000}
    setups = []
    for trace in options.trace or ("open", "agents"):
        for policy in options.policy or ("fcfs", "longest-prefix", "hrrn"):
            setup = Setup(trace, policy, shape, pages[trace], limits, options.seed, programs=not options.no_programs)
            setups.append(setup)
        if trace == "agents" and "hrrn" in (options.policy or POLICIES) and not options.no_programs:
            setups.append(replace(setups[-1], policy="hrrn", programs=False))
    return setups


def _name(setup: Setup) -> str:
    return setup.policy if setup.programs or setup.trace == "open" else f"{setup.policy}, no programs"


def _table(results: list[Result]) -> Table:
    first = results[0].setup
    table = Table(title=f"trace {first.trace}: {len(results[0].ttft)} requests, {first.num_pages:,} pages")
    table.add_column("policy")
    for name in (
        "mean s", "p50 s", "p90 s", "p99 s", "cold p99 s", "requests/s", "cached", "overtaken", "preempted", "step s",
        "session s", "CPU/step ms",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for result in results:
        cpu = result.step_cpu
        table.add_row(
            _name(result.setup),
            *(f"{value:.2f}" for value in (result.mean, *(result.percentile(p) for p in (50, 90, 99)))),
            f"{max(result.percentile(99, kind) for kind in ('cold', 'first', 'compacted')):.2f}",
            f"{result.requests_per_s:.3f}",
            f"{result.hit_rate:.1%}",
            str(result.overtaken),
            str(result.preemptions),
            f"{result.longest_gap:.2f}",
            f"{nearest(result.sessions_s, 50):.0f}" if result.sessions_s else "",
            f"{1e3 * sum(cpu) / len(cpu):.2f} (p99 {1e3 * nearest(cpu, 99):.1f})",
        )
    table.caption = (
        "seconds to the first token; overtaken: most often that one request was; step: the longest in which anybody decoded; "
        "session: median from its first request to its last token; CPU: planning and committing"
    )
    return table


def _step_table(steps: list[StepCost]) -> Table:
    table = Table(title="one step of the scheduler: 256 run, 1,000 wait", caption="goal: under 2 ms")
    for name in ("step", "plan ms", "commit ms", "both ms", "both, p99 ms"):
        table.add_column(name, justify="left" if name == "step" else "right")
    for step in steps:
        row = (step.plan_ms, step.commit_ms, step.both_ms, step.both_p99_ms)
        table.add_row(step.name, *(f"{value:.2f}" for value in row))
    return table


def _as_json(result: Result) -> dict[str, object]:
    cpu = result.step_cpu
    return {
        "trace": result.setup.trace,
        "policy": _name(result.setup),
        "requests": len(result.ttft),
        "ttft_mean_s": result.mean,
        **{f"ttft_p{p}_s": result.percentile(p) for p in (50, 90, 99)},
        "requests_per_s": result.requests_per_s,
        "hit_rate": result.hit_rate,
        "most_overtaken": result.overtaken,
        "preemptions": result.preemptions,
        "longest_step_s": result.longest_gap,
        "steps": result.steps,
        "cpu_per_step_ms": 1e3 * sum(cpu) / len(cpu),
    }


if __name__ == "__main__":
    sys.exit(main())
