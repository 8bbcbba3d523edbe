"""Six hundred requests of every kind at once, gauges sampled all along: right replies, and everything free at the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import httpx
import pytest
from session_calls import random_ids

REQUESTS, AT_ONCE, PAGES = 600, 12, 160
TRUNK = random_ids(90, "soak trunk")


class Agent:
    """One client that does something random after the other, and knows what its session must hold."""

    def __init__(self, http: httpx.AsyncClient, number: int, check: list[tuple[list[int], list[int]]]) -> None:
        self.http = http
        self.rng = random.Random(number)
        self.check = check
        self.done: Counter[str] = Counter()
        self.session: str | None = None
        self.known: list[list[int]] = []

    async def act(self) -> None:
        moves = {
            "turn": 8, "cut": 3, "fork": 2, "rollback": 2, "pin": 1, "wait": 1, "end": 1,
            "plain": 5, "several": 2, "chat": 3, "salted": 1, "snapshot": 1, "look": 1,
        }  # fmt: skip
        move = self.rng.choices(list(moves), list(moves.values()))[0]
        self.done[move] += 1
        await getattr(self, move)()

    async def post(self, path: str, body: dict[str, Any], *, allowed: tuple[int, ...] = (200,)) -> dict[str, Any]:
        reply = await self.http.post(path, json=body)
        assert reply.status_code in allowed, reply.text
        return reply.json()

    async def mine(self) -> str:
        if self.session is None:
            made = await self.post("/v1/sessions", {"prompt": TRUNK[: self.rng.randint(30, 90)], "ttl_s": 3600})
            self.session, self.known = made["id"], []
        return self.session

    def new_ids(self) -> list[int]:
        return random_ids(self.rng.randint(1, 40), self.rng.random())

    def body(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        count = self.rng.randint(1, 12)
        return {"prompt": prompt, "temperature": 0, "max_tokens": count, "return_token_ids": True, **fields}

    async def turn(self) -> None:
        body = self.body(self.new_ids(), session=await self.mine())
        if self.known and len(self.known[-1]) > 400:
            await self.end()
            return
        while (answer := await self.http.post("/v1/completions", json=body)).status_code == 429:
            await asyncio.sleep(0.05)  # the news of a hang-up is on its way
        assert answer.status_code == 200, answer.text
        reply = answer.json()
        asked, said = reply["prompt_token_ids"], reply["choices"][0]["token_ids"]
        before = self.known[-1] if self.known else []
        assert asked[: len(before)] == before
        self.known.append(asked + said)
        self.check.append((asked, said))

    async def cut(self) -> None:
        body = self.body(self.new_ids(), session=await self.mine(), stream=True) | {"max_tokens": 300}
        with suppress(httpx.HTTPError):
            async with self.http.stream("POST", "/v1/completions", json=body) as reply:
                if self.rng.random() < 0.7:
                    async for _ in reply.aiter_lines():
                        break

    async def fork(self) -> None:
        session = await self.mine()
        kept = self.rng.randint(0, len(self.known))
        forks = (await self.post(f"/v1/sessions/{session}/fork", {"n": 2, "at_turn": kept}))["sessions"]
        assert all(len(fork["turns"]) == kept for fork in forks)
        self.session, self.known = forks[0]["id"], self.known[:kept]
        await self.http.delete(f"/v1/sessions/{forks[1]['id']}")

    async def rollback(self) -> None:
        session = await self.mine()
        kept = self.rng.randint(0, len(self.known))
        reply = await self.http.post(f"/v1/sessions/{session}/rollback", json={"to_turn": kept})
        if reply.status_code == 200:  # 429 while the news of a hang-up is on its way
            del self.known[kept:]

    async def pin(self) -> None:
        await self.post(f"/v1/sessions/{await self.mine()}/pin", {"ttl_s": self.rng.randint(1, 50)})

    async def wait(self) -> None:
        await self.post(f"/v1/sessions/{await self.mine()}/wait", {"tool": "grep", "expect_s": 1})
        await self.post("/debug/clock", {"advance_s": 0.5})

    async def snapshot(self) -> None:
        await self.post(f"/v1/sessions/{await self.mine()}/snapshot", {"name": "soak"})

    async def look(self) -> None:
        for path in (f"/v1/sessions/{await self.mine()}/explain", "/v1/cache/tree", "/v1/sessions", "/metrics"):
            assert (await self.http.get(path)).status_code == 200

    async def end(self) -> None:
        if self.session is not None:
            await self.http.delete(f"/v1/sessions/{self.session}")
            self.session, self.known = None, []

    async def plain(self) -> None:
        reply = await self.post("/v1/completions", self.body(TRUNK[: self.rng.randint(1, 90)] + self.new_ids()))
        self.check.append((reply["prompt_token_ids"], reply["choices"][0]["token_ids"]))

    async def several(self) -> None:
        body = self.body(self.new_ids(), n=self.rng.randint(2, 4), stop=["the"]) | {"temperature": 1, "seed": 5}
        await self.post("/v1/completions", body)

    async def chat(self) -> None:
        messages = [{"role": "user", "content": "read the file"}]
        for _ in range(2):
            body = {"messages": messages, "temperature": 0, "max_tokens": 5, "return_token_ids": True}
            reply = await self.post("/v1/chat/completions", body)
            self.check.append((reply["prompt_token_ids"], reply["choices"][0]["token_ids"]))
            messages = [*messages, reply["choices"][0]["message"], {"role": "user", "content": "again"}]

    async def salted(self) -> None:
        await self.post("/v1/completions", self.body(TRUNK, cache_salt=str(self.rng.randint(0, 2))))


async def sample(http: httpx.AsyncClient, over: asyncio.Event) -> int:
    """Look at the gauges all along; how often."""
    samples = 0
    while not over.is_set():
        pages = (await http.get("/v1/cache")).json()
        states = [pages[state] for state in ("free", "live", "cached", "pinned")]
        assert min(states) >= 0 and sum(states) == pages["total"] == PAGES, pages
        samples += 1
        if samples % 10 == 0:
            assert (await http.post("/debug/check")).json() == {"ok": True, "broken": []}
        await asyncio.sleep(0.02)
    return samples


async def soak(url: str, check: list[tuple[list[int], list[int]]]) -> Counter[str]:
    over = asyncio.Event()
    limits = httpx.Limits(max_connections=AT_ONCE + 4)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        agents = [Agent(http, number, check) for number in range(AT_ONCE)]

        async def live(agent: Agent) -> None:
            for _ in range(REQUESTS // AT_ONCE):
                await agent.act()
            await agent.end()

        watch = asyncio.create_task(sample(http, over))
        try:
            await asyncio.gather(*map(live, agents))
        finally:
            over.set()
        assert await watch > 20
        left = (await http.get("/v1/sessions")).json()["data"]
        for session in left:
            await http.delete(f"/v1/sessions/{session['id']}")
    return sum((agent.done for agent in agents), Counter())


@pytest.mark.parametrize("settings", [{}, {"host_pages": 60}], ids=["device", "host"])
def test_six_hundred_mixed_requests_leave_nothing_behind(serve, reference, settings):
    check: list[tuple[list[int], list[int]]] = []
    with serve(num_pages=PAGES, max_running=8, prefill_chunk=64, **settings) as client:
        done = asyncio.run(soak(client.server.url, check))
        assert sum(done.values()) == REQUESTS and min(done.values()) > 0, done
        pages = client.server.pages()
        assert pages["pinned"] == 0
        assert client.call("POST", "/v1/cache/flush")["free"] == PAGES
        metrics = client.server.http.get("/metrics").text
        assert "agentcache_sessions 0.0" in metrics
    for prompt, reply in random.Random(0).sample(check, 60):
        assert reply == reference.greedy(prompt, len(reply))
