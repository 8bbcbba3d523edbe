"""Two servers and the store that they share: near, far away, and killed.

In every phase each of some prompts, new ones each time, is asked three times at the first server, which writes its pages to the
store when they are used again, and then once at the second, which has never seen it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.cluster_parts.load import Client, LoadSpec, Tally, Told, first_model, system_of, texts
from bench.cluster_parts.programs import Place, Program, Server, servers, valkey
from bench.cluster_parts.slow_proxy import Line, ProxyProcess

TIMES = 3
FETCHES = "agentcache_store_fetches_total"
_SETTLE_S = 1.0
_CHANGED_S = 0.1
"""Until the proxy does as it was told."""
_STALE_S = 6.0
"""A closed gate looks again when what it knows is so old."""


@dataclass(frozen=True)
class Phase:
    """
    Attributes:
        first, second: requests to the server that computed the prompts, and to the other one.
        fetches: of the second server, by outcome.
    """

    name: str
    first: Tally
    second: Tally
    fetches: dict[str, int]


def phases(place: Place, spec: LoadSpec, prompts: int, delays_ms: list[float], told: Told) -> list[Phase]:
    with valkey(place.folder) as (store, port), ProxyProcess(place.folder, "127.0.0.1", port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        with servers(place, 2, "--store", url) as made:
            run = _Phases(made, spec, prompts, told, proxy)
            found = [run.phase("store near", Line())]
            found += [run.phase(f"answers late by {delay:g} ms", Line(delay)) for delay in delays_ms]
            time.sleep(_STALE_S)
            found.append(run.phase("near again", Line()))
            found.append(run.phase("killed in the middle", Line(), kill=store))
            return found


class _Phases:
    def __init__(self, made: list[Server], spec: LoadSpec, prompts: int, told: Told, proxy: ProxyProcess) -> None:
        self._proxy = proxy
        self._servers = made
        self._spec = spec
        self._prompts = prompts
        self._told = told
        self._number = 0

    def phase(self, name: str, line: Line, kill: Program | None = None) -> Phase:
        """
        Args:
            line: to the store, while the second server is asked; pages are written over a good one.
            kill: ended when half of the prompts were asked.
        """
        self._number += 1
        spec = replace(self._spec, seed=self._spec.seed + 100 * self._number)
        before = fetches(self._servers[1].url)
        first, second = asyncio.run(self._run(spec, line, kill))
        after = fetches(self._servers[1].url)
        return Phase(name, first, second, {how: count - before.get(how, 0) for how, count in after.items()})

    async def _run(self, spec: LoadSpec, line: Line, kill: Program | None) -> tuple[Tally, Tally]:
        async with httpx.AsyncClient(timeout=600, trust_env=False) as http:
            model = await first_model(http, self._servers[0].url)
            first, second = (Client(http, [server.url], model, self._told) for server in self._servers)
            workload = texts(spec)
            for number in range(self._prompts):
                messages = [system_of(spec, workload, number), workload.user_message(0, 0)]
                body = {"messages": messages, "max_tokens": spec.output_tokens}
                for _ in range(TIMES):
                    await first.ask(f"{spec.seed}.{number}", body)
                await asyncio.sleep(_SETTLE_S)  # pages are written behind
                if kill is not None and number == self._prompts // 2:
                    kill.kill()
                self._proxy.change(line)
                await asyncio.sleep(_CHANGED_S)
                await second.ask(f"{spec.seed}.{number}", body)
                self._proxy.change(Line())
            return first.tally, second.tally


def fetches(url: str) -> dict[str, int]:
    """How fetches from the store ended so far, as the server's metrics have it."""
    text = httpx.get(f"{url}/metrics", timeout=10, trust_env=False).raise_for_status().text
    return {
        sample.labels.get("outcome", ""): int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == FETCHES
    }


def folder_store(folder: Path) -> str:
    """URL of a store in a folder of its own."""
    return (folder / f"store-{time.time_ns()}").absolute().as_uri()
