"""Run a cluster on this machine: every process of a file, with one log, until Ctrl-C.

    python examples/cluster/run.py examples/cluster/replicas.toml
    python examples/cluster/run.py examples/cluster/gateway.toml --set model=/path/to/model

Processes start in the order of the file, each when the one before it is ready.  Ctrl-C or SIGTERM stops them in reverse; a second
one kills what is left.  Exit codes: 0 stopped, 1 a process did not start or none is left, 2 the file describes no cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.cluster.plan import PlanError, ProcessPlan, built_in, read_plan
from examples.cluster.processes import OWN, Cluster, StartFailedError

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")


class Log:
    """Lines of several processes on one console, each behind the name of the process that wrote it."""

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self._console = console
        self._width = max(map(len, (*names, OWN)))
        self._colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}

    def __call__(self, name: str, line: str) -> None:
        style = self._colours.get(name, "bold")
        text = Text.assemble((f"{name:{self._width}} | ", style), Text.from_ansi(line))
        self._console.print(text, soft_wrap=True)


async def run(plans: Sequence[ProcessPlan], console: Console) -> int:
    """Start the cluster, keep it until a signal comes or nothing is left, and stop it; returns the exit code."""
    say = Log(console, [plan.name for plan in plans])
    if missing := [sentence for plan in plans if (sentence := plan.missing())]:
        for sentence in missing:
            say(OWN, f"not started: {sentence}")
        return 1
    cluster = Cluster(plans, say)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopping.is_set():
            cluster.kill()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    told = asyncio.create_task(stopping.wait())
    code = 0
    try:
        work = asyncio.create_task(_keep(cluster, say))
        await asyncio.wait([work, told], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            say(OWN, "stopping")
            work.cancel()
        try:
            await work
            say(OWN, "no process is left")
            code = 1
        except asyncio.CancelledError:
            pass
        except StartFailedError as error:
            say(OWN, f"not started: {error}")
            code = 1
    finally:
        await cluster.stop()
        told.cancel()
    return code


async def _keep(cluster: Cluster, say: Log) -> None:
    await cluster.start()
    say(OWN, "everything is ready; Ctrl-C stops it")
    await cluster.wait()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run every process of a file, with one log, until Ctrl-C.")
    parser.add_argument("file", type=Path, help="what there is to run, such as examples/cluster/replicas.toml")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="changes", help="change a variable of the file"
    )
    parser.add_argument(
        "--work", type=Path, help="folder for files of the run (default: a new one, removed at the end)"
    )
    parser.add_argument("--check", action="store_true", help="only print the commands")
    options = parser.parse_args(argv)
    console = Console(highlight=False)
    pairs = [change.partition("=") for change in options.changes]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        parser.error(f"--set: got {wrong[0]!r}, expected NAME=VALUE")
    with tempfile.TemporaryDirectory(prefix="agentcache-cluster-") as folder:
        work = options.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        try:
            plans = read_plan(options.file, built_in(work), {name: value for name, _, value in pairs})
        except PlanError as error:
            Console(stderr=True, highlight=False, markup=False).print(f"error: {error}", soft_wrap=True)
            return 2
        if options.check:
            for plan in plans:
                console.print(f"{plan.name}: {shlex.join(plan.command)}", markup=False, soft_wrap=True)
            return 0
        return asyncio.run(run(plans, console))


if __name__ == "__main__":
    sys.exit(main())
