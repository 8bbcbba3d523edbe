"""Two servers, one vault, clients that do not know of each other: a session has one history, of just the acknowledged changes."""

from __future__ import annotations

import random
import threading
from array import array
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from memory_vault import MemoryVault
from session_calls import HttpCalls, asked, random_ids, raw_body, said

from agentcache.sessions.records import Kind, _unpack
from agentcache.sessions.vault import Kept, RecordName, SessionVault
from agentcache.store.opening import open_store
from agentcache.store.vault import StoreVault

THREADS = 4


@dataclass
class Watched:
    """A vault whose successful writes are noted."""

    inner: SessionVault
    history: dict[RecordName, dict[int, bytes]]
    lock: threading.Lock
    lasting: bool = True

    async def load(self, name: RecordName) -> Kept | None:
        return await self.inner.load(name)

    async def save(self, name: RecordName, record: bytes, expected: int, ttl_s: float) -> bool:
        written = await self.inner.save(name, record, expected, ttl_s)
        if written:
            with self.lock:
                versions = self.history.setdefault(name, {})
                assert expected + 1 not in versions, "a version was written twice"
                versions[expected + 1] = record
        return written

    async def ids_of(self, owner: bytes) -> list[str]:
        return await self.inner.ids_of(owner)

    async def close(self) -> None:
        await self.inner.close()


@dataclass
class Client:
    """Does things at random, and notes what it was told."""

    members: list[HttpCalls]
    sessions: list[str]
    rng: random.Random
    number: int
    steps: int
    told: dict[str, list[int]] = field(default_factory=dict)
    """turn_id -> the transcript behind that turn, of turns that were acknowledged."""
    refused: set[str] = field(default_factory=set)
    statuses: list[int] = field(default_factory=list)

    def run(self) -> None:
        for step in range(self.steps):
            member, session = self.rng.choice(self.members), self.rng.choice(self.sessions)
            draw = self.rng.random()
            if draw < 0.6:
                self.turn(member, session, f"{self.number}.{step}")
            elif draw < 0.75:
                turns = self.ask(member, "GET", f"/v1/sessions/{session}").get("turns", [])
                body = {"to_turn": max(0, len(turns) - 1), "if_turns": len(turns)}
                self.ask(member, "POST", f"/v1/sessions/{session}/rollback", body)
            elif draw < 0.95:
                self.branch(session, f"{self.number}.{step}")
            else:
                self.ask(member, "DELETE", f"/v1/sessions/{session}?if_turns=9")

    def turn(self, member: HttpCalls, session: str, turn_id: str) -> None:
        new = random_ids(3, turn_id)
        answer = self.ask(member, "POST", "/v1/completions", raw_body(session, new, 4, turn_id=turn_id))
        if "choices" in answer:
            assert asked(answer)[-3:] == new
            self.told[turn_id] = asked(answer) + said(answer)
        else:
            self.refused.add(turn_id)

    def branch(self, session: str, turn_id: str) -> None:
        one, two, three = (self.rng.choice(self.members) for _ in range(3))
        forks = self.ask(one, "POST", f"/v1/sessions/{session}/fork", {}).get("sessions", [])
        for fork in forks:
            self.turn(two, fork["id"], turn_id)
            self.ask(three, "POST", f"/v1/sessions/{session}/adopt", {"session": fork["id"]})

    def ask(self, member: HttpCalls, method: str, path: str, body: Any = None) -> dict[str, Any]:
        reply = member.request(method, path, body)
        assert reply.status_code in (200, 404, 422, 429), reply.text
        self.statuses.append(reply.status_code)
        return reply.json()


@contextmanager
def folder_vaults(tmp_path: Any) -> Iterator[tuple[SessionVault, SessionVault]]:
    stores = [open_store(f"file://{tmp_path}/store?size=64MiB") for _ in range(2)]
    yield StoreVault(stores[0], 10), StoreVault(stores[1], 10)
    for store in stores:
        store.close()


@contextmanager
def one_memory(tmp_path: Any) -> Iterator[tuple[SessionVault, SessionVault]]:
    vault = MemoryVault()
    yield vault, vault


@pytest.mark.parametrize("steps", [16, pytest.param(80, marks=pytest.mark.long)])
@pytest.mark.parametrize("vaults", [one_memory, folder_vaults])
def test_every_session_has_one_history_of_just_what_was_acknowledged(serve, vaults, steps, tmp_path):
    history: dict[RecordName, dict[int, bytes]] = {}
    lock = threading.Lock()
    with ExitStack() as stack:
        watched = [Watched(vault, history, lock) for vault in stack.enter_context(vaults(tmp_path))]
        first, second = (stack.enter_context(serve(f"r{i}", vault)) for i, vault in enumerate(watched))
        members = [first, second]
        sessions = [first.create(prompt=random_ids(20, "one")), second.create(prompt=random_ids(20, "two"))]
        clients = [Client(members, sessions, random.Random(i), i, steps) for i in range(THREADS)]
        with ThreadPoolExecutor(THREADS) as threads:
            for done in [threads.submit(client.run) for client in clients]:
                done.result()
        told = {turn_id: ids for client in clients for turn_id, ids in client.told.items()}
        refused = set().union(*(client.refused for client in clients))
        assert len(told) > 20 and {200, 429} <= {status for client in clients for status in client.statuses}
        for session in sessions:
            states = [member.whole(session) for member in members]
            assert states[0]["text"] == states[1]["text"] and states[0]["turns"] == states[1]["turns"]
    written = [turn_id for name, versions in history.items() for turn_id in new_turns(name, versions, told)]
    assert sorted(written) == sorted(told), "just the acknowledged turns were written, each once"
    assert not refused & set(written)


def new_turns(name: RecordName, versions: dict[int, bytes], told: dict[str, list[int]]) -> list[str]:
    """Turns that a session's history added, each on top of what was there; other changes drop turns, or adopt a fork's."""
    assert sorted(versions) == list(range(1, len(versions) + 1)), "no version is missing"
    added: list[str] = []
    before: list[str] = []
    for version in sorted(versions):
        kind, data = _unpack(name, Kept(version, versions[version]))
        if kind is Kind.ENDED:
            assert version == len(versions), "nothing comes behind an end"
            break
        turns = [turn["turn_id"] for turn in data["turns"]]
        last = data["events"][-1]["event"]
        if turns[:-1] == before and last == "turn":
            added.append(turns[-1])
            ids = array("I", b64decode(data["transcript"]["ids"])).tolist()
            assert ids == told.get(turns[-1]), "what was written is what was answered"
        elif last == "rollback":
            assert turns == before[: len(turns)]
        elif version > 1:
            assert last in {"adopted", "moved", "fork"}, last
        before = turns
    return added
