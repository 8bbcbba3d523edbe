"""How much of all prompts is cached: by replicas behind a router, by ones that are asked in turn, and by one machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import httpx

from bench.cluster_parts.load import Client, LoadSpec, Tally, Told, first_model, run_agents, system_of, texts
from bench.cluster_parts.programs import Place, cluster, servers


@dataclass(frozen=True)
class HitRow:
    """One way to serve the load."""

    name: str
    replicas: int
    tally: Tally


def measured(urls: Sequence[str], spec: LoadSpec, told: Told) -> Tally:
    """The load against ``urls``, each asked in turn."""

    async def run() -> Tally:
        async with httpx.AsyncClient(timeout=600, trust_env=False) as http:
            client = Client(http, urls, await first_model(http, urls[0]), told)
            await run_agents(client, spec)
            return client.tally

    return asyncio.run(run())


def one_machine(place: Place, spec: LoadSpec, told: Told) -> HitRow:
    with servers(place, 1) as made:
        return HitRow("one server", 1, measured([made[0].url], spec, told))


def round_robin(place: Place, spec: LoadSpec, count: int, told: Told, store: str | None = None) -> HitRow:
    options = () if store is None else ("--store", store)
    with servers(place, count, *options) as made:
        tally = measured([server.url for server in made], spec, told)
    return HitRow("round robin" if store is None else "round robin, shared store", count, tally)


def routed(place: Place, spec: LoadSpec, count: int, told: Told) -> HitRow:
    with cluster(place, count) as up:
        return HitRow("agentcache up", count, measured([up.url], spec, told))


@dataclass(frozen=True)
class Moves:
    """What a replica that was killed, and the one that Ray put in its place, did to prefixes that were known.

    Attributes:
        dead: the replica that was killed.
        before, after: by prefix, who answered for it.
        fresh: by prefix that nobody had seen, who answered for it when the new replica was there.
        new: the replica in the place of the dead one.
    """

    dead: str
    before: dict[str, str]
    after: dict[str, str]
    fresh: dict[str, str]
    new: str

    @property
    def of_dead(self) -> int:
        return sum(replica == self.dead for replica in self.before.values())

    @property
    def strayed(self) -> int:
        """Prefixes of living replicas that were answered by another one afterwards."""
        stayed = (name for name, replica in self.before.items() if replica != self.dead)
        return sum(self.after[name] != self.before[name] for name in stayed)

    @property
    def to_new(self) -> int:
        return sum(replica == self.new for replica in self.fresh.values())


def moves(place: Place, spec: LoadSpec, count: int, prefixes: int, told: Told) -> Moves:
    """Ask for ``prefixes`` prompts, kill a replica, ask again, and for as many new ones."""
    with cluster(place, count) as up:
        before = _asked(up.url, spec, prefixes, told)
        names = set(up.names())
        pid = random.Random(spec.seed).choice(sorted(up.engines()))
        up.engines()[pid].kill()
        after_names = set(up.wait_for(count, other_than=names))
        dead, new = (names - after_names).pop(), (after_names - names).pop()
        after = _asked(up.url, spec, prefixes, told)
        fresh = _asked(up.url, replace(spec, seed=spec.seed + 1000), prefixes, told)
    return Moves(dead, before, after, fresh, new)


def _asked(url: str, spec: LoadSpec, prefixes: int, told: Told) -> dict[str, str]:
    """By prefix, who answered for it; one after the other, so that nobody is too busy."""

    async def run() -> dict[str, str]:
        workload = texts(spec)
        async with httpx.AsyncClient(timeout=600, trust_env=False) as http:
            client = Client(http, [url], await first_model(http, url), told)
            for number in range(prefixes):
                messages = [system_of(spec, workload, number), workload.user_message(0, 0)]
                await client.ask(f"prefix {spec.seed}.{number}", {"messages": messages, "max_tokens": 1})
            return {outcome.agent: outcome.replica for outcome in client.outcomes}

    return asyncio.run(run())
