"""The session routes of the small wire server: transcripts as lists of messages, or as text for raw sessions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

Answer = tuple[int, dict[str, Any]]


@dataclass
class HeldSession:
    id: str
    head: list[dict[str, Any]]
    tools: list[Any] | None = None
    raw: bool = False
    turns: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Every verb about it, with its body."""

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """The stateless request that a turn stands for."""
        added = [message for turn in self.turns for message in turn["added"]]
        if self.raw:
            return body | {"prompt": "".join(m["content"] for m in [*self.head, *added]) + str(body["prompt"])}
        return body | {"messages": [*self.head, *added, *body["messages"]], "tools": self.tools}

    def messages(self) -> list[dict[str, Any]]:
        return [*self.head, *(message for turn in self.turns for message in turn["added"])]

    def commit(self, whole: dict[str, Any], reply: dict[str, Any], figures: dict[str, int]) -> None:
        before = len(self.head) + sum(len(turn["added"]) for turn in self.turns)
        if self.raw:
            known = self.whole({"prompt": ""})["prompt"]
            added = [{"content": whole["prompt"].removeprefix(known)}, {"content": reply["content"]}]
        else:
            # As a server that renders the reply: what the client does not send again must not be lost.
            added = [*whole["messages"][before:], {k: v for k, v in reply.items() if v is not None or k == "content"}]
        self.turns.append({"added": added, "figures": figures, "turn_id": whole.get("turn_id")})

    def info(self, whole: bool = False) -> dict[str, Any]:
        turns = [{**turn["figures"], "messages": len(turn["added"]), "miss": None} for turn in self.turns]
        kind = "raw" if self.raw else "chat"
        info = {"id": self.id, "model": "tiny", "kind": kind, "tokens": 7, "turns": turns, "expires_at": 9.5}
        return info | ({"messages": self.messages()} if whole and not self.raw else {})


@dataclass
class Held:
    """What tests look at: the live sessions, and everything that was asked of each."""

    sessions: dict[str, HeldSession] = field(default_factory=dict)
    snapshots: dict[str, HeldSession] = field(default_factory=dict)
    created: list[dict[str, Any]] = field(default_factory=list)
    tells: bool = True
    """Whether it tells what was said in a session, and heeds conditions; older servers did neither."""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def of(self, body: dict[str, Any]) -> HeldSession | None:
        return self.sessions[body["session"]] if body.get("session") else None

    def refusal(self, body: dict[str, Any]) -> Answer | None:
        if not body.get("session"):
            return None
        session = self.sessions.get(body["session"])
        if session is None:
            return missing(body["session"])
        return diverged(session) if self.tells and body.get("if_turns") not in (None, len(session.turns)) else None

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> Answer:
        path, _, query = path.partition("?")
        whole = self.tells and query == "include=messages"
        _, session_id, verb = (*path.removeprefix("/v1/sessions").split("/"), "", "")[:3]
        if not session_id:
            if method == "GET":
                return 200, {"data": [session.info() for session in self.sessions.values()]}
            return self.create(body or {}, whole)
        session = self.sessions.get(unquote(session_id))
        if session is None:
            return missing(session_id)
        session.asked.append((verb or method, body or {}))
        if verb == "" and method == "GET":
            return 200, session.info(whole)
        return self.ask(session, verb or method, body or {})

    def create(self, body: dict[str, Any], whole: bool) -> Answer:
        self.created.append(body)
        if body.get("model") not in (None, "tiny"):
            return error(404, "no such model", "model_not_found")
        if name := body.get("from_snapshot"):
            if name not in self.snapshots:
                return error(404, f"no snapshot {name}", "snapshot_not_found")
            made = self.twin(self.snapshots[name], len(self.snapshots[name].turns))
        elif "prompt" in body:
            made = HeldSession(self.new_id(), [{"content": str(body["prompt"])}], raw=True)
        else:
            made = HeldSession(self.new_id(), body.get("messages") or [], body.get("tools"))
        self.sessions[made.id] = made
        return 200, made.info(whole)

    def ask(self, session: HeldSession, verb: str, body: dict[str, Any]) -> Answer:
        if verb == "DELETE":
            del self.sessions[session.id]
        elif verb == "explain":
            return 200, session.info() | {
                "events": [{"event": name} for name, _ in session.asked if name not in ("GET", "explain")],
                "cached": {"tokens": 6, "pages": 1, "miss": {"code": "evicted", "at_token": 6}},
            }
        elif verb == "rollback":
            if self.tells and refuses(session, body):
                return diverged(session)
            del session.turns[body["to_turn"] :]
        elif verb == "pin":
            return 200, {"granted_pages": 3, "expires_at": 70.5}
        elif verb == "fork":
            forks = [self.twin(session, body["at_turn"]) for _ in range(body["n"])]
            self.sessions |= {fork.id: fork for fork in forks}
            return 200, {"sessions": [fork.info() for fork in forks]}
        elif verb == "snapshot":
            self.snapshots[body["name"]] = self.twin(session, len(session.turns))
            return 200, {"name": body["name"], "tokens": 7}
        elif verb not in ("wait", "unpin"):
            return error(404, f"no route {verb}", "not_found")
        return 200, {}

    def twin(self, session: HeldSession, turns: int) -> HeldSession:
        return HeldSession(self.new_id(), session.head, session.tools, session.raw, session.turns[:turns])

    def new_id(self) -> str:
        return f"sess/{next(self.ids)}"


def refuses(session: HeldSession, body: dict[str, Any]) -> bool:
    """Whether a rollback would drop what its client has not seen."""
    kept = body["to_turn"]
    if len(session.turns) == kept:
        return False
    only = body.get("only_turn_id")
    others = only is not None and [turn["turn_id"] for turn in session.turns[kept:]] != [only]
    return others or body.get("if_turns") not in (None, len(session.turns))


def diverged(session: HeldSession) -> Answer:
    return error(422, f"the session has {len(session.turns)} turns", "session_diverged")


def missing(session_id: str) -> Answer:
    return error(404, f"no session {session_id}", "session_not_found")


def error(status: int, message: str, code: str) -> Answer:
    return status, {"error": {"message": message, "type": "t", "param": None, "code": code}}
