"""A replica is killed while agents and sessions are being answered: what each request saw."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

import httpx

from bench.cluster_parts.load import Client, LoadSpec, Tally, Told, first_model, open_sessions, run_agents, run_sessions
from bench.cluster_parts.programs import Cluster, Place, cluster


@dataclass(frozen=True)
class KillResult:
    """
    Attributes:
        agents: whole histories, while the replica was killed; what was cut was sent once more.
        sessions: turns of sessions, before, during and after.
        turns_kept: sessions that have every turn once afterwards.
        back_s: seconds until as many replicas were there as before.
    """

    agents: Tally
    sessions: Tally
    session_count: int
    turns_kept: int
    back_s: float


def killed(place: Place, spec: LoadSpec, count: int, sessions: int, told: Told) -> KillResult:
    with cluster(place, count) as up:
        return asyncio.run(_run(up, spec, count, sessions, told))


async def _run(up: Cluster, spec: LoadSpec, count: int, sessions: int, told: Told) -> KillResult:
    loop = asyncio.get_running_loop()
    async with httpx.AsyncClient(timeout=600, trust_env=False) as http:
        model = await first_model(http, up.url)
        agents, talks = (Client(http, [up.url], model, told) for _ in range(2))
        names = await open_sessions(talks, spec, sessions)
        await run_sessions(talks, spec, names, [0])
        before = set(up.names())
        load = asyncio.gather(run_agents(agents, spec, retry=True), run_sessions(talks, spec, names, [1, 2]))
        while len(agents.outcomes) < spec.requests // 4:
            await asyncio.sleep(0.02)
        pid = random.Random(spec.seed).choice(sorted(up.engines()))
        began = loop.time()
        up.engines()[pid].kill()
        await load
        await asyncio.to_thread(up.wait_for, count, before)
        back_s = loop.time() - began
        await run_sessions(talks, spec, names, [3])
        kept = 0
        for name in names:
            known = (await http.get(f"{up.url}/v1/sessions/{name}")).json()
            kept += len(known.get("turns", ())) == 4
        return KillResult(agents.tally, talks.tally, len(names), kept, back_s)


def firsts(tally: Tally) -> Tally:
    """Requests as they were sent first."""
    return replace(tally, outcomes=tuple(outcome for outcome in tally.outcomes if not outcome.again))


def retries(tally: Tally) -> Tally:
    return replace(tally, outcomes=tuple(outcome for outcome in tally.outcomes if outcome.again))
