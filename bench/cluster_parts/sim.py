"""Simulate many replicas: the real router, feeds and cache, a clock in place of a model.

    python -m bench.cluster_parts.sim [--replicas 64] [--agents 640] [--pages 820] [--seed 1] [--json FILE]

Agents send their growing transcripts (``sim_traffic``); replicas compute prompts one after the other (``sim_replica``); each of
two ingresses knows what it sent itself, what answers brought along, and what each replica says once a second.

1. The same traffic on one machine with as much memory as all replicas together, on the replicas with the real router, and on
   them with rules that know nothing of pages.
2. While it runs, half of the agents that begin have a new system prompt, a replica joins, one is taken out of service, one dies.

From one seed every run is the same.  Takes under a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from agentcache.routing.keys import RoutingKey
from bench.cluster_parts.sim_placement import Placement, Routed, at_random, by_session, round_robin
from bench.cluster_parts.sim_replica import Speed
from bench.cluster_parts.sim_run import Clock, Cluster, Outcome, Simulation
from bench.cluster_parts.sim_traffic import Traffic

GOAL = 0.95
"""Of one machine's hit rate."""
_PROBES = 2_000


@dataclass(frozen=True, slots=True)
class Line:
    """One run of the comparison; times in seconds, balances as the busiest replica over the mean."""

    name: str
    turns: int
    hit_rate: float
    requests_balance: float
    work_balance: float
    ttft_p50: float
    ttft_p99: float


@dataclass(frozen=True, slots=True)
class Change:
    """What a change did.

    Attributes:
        prompts_moved: share of prompts that nobody has which have another replica now.
        agents_moved: share of living conversations that would go elsewhere now.
        before, after: hit rate in the half minute before and after.
        ttft_p99: seconds, in the half minute after.
    """

    name: str
    replicas: int
    prompts_moved: float
    agents_moved: float
    before: float
    after: float
    ttft_p99: float


@dataclass(frozen=True, slots=True)
class Hot:
    """Turns of the agents with the new system prompt: how many, by how many replicas, and how they were served."""

    turns: int
    replicas: int
    hit_rate: float
    ttft_p99: float


@dataclass(frozen=True, slots=True)
class Report:
    lines: list[Line]
    changes: list[Change]
    hot: Hot
    retried: int

    @property
    def share(self) -> float:
        """The router's hit rate as a share of one machine's."""
        rates = {line.name: line.hit_rate for line in self.lines}
        return rates["prefix router"] / rates["one machine"]


def simulate(cluster: Cluster, traffic: Traffic, told: Callable[[str], None] = lambda _: None) -> Report:
    """Everything; ``told`` is what runs now."""
    speed = cluster.speed
    whole = Cluster(1, cluster.pages * cluster.replicas, Speed(speed.prefill * cluster.replicas, speed.token_s))
    size = traffic.page_size
    runs: list[tuple[str, Cluster, Callable[[Clock], Placement]]] = [
        ("one machine", whole, lambda clock: by_session()),
        ("prefix router", cluster, lambda clock: Routed(clock, size)),
        ("prefix router, replies re-tokenised", cluster, lambda clock: Routed(clock, size, drift=True)),
        ("rendezvous by session", cluster, lambda clock: by_session()),
        ("random", cluster, lambda clock: at_random(traffic.seed)),
        ("round robin", cluster, lambda clock: round_robin()),
    ]
    lines = []
    for name, where, make in runs:
        told(name)
        lines.append(_line(name, Simulation(where, traffic, make).run()))
    told("changes")
    changes, outcome = _changes(cluster, traffic)
    hot = Outcome([turn for turn in outcome.turns if turn.hot])
    served = len({turn.replica for turn in hot.turns})
    return Report(lines, changes, Hot(len(hot.turns), served, hot.hit_rate(), hot.ttft(99)), outcome.retried)


def _line(name: str, outcome: Outcome) -> Line:
    replicas = len(outcome.work)
    requests = Counter(turn.replica for turn in outcome.turns)
    return Line(
        name,
        len(outcome.turns),
        outcome.hit_rate(),
        _balance(requests, replicas),
        _balance(outcome.work, replicas),
        outcome.ttft(50),
        outcome.ttft(99),
    )


def _balance(counts: Counter[str], replicas: int) -> float:
    """What the busiest of ``replicas`` had, over the mean of all."""
    return max(counts.values()) * replicas / counts.total()


