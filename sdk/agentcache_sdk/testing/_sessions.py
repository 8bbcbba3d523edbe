"""The sessions that the engine holds: transcripts, turns, leases; and snapshots of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from agentcache_sdk.testing._http import Refusal, bad_field, busy
from agentcache_sdk.testing._page_cache import Pin
from agentcache_sdk.testing._rendering import NEW_TOOLS

Message = dict[str, Any]
DEFAULT_TTL_S = 3_600.0
_CHANGES = ("turn", "rollback", "adopted")


@dataclass(frozen=True)
class HeldTurn:
    """A committed turn.

    Attributes:
        entries: what it added: messages, the reply last, and before them tools that were new.
        ids: of a raw session, what was sent and what was shown.
        figures: what it cost.
    """

    entries: tuple[Message, ...]
    ids: tuple[int, ...]
    figures: dict[str, Any]
    turn_id: str | None

    @property
    def messages(self) -> list[Message]:
        return [entry for entry in self.entries if entry["role"] != NEW_TOOLS]

    @property
    def tool_names(self) -> list[str]:
        return [_name(tool) for entry in self.entries if entry["role"] == NEW_TOOLS for tool in entry["tools"]]


@dataclass(eq=False)
class HeldSession:
    """One session.

    Attributes:
        owner, root: whose it is, and the namespace of its pages.
        head, head_ids: what a chat session, or a raw one, begins with.
        tools: those of the beginning; ``all_tools`` has those that turns added as well.
        pin, lease_until: what keeps its pages, and until when; nothing may be kept yet of what a lease is on.
        in_flight: a turn of it runs.
    """

    id: str
    owner: str
    root: str
    ttl_s: float
    created: float
    raw: bool = False
    head: tuple[Message, ...] = ()
    head_ids: tuple[int, ...] = ()
    tools: tuple[Any, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    parent: str | None = None
    turns: list[HeldTurn] = field(default_factory=list)
    expires_at: float = 0.0
    pin: Pin | None = None
    lease_until: float | None = None
    in_flight: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def entries(self) -> list[Message]:
        """Messages, and the tools that were added between them."""
        return [*self.head, *(entry for turn in self.turns for entry in turn.entries)]

    @property
    def messages(self) -> list[Message]:
        return [entry for entry in self.entries if entry["role"] != NEW_TOOLS]

    @property
    def all_tools(self) -> list[Any]:
        return [*self.tools, *(tool for e in self.entries if e["role"] == NEW_TOOLS for tool in e["tools"])]

    @property
    def ids(self) -> list[int]:
        return [*self.head_ids, *(token for turn in self.turns for token in turn.ids)]

    def begins_with(self) -> tuple[Any, ...]:
        """What two sessions must have in common for one to adopt the other."""
        return self.root, self.raw, self.head, self.head_ids, self.tools

    def note(self, event: str, now: float, **facts: Any) -> None:
        self.events.append({"event": event, "at": now, **facts})

    def new_tools(self, tools: Any) -> list[Any]:
        """Those of ``tools`` that the session does not have.

        Raises:
            Refusal: 400, one has the name of another tool of the session's.
        """
        if not isinstance(tools, list):
            raise bad_field("tools", f"got {tools!r}, expected a list of tool objects")
        known = {_name(tool): tool for tool in self.all_tools}
        for index, tool in enumerate(tools):
            if _name(tool) in known and known[_name(tool)] != tool:
                message = f"got another schema of {_name(tool)!r} than the session's, expected that one or a new name"
                raise bad_field(f"tools[{index}].function", message)
        return [tool for tool in tools if _name(tool) not in known]


def _name(tool: Any) -> str:
    return str((tool.get("function") or {}).get("name")) if isinstance(tool, dict) else str(tool)


@dataclass
class SessionStore:
    """Sessions by id, and snapshots by owner and name.

    Args:
        now: the engine's clock, in Unix seconds.
    """

    now: Callable[[], float]
    on_end: Callable[[HeldSession], None]
    sessions: dict[str, HeldSession] = field(default_factory=dict)
    snapshots: dict[tuple[str, str], HeldSession] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def new_id(self) -> str:
        return f"sess_{next(self.ids)}"

    def add(self, session: HeldSession) -> HeldSession:
        session.expires_at = self.now() + session.ttl_s
        self.sessions[session.id] = session
        return session

    def get(self, session_id: str, owner: str, *, use: bool = True) -> HeldSession:
        """
        Raises:
            Refusal: 404, there is none, it has expired, or it is another key's.
        """
        self.sweep()
        session = self.sessions.get(session_id)
        if session is None or session.owner != owner:
            message = f"session: got {session_id!r}, which does not exist or has expired"
            raise Refusal(404, message, param="session", code="session_not_found")
        if use:
            session.expires_at = self.now() + session.ttl_s
        return session

    def of(self, owner: str) -> list[HeldSession]:
        self.sweep()
        return [session for session in self.sessions.values() if session.owner == owner]

    def end(self, session: HeldSession) -> None:
        if self.sessions.pop(session.id, None) is not None:
            self.on_end(session)

    def sweep(self) -> None:
        for session in list(self.sessions.values()):
            if session.expires_at <= self.now() and not session.in_flight:
                self.end(session)

    def fork(self, session: HeldSession, at_turn: int | None) -> HeldSession:
        """
        Raises:
            Refusal: 400, there are not so many turns.
        """
        kept = turns_kept(session, at_turn, "at_turn")
        twin = self._copy(session, turns=session.turns[:kept], parent=session.id)
        twin.note("forked", self.now(), parent=session.id, turns=kept)
        session.note("fork", self.now(), child=twin.id, turns=kept)
        return self.add(twin)

    def snapshot(self, session: HeldSession, name: str) -> None:
        self.snapshots[session.owner, name] = self._copy(session, turns=list(session.turns))
        session.note("snapshot", self.now(), name=name)

    def restore(self, name: str, owner: str, ttl_s: float | None, metadata: dict[str, Any] | None) -> HeldSession:
        """
        Raises:
            Refusal: 404, there is no such snapshot.
        """
        kept = self.snapshots.get((owner, name))
        if kept is None:
            message = f"from_snapshot: got {name!r}, which does not exist"
            raise Refusal(404, message, param="from_snapshot", code="snapshot_not_found")
        session = self._copy(kept, turns=list(kept.turns))
        session.ttl_s = ttl_s or kept.ttl_s
        session.metadata = dict(kept.metadata) if metadata is None else metadata
        session.note("restored", self.now(), snapshot=name)
        return self.add(session)

    def rollback(self, session: HeldSession, to_turn: int) -> None:
        if session.in_flight:
            raise busy(session.id)
        kept = turns_kept(session, to_turn, "to_turn")
        session.note("rollback", self.now(), dropped=len(session.turns) - kept)
        del session.turns[kept:]

    def adopt(self, session: HeldSession, fork_id: str, if_turns: int | None) -> None:
        """``session`` goes on with what its fork came to; the fork ends.  Done again, it does nothing more.

        Raises:
            Refusal: a turn of either runs, or the two did not begin alike.
        """
        if fork_id == session.id:
            raise bad_field("session", f"got {fork_id!r} itself, expected a fork of it")
        changes = [event for event in session.events if event["event"] in _CHANGES]
        if fork_id not in self.sessions and changes and changes[-1].get("child") == fork_id:
            return
        fork = self.get(fork_id, session.owner)
        for one in (session, fork):
            if one.in_flight:
                raise busy(one.id)
        if session.begins_with() != fork.begins_with():
            message = f"session: {fork.id} and {session.id} do not begin alike, expected a fork of {session.id}"
            raise Refusal(422, message, param="session", code="session_diverged")
        check_turns(session, if_turns)
        kept = sum(ours is theirs for ours, theirs in zip(session.turns, fork.turns, strict=False))
        session.note(
            "adopted", self.now(), child=fork.id, turns=len(fork.turns), dropped=len(session.turns) - kept
        )  # fmt: skip
        session.turns = list(fork.turns)
        self.end(fork)

    def _copy(self, session: HeldSession, **changes: Any) -> HeldSession:
        return replace(
            session, id=self.new_id(), created=self.now(), pin=None, lease_until=None, in_flight=False, events=[],
            metadata=dict(session.metadata), **changes,
        )  # fmt: skip


def turns_kept(session: HeldSession, count: int | None, param: str) -> int:
    if count is None:
        return len(session.turns)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= len(session.turns):
        raise bad_field(param, f"got {count!r}, expected 0 to {len(session.turns)}, the turns so far")
    return count


def check_turns(session: HeldSession, expected: int | None) -> None:
    """
    Raises:
        Refusal: 422, the session has not as many turns.
    """
    found = len(session.turns)
    if expected is not None and found != expected:
        raise diverged(f"if_turns: got {expected}, and the session has {found} turns", "if_turns")


def check_rollback(session: HeldSession, body: dict[str, Any]) -> None:
    """
    Raises:
        Refusal: 422, the session is not what ``if_turns`` and ``only_turn_id`` say.
    """
    found, kept = len(session.turns), body["to_turn"]
    if session.in_flight or found == kept:
        return
    check_turns(session, body.get("if_turns"))
    only = body.get("only_turn_id")
    if only is not None and [turn.turn_id for turn in session.turns[kept:]] != [only]:
        message = (
            f"only_turn_id: the session has {found} turns, expected the first {kept} and at most the one of that id"
        )
        raise diverged(message, "only_turn_id")


def diverged(message: str, param: str) -> Refusal:
    return Refusal(422, f"{message}: another client has changed it", param=param, code="session_diverged")
