"""A cluster without Ray: replicas and ingress on one event loop, behind a real uvicorn; what passes between them is pickled."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from live import in_a_thread

from agentcache.ray.exchange import Sent
from agentcache.ray.ingress import Ingress
from agentcache.ray.parts import Call, News, NoReplicaError, Part, ReplicaLostError, Taken, Trailer, Whole
from agentcache.ray.replica import EngineReplica
from agentcache.ray.settings import ClusterSettings
from agentcache.ray.vault import VaultRecords
from agentcache.routing.profile import ModelProfile
from agentcache.server.serve import address_of, listen
from agentcache.sessions.vault import Kept, RecordName
from agentcache.settings import Settings


def sent_over(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


class SharedVault:
    """What ``vault.ActorVault`` is without the actor."""

    lasting = False

    def __init__(self) -> None:
        self.records = VaultRecords(2**24)

    async def load(self, name: RecordName) -> Kept | None:
        return self.records.load(name)

    async def save(self, name: RecordName, record: bytes, expected: int, ttl_s: float) -> bool:
        return self.records.save(name, record, expected, ttl_s)

    async def ids_of(self, owner: bytes) -> list[str]:
        return self.records.ids_of(owner)

    async def close(self) -> None: ...


ALL = "all"


@dataclass
class ReplicasHere:
    """``Replicas`` on this event loop.

    Attributes:
        dying: replicas that die under their next request, and behind how many batches of its answer; ``ALL``: the answer is
            whole, and nobody hears of it.
        hanging: replicas that take requests and say nothing more.
        asked: requests that each replica took.
    """

    replicas: dict[str, EngineReplica] = field(default_factory=dict)
    dying: dict[str, Any] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    asked: dict[str, list[Sent]] = field(default_factory=dict)

    async def ask(self, call: Call) -> AsyncIterator[Sequence[Part]]:
        while not self.replicas:
            await asyncio.sleep(0.01)  # as Ray's router waits
        name = call.choose(list(self.replicas))[0][0]
        self.asked.setdefault(name, []).append(call.sent)
        if name in self.hanging:
            yield [Taken(name)]
            while name in self.hanging:
                await asyncio.sleep(0.01)
        parts = self.replicas[name].exchange(sent_over(call))
        told = 0
        try:
            async for batch in parts:
                if self.dying.get(name) == told:
                    self.replicas.pop(name, None)
                if name not in self.replicas:
                    raise ReplicaLostError("its actor died", name)
                if self.dying.get(name) == ALL:
                    if isinstance(batch[-1], Trailer):
                        self.replicas.pop(name)
                        raise ReplicaLostError("its actor died", name)
                    if isinstance(batch[0], Taken):
                        yield sent_over(batch)
                    continue
                yield sent_over(batch)
                told += 1
        finally:
            await parts.aclose()

    async def ask_all(self, sent: Sent) -> list[Whole]:
        return [sent_over(await replica.whole(sent_over(sent))) for replica in list(self.replicas.values())]

    async def news(self, cursors: Mapping[str, Any]) -> list[News]:
        speaking = [replica for name, replica in self.replicas.items() if name not in self.hanging]
        return [sent_over(await replica.news(sent_over(cursors))) for replica in speaking]

    async def profile(self) -> ModelProfile:
        for replica in self.replicas.values():
            return sent_over(await replica.profile())
        raise NoReplicaError("none")


@dataclass
class Cluster:
    url: str
    http: httpx.Client
    here: ReplicasHere
    ingress: Ingress
    loop: asyncio.AbstractEventLoop
    all: dict[str, EngineReplica]
    vault: SharedVault
    lines: list[str]

    def on_loop(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def revive(self) -> None:
        """All replicas are there, and none is dying or hangs."""
        self.here.dying.clear()
        self.here.hanging.clear()
        self.here.replicas.update(self.all)

    def know(self) -> None:
        """The ingress learns all that there is to know now."""
        self.on_loop(self.ingress.steering.look())

    def replica(self, reply: httpx.Response) -> str:
        return reply.headers["x-agentcache-replica"]

    def running(self) -> int:
        return sum(self.http.get(f"/replicas/{name}/v1/cache").json()["running"] for name in self.here.replicas)


class _Whole:
    """The ingress as an application whose life is also that of its replicas."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._cluster.ingress(scope, receive, send)
            return
        self._cluster.loop = asyncio.get_running_loop()
        for replica in self._cluster.all.values():
            await replica.start()

        async def last_of_all(message: Any) -> None:
            if message["type"] == "lifespan.shutdown.complete":
                for replica in self._cluster.all.values():
                    await replica.stop()
            await send(message)

        await self._cluster.ingress(scope, receive, last_of_all)


@contextmanager
def cluster_here(folder: Path, names: Sequence[str] = ("r1", "r2"), **fields: Any) -> Iterator[Cluster]:
    """Replicas of ``folder``; ``fields`` are of ``Settings``, or of ``ClusterSettings``."""
    mine = {name: value for name, value in fields.items() if name in ClusterSettings.model_fields}
    others = {"device": "cpu", "dtype": "float32", "threads": 1, "num_pages": 128, "access_log": "off"}
    others |= {name: value for name, value in fields.items() if name not in mine}
    settings = Settings(model=str(folder), model_names=("tiny",), enable_test_hooks=True, **others)
    vault = SharedVault()
    all_of_them = {name: EngineReplica(settings.model_copy(update={"replica": name}), vault) for name in names}
    here = ReplicasHere(dict(all_of_them))
    lines: list[str] = []
    ingress = Ingress(here, settings, ClusterSettings(**mine), lines.append)
    listener = listen("127.0.0.1", 0)
    url = address_of(listener)
    with httpx.Client(base_url=url, timeout=60) as http:
        cluster = Cluster(url, http, here, ingress, None, all_of_them, vault, lines)  # type: ignore[arg-type]
        server = uvicorn.Server(uvicorn.Config(_Whole(cluster), log_level="warning", lifespan="on"))
        deadline = time.monotonic() + 60
        with in_a_thread(server, listener, begin_s=60, end_s=30):
            while ingress.steering._reader is None:
                assert time.monotonic() < deadline, "the cluster did not start"
                time.sleep(0.01)
            yield cluster
