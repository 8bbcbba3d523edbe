"""Calls in random order, to the fake engine and to the real server: every answer is the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from testing_places import Place, fake_place, real_place

LONG = "Answer in few words, and never guess what you can look up in the files that you are given. " * 3
QUESTIONS = ["Read the first file, please.", "What about the tests?", "Explain the second function.", "Thanks a lot."]
REPLIES = ["Fine, I will do that.", "Done.", "No."]


@dataclass
class Walk:
    """What one place answers.  All choices depend on the seed alone, so that both places are asked the same.

    Without flushes: which of the pages behind them are missed depends on where pages end, and so on the tokenizer.
    """

    place: Place
    dice: random.Random
    ids: list[str] = field(default_factory=list)
    log: list[Any] = field(default_factory=list)

    def step(self) -> None:
        steps: list[Callable[[], httpx.Response]] = [
            self.create, self.turn, self.turn, self.turn, self.fork, self.rollback, self.adopt, self.delete, self.lease,
            self.unpin, self.snapshot, self.restore, self.ask_anew, self.send_history,
        ]  # fmt: skip
        step = self.dice.choice(steps)
        self.place.advance(self.dice.choice([0, 0, 40]))
        answer = step()
        self.log.append((step.__name__, answer.status_code, self.told(answer)))

    def told(self, answer: httpx.Response) -> Any:
        body = answer.json()
        if "error" in body:
            return body["error"]["code"], body["error"]["param"]
        made = [body] if "turns" in body else body.get("sessions", [])
        self.ids += [
            session["id"] for session in made if isinstance(session["turns"], list) and session["id"] not in self.ids
        ]
        if "agentcache" in body:
            report, miss = body["agentcache"], body["agentcache"]["miss"] or {}
            where = [miss.get(name) for name in ("code", "message_index", "path")]
            return where, miss.get("was") is not None, report["cached_tokens"] > 0, report["source"]
        return [(len(s["turns"]), s["pinned_until"] is None) for s in made if isinstance(s["turns"], list)]

    # -- what may be asked

    def create(self) -> httpx.Response:
        return self.post("/v1/sessions", system=self.system())

    def turn(self) -> httpx.Response:
        self.place.says(self.dice.choice(REPLIES))
        condition = {"if_turns": self.dice.randrange(4)} if self.dice.random() < 0.2 else {}
        return self.post("/v1/chat/completions", session=self.any(), messages=[self.question()], **condition)

    def fork(self) -> httpx.Response:
        at = {"at_turn": self.dice.randrange(4)} if self.dice.random() < 0.5 else {}
        return self.post(f"/v1/sessions/{self.any()}/fork", n=self.dice.choice([1, 2]), **at)

    def rollback(self) -> httpx.Response:
        return self.post(f"/v1/sessions/{self.any()}/rollback", to_turn=self.dice.randrange(4))

    def adopt(self) -> httpx.Response:
        return self.post(f"/v1/sessions/{self.any()}/adopt", session=self.any())

    def delete(self) -> httpx.Response:
        return self.place.http.delete(f"/v1/sessions/{self.any()}")

    def lease(self) -> httpx.Response:
        if self.dice.random() < 0.5:
            return self.post(f"/v1/sessions/{self.any()}/pin", ttl_s=100)
        return self.post(f"/v1/sessions/{self.any()}/wait", tool="pytest", expect_s=10)

    def unpin(self) -> httpx.Response:
        return self.post(f"/v1/sessions/{self.any()}/unpin")

    def snapshot(self) -> httpx.Response:
        return self.post(f"/v1/sessions/{self.any()}/snapshot", name=self.dice.choice("ab"))

    def restore(self) -> httpx.Response:
        return self.post("/v1/sessions", from_snapshot=self.dice.choice("ab"))

    def ask_anew(self) -> httpx.Response:
        return self.chat([{"role": "system", "content": self.system()}])

    def send_history(self) -> httpx.Response:
        info = self.place.http.get(f"/v1/sessions/{self.any()}?include=messages").json()
        return self.chat(info.get("messages") or [{"role": "system", "content": self.system()}])

    # -- with what

    def chat(self, before: list[dict[str, Any]]) -> httpx.Response:
        return self.post("/v1/chat/completions", messages=[*before, self.question()])

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.place.http.post(path, json=body)

    def any(self) -> str:
        return self.dice.choice(self.ids) if self.ids else "none"

    def system(self) -> str:
        return f"{self.dice.choice(['Walk', 'Run'])}. {LONG}"

    def question(self) -> dict[str, str]:
        return {"role": "user", "content": self.dice.choice(QUESTIONS)}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_in_whatever_order_is_answered_alike(seed: int, tmp_path: Path) -> None:
    with fake_place() as fake, real_place(tmp_path) as real:
        walks = [Walk(place, random.Random(seed)) for place in (fake, real)]
        for _ in range(50):
            for walk in walks:
                walk.step()
            ours, theirs = (walk.log[-1] for walk in walks)
            assert ours == theirs, walks[0].log[-6:]