class _Changes:
    """A run with changes at set times, and what moves in each."""

    window_s = 30.0

    def __init__(self, cluster: Cluster, traffic: Traffic) -> None:
        hot = replace(traffic, hot_from=traffic.at_once)
        self.simulation = Simulation(cluster, hot, lambda clock: Routed(clock, traffic.page_size))
        placement = self.simulation.placement
        assert isinstance(placement, Routed)
        self._routed = placement
        self._noted: list[tuple[str, float, int, float, float]] = []
        rng = random.Random(f"{traffic.seed} probes")
        chains = [(rng.randbytes(16), rng.randbytes(16)) for _ in range(_PROBES)]
        self._probes = [RoutingKey(chain, 2 * traffic.page_size) for chain in chains]

    def at(self, time: float, name: str, change: Callable[[], None]) -> None:
        def run() -> None:
            probes, agents = self._places()
            change()
            probes_now, agents_now = self._places()
            moved = sum(before != now for before, now in zip(probes, probes_now, strict=True)) / len(probes)
            gone = sum(agents_now[agent] != place for agent, place in agents.items()) / max(1, len(agents))
            self._noted.append((name, time, len(self._routed.ingresses[0].router.replicas()), moved, gone))

        self.simulation.later(time, run)

    def _places(self) -> tuple[list[str | None], dict[str, str | None]]:
        """Whom each probe belongs to when nobody is busy, and where each living conversation would go."""
        router = self._routed.ingresses[0].router
        agents = self.simulation.alive.values()
        return (
            [router.home(probe) for probe in self._probes],
            {agent.name: router.rank(self._routed.key(agent)).first for agent in agents if agent.steps},
        )

    def results(self) -> list[Change]:
        outcome, window = self.simulation.outcome, self.window_s
        return [
            Change(
                name,
                count,
                probes,
                agents,
                outcome.hit_rate(time - window, time),
                outcome.hit_rate(time, time + window),
                outcome.ttft(99, time, time + window),
            )
            for name, time, count, probes, agents in self._noted
        ]


def _changes(cluster: Cluster, traffic: Traffic) -> tuple[list[Change], Outcome]:
    run = _Changes(cluster, traffic)
    length = traffic.tool_s * traffic.turns * max(2.0, traffic.sessions / traffic.at_once)
    begin = 1.5 * traffic.tool_s * traffic.turns
    step = max(10.0, (length - begin) / 3)
    simulation = run.simulation
    run.at(begin, "a replica joins", lambda: simulation.join("new"))
    run.at(begin + step, "a replica leaves", lambda: simulation.leave("r0"))
    run.at(begin + 2 * step, "a replica dies", lambda: simulation.kill("r1"))
    outcome = simulation.run()
    return run.results(), outcome


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 120)
    cluster = Cluster(options.replicas, options.pages)
    traffic = Traffic(sessions=options.agents, at_once=options.at_once, seed=options.seed)
    with console.status("…") as status:
        report = simulate(cluster, traffic, status.update)
    console.print(_comparison(report, cluster, traffic))
    console.print(_change_table(report))
    console.print(_verdict(report))
    if options.json:
        figures = asdict(report) | {"share_of_one_machine": report.share}
        options.json.write_text(json.dumps(figures, indent=1), "utf-8")
    return 0 if report.share >= GOAL else 1


def _parser() -> argparse.ArgumentParser:
    cluster, traffic = Cluster(), Traffic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=cluster.replicas, help="default: %(default)s")
    parser.add_argument(
        "--pages", type=int, default=cluster.pages, help="of each replica, 64 tokens each; default: %(default)s"
    )
    parser.add_argument("--agents", type=int, default=traffic.sessions, help="default: %(default)s")
    parser.add_argument(
        "--at-once", type=int, default=traffic.at_once, help="agents alive at a time; default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=traffic.seed, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="write all figures there")
    return parser


def _comparison(report: Report, cluster: Cluster, traffic: Traffic) -> Table:
    memory = cluster.replicas * cluster.pages * traffic.page_size
    title = f"{cluster.replicas} replicas, {report.lines[0].turns:,} turns, {memory / 1e6:.1f} million tokens of cache in all"
    caption = "balance: the busiest replica over the mean, by requests and by tokens computed"
    names = ("cached", "of one machine", "balance", "work", "first token p50", "p99")
    table = _table(title, caption, names)
    best = report.lines[0].hit_rate
    for line in report.lines:
        table.add_row(
            line.name,
            f"{line.hit_rate:.1%}",
            f"{line.hit_rate / best:.1%}",
            f"{line.requests_balance:.2f}",
            f"{line.work_balance:.2f}",
            f"{line.ttft_p50:.3f} s",
            f"{line.ttft_p99:.3f} s",
        )
    return table


def _change_table(report: Report) -> Table:
    title = "half of those who begin have a new system prompt; meanwhile"
    caption = "prompts: that nobody has yet; cached: in the half minute before and after"
    names = ("replicas", "prompts moved", "1/N", "agents moved", "cached before", "after", "first token p99")
    table = _table(title, caption, names)
    for change in report.changes:
        table.add_row(
            change.name,
            str(change.replicas),
            f"{change.prompts_moved:.2%}",
            f"{1 / (change.replicas + (change.name != 'a replica joins')):.2%}",
            f"{change.agents_moved:.2%}",
            f"{change.before:.1%}",
            f"{change.after:.1%}",
            f"{change.ttft_p99:.3f} s",
        )
    return table


def _table(title: str, caption: str, figures: Sequence[str]) -> Table:
    """Its first column says what a row is about; ``figures`` are the names of the others."""
    columns = (Column(name, justify="right") for name in figures)
    return Table("", *columns, title=title, caption=caption)


def _verdict(report: Report) -> str:
    hot = report.hot
    told = (
        f"the new system prompt: {hot.turns:,} turns on {hot.replicas} replicas, {hot.hit_rate:.1%} cached, first token p99 "
        f"{hot.ttft_p99:.3f} s"
    )
    met = "met" if report.share >= GOAL else "MISSED"
    return (
        f"{told}\nturns that were on the replica that died, and were sent again: {report.retried}\n"
        f"{report.share:.1%} of one machine's hit rate (goal: {GOAL:.0%}, {met})"
    )


if __name__ == "__main__":
    sys.exit(main())
