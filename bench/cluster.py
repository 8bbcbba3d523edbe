"""What several servers do to hit rates, and what agents notice when one of them, or the store, dies.

    python bench/cluster.py --quick          # a few minutes
    python bench/cluster.py                  # all of it
    python bench/cluster.py --only hits kill
    python bench/cluster.py --simulate       # 64 replicas in virtual time, with the real router and cache

All servers share the cores of this machine, so hit rates and outcomes are what is measured here, and times only say what waits
for what.  Needs the packages of the extras ``ray`` and ``dev``.  Fails (exit status 1) when a hit rate is below the goal, a
request that was not in mid-stream failed, or a session lost a turn.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rich.console import Console
from rich.table import Table

from bench.cli import progress_bar
from bench.cluster_parts import hits, kills, sim, stores
from bench.cluster_parts.load import BROKEN, CUT, SERVED, LoadSpec, Tally
from bench.cluster_parts.programs import Place, ProgramFailedError
from bench.cluster_parts.sim import GOAL
from examples.agents.local_server import ending_on_signals

PARTS = ("hits", "moves", "kill", "store")


@dataclass
class Report:
    """What was found; ``faults`` are sentences."""

    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def expect(self, holds: bool, sentence: str) -> None:
        if not holds:
            self.faults.append(sentence)


@dataclass(frozen=True)
class Sizes:
    """How much of everything; ``replicas`` of the hit-rate part."""

    spec: LoadSpec
    replicas: tuple[int, ...]
    prefixes: int
    sessions: int
    prompts: int
    delays_ms: tuple[float, ...]


FULL = Sizes(LoadSpec(), (1, 2, 4), 24, 6, 4, (100, 1500))
QUICK = Sizes(
    LoadSpec(teams=4, agents=2, turns=3, shared_tokens=600, new_tokens=80, output_tokens=8, tool_s=2.0),
    (2,),
    8,
    3,
    2,
    (1500,),
)


class Bench:
    def __init__(self, place: Place, sizes: Sizes, console: Console) -> None:
        self.report = Report()
        self._place = place
        self._sizes = sizes
        self._console = console

    @contextmanager
    def _progress(self, text: str, total: int) -> Iterator[Callable[[], None]]:
        with progress_bar(self._console) as bar:
            task = bar.add_task(text, total=total)
            yield lambda: bar.advance(task)

    def hits(self) -> None:
        place, spec, sizes = self._place, self._sizes.spec, self._sizes
        rows: list[hits.HitRow] = []
        with self._progress("one server", spec.requests) as told:
            rows.append(hits.one_machine(place, spec, told))
        for count in (count for count in sizes.replicas if count > 1):
            with self._progress(f"round robin, {count}", spec.requests) as told:
                rows.append(hits.round_robin(place, spec, count, told))
        with self._progress("round robin and a store, 2", spec.requests) as told:
            rows.append(hits.round_robin(place, spec, 2, told, stores.folder_store(place.folder)))
        for count in sizes.replicas:
            with self._progress(f"agentcache up, {count}", spec.requests) as told:
                rows.append(hits.routed(place, spec, count, told))
        table = Table(
            "", "servers", "hit rate", "of one server's", "answered by each", "from the store", title="hit rates"
        )
        base = rows[0].tally.hit_rate
        for row in rows:
            share = row.tally.hit_rate / base if base else 0.0
            each = " ".join(str(count) for count in sorted(row.tally.replicas.values(), reverse=True))
            store = f"{row.tally.in_tier('store'):,} tokens" if row.tally.in_tier("store") else "-"
            table.add_row(row.name, str(row.replicas), f"{row.tally.hit_rate:.1%}", f"{share:.1%}", each, store)
            served = len(row.tally.served)
            self.report.expect(
                served == spec.requests, f"{row.name}, {row.replicas}: {served} of {spec.requests} were served"
            )
            if row.name == "agentcache up":
                self.report.expect(share >= GOAL, f"{row.replicas} replicas reach {share:.1%} of one server's hit rate")
        self._show(
            table,
            "hits",
            [{"name": row.name, "replicas": row.replicas, "hit_rate": row.tally.hit_rate} for row in rows],
        )

    def moves(self) -> None:
        count = max(self._sizes.replicas)
        with self._progress(f"prefixes that move, {count} replicas", 3 * self._sizes.prefixes) as told:
            found = hits.moves(self._place, self._sizes.spec, count, self._sizes.prefixes, told)
        total = len(found.before)
        table = Table(
            "", "prefixes", "share", "expected", title=f"a replica of {count} is killed, and another takes its place"
        )
        table.add_row(
            "were the dead replica's, and moved", str(found.of_dead), f"{found.of_dead / total:.0%}", f"{1 / count:.0%}"
        )
        table.add_row(
            "were another's, and moved all the same", str(found.strayed), f"{found.strayed / total:.0%}", "0%"
        )
        table.add_row(
            "new ones that went to the new replica",
            str(found.to_new),
            f"{found.to_new / total:.0%}",
            f"{1 / count:.0%}",
        )
        self.report.expect(not found.strayed, f"{found.strayed} prefixes of living replicas moved")
        self._show(
            table, "moves", {"of_dead": found.of_dead, "strayed": found.strayed, "to_new": found.to_new, "all": total}
        )

    def kill(self) -> None:
        spec = replace(self._sizes.spec, output_tokens=4 * self._sizes.spec.output_tokens, tool_s=0.5)
        count = 2
        with self._progress(f"kill -9 of one of {count}", spec.requests + 4 * self._sizes.sessions) as told:
            found = kills.killed(self._place, spec, count, self._sizes.sessions, told)
        table = Table(
            "requests", "sent", "served", CUT, BROKEN, "failed", title=f"kill -9 of one replica of {count} under load"
        )
        for name, tally in (
            ("whole histories", kills.firsts(found.agents)),
            ("the same, sent again", kills.retries(found.agents)),
            ("turns of sessions", kills.firsts(found.sessions)),
            ("the same, sent again", kills.retries(found.sessions)),
        ):
            hows = tally.hows
            failed = sum(hows.values()) - hows[SERVED] - hows[CUT] - hows[BROKEN]
            table.add_row(name, *map(str, (sum(hows.values()), hows[SERVED], hows[CUT], hows[BROKEN], failed)))
            self.report.expect(not failed, f"{name}: {failed} failed that were not in mid-stream: {dict(hows)}")
            self.report.expect(not hows[BROKEN], f"{name}: {hows[BROKEN]} streams broke off without a word")
        again = kills.retries(found.agents)
        self.report.expect(not again.unserved, "a turn that was cut could not be sent again")
        kept = f"{found.turns_kept} of {found.session_count}"
        self.report.expect(found.turns_kept == found.session_count, f"{kept} sessions have all their turns")
        self._show(table, "kill", {"agents": found.agents.hows, "sessions": found.sessions.hows, "kept": kept})
        said = f"{kept} sessions went on with all their turns; {count} replicas were there again after {found.back_s:.0f} s"
        if again.outcomes:
            said += f"; turns sent again found {again.hit_rate:.0%} of their prompts cached"
        self._console.print(said)

    def store(self) -> None:
        sizes = self._sizes
        delays = list(sizes.delays_ms)
        spec = sizes.spec
        total = (3 + len(delays)) * sizes.prompts * (stores.TIMES + 1)
        with self._progress("two servers and a store", total) as told:
            found = stores.phases(self._place, spec, sizes.prompts, delays, told)
        table = Table(
            "", "served", "failed", "cached at the other", "from the store", "first token", "the other", "its fetches",
            title="a prompt that one server has computed, asked of the other",
        )  # fmt: skip
        for phase in found:
            both = Tally((*phase.first.outcomes, *phase.second.outcomes))
            failed = both.unserved
            ended = ", ".join(f"{how} {count}" for how, count in phase.fetches.items() if count)
            table.add_row(
                phase.name, str(len(both.served)), str(failed), f"{phase.second.hit_rate:.0%}",
                f"{phase.second.in_tier('store'):,} tokens", f"{_cold(phase.first):.2f} s cold", f"{phase.second.ttft(50):.2f} s",
                ended or "-",
            )  # fmt: skip
            self.report.expect(not failed, f"{phase.name}: {failed} requests failed")
        near, gone = found[0], found[-1]
        self.report.expect(near.second.in_tier("store") > 0, "nothing was fetched from a store that is near")
        self.report.expect(len(gone.second.served) == sizes.prompts, "the service did not go on without its store")
        self._show(table, "store", [{"name": phase.name, "fetches": phase.fetches} for phase in found])

    def _show(self, table: Table, name: str, figures: Any) -> None:
        self._console.print(table)
        self.report.figures[name] = figures


def _cold(tally: Tally) -> float:
    """Median time to the first token of prompts that nobody had computed."""
    return Tally(tuple(outcome for outcome in tally.served if outcome.cached < 32)).ttft(50)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, and two replicas at most")
    parser.add_argument("--simulate", action="store_true", help="64 replicas in virtual time, and nothing else")
    parser.add_argument("--model", default="smollm2", help="what is served (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of each server (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of texts and of who is killed (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args(argv)
    if options.simulate:
        asked = ["--seed", str(options.seed)]
        if options.quick:
            asked += ["--replicas", "16", "--agents", "160", "--at-once", "128"]
        if options.json:
            asked += ["--json", str(options.json)]
        return sim.main(asked)
    console = Console(width=None if sys.stdout.isatty() else 120)
    sizes = QUICK if options.quick else FULL
    sizes = replace(sizes, spec=replace(sizes.spec, seed=options.seed))
    console.print(
        f"model {options.model}, {options.threads} thread(s) a server, {json.dumps(asdict(sizes.spec))}",
        highlight=False,
    )
    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="agentcache-bench-") as folder:
        bench = Bench(Place(Path(folder), options.model, options.threads), sizes, console)
        try:
            for part in options.only:
                getattr(bench, part)()
        except ProgramFailedError as error:
            bench.report.faults.append(str(error))
        except KeyboardInterrupt:
            return 130
    if options.json:
        options.json.write_text(json.dumps(bench.report.figures, indent=1), "utf-8")
    for fault in bench.report.faults:
        console.print(f"not as it should be: {fault}", markup=False)
    return 1 if bench.report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
