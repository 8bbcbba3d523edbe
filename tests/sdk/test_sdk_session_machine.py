"""Random lives of sessions over a connection that is cut anywhere and a server that forgets: both sides always agree.

The model here is a list of turns for each session: what was sent and what came back.  A turn whose answer was lost never
happened; a rollback or an adoption whose answer was lost happens with the next call, where it still can.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from cutting_proxy import Cut, CuttingProxy, cutting_proxy
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from live import drain
from saying import Saying, saying_server

from agentcache_sdk import Client, ConnectionFailed, NotFound, Session, Turn

T = TypeVar("T")
pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.CacheWarning")  # pages are flushed on purpose

SYSTEM = "You are a careful engineer who reads before writing, and who says little. " * 3
CALL = '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'
REPLIES = ("Yes.", "No, and here is why: it is late.", CALL, f"{CALL}\n{CALL}")
CUTS = st.one_of(
    st.none(),
    st.builds(Cut, st.sampled_from(["up", "down"]), st.sampled_from([0, 1, 40, 300, 900]), st.booleans()),
)


def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


def later_tool(number: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"tool_{number}", "parameters": {"type": "object"}}}


@dataclass
class Held:
    """A session, and what must be true of it.

    Attributes:
        turns: what the user said in each, "" where only tools did.
        doubt: the turns that it has when a change whose answer was lost was made; ``None``: there is no doubt.
        cached: tokens that its next turn must find; 0 where something legitimate happened.
    """

    session: Session
    turns: list[str] = field(default_factory=list)
    doubt: list[str] | None = None
    cached: int = 0


def texts(session: Session) -> list[str]:
    """What the user said in each turn, without what a compaction put before it."""
    turns = [
        [m["content"] for m in record.messages if m["role"] == "user"] for record in session._core.transcript.turns
    ]
    return [said[-1].split("\n\n")[-1] if said else "" for said in turns]


WHICH = st.integers(0, 11)
MOST = 4


class Lives(RuleBasedStateMachine):
    """``saying`` and ``proxy`` are given by the fixture below."""

    saying: Saying
    proxy: CuttingProxy

    def __init__(self) -> None:
        super().__init__()
        self.client = Client(self.proxy.url, timeout=20, max_retries=0)
        self.alive: list[Held] = []
        self.dropped: list[Session] = []
        self.said = 0

    @initialize()
    def begin(self) -> None:
        self.saying.server.http.post("/v1/cache/flush").raise_for_status()
        self.open()

    # -- what is done

    @rule()
    def open(self) -> None:
        if len(self.alive) < MOST:
            self.alive.append(Held(self.client.session(SYSTEM, [look]).open()))

    @rule(which=WHICH, reply=st.sampled_from(REPLIES), cut=CUTS, streamed=st.booleans())
    def turn(self, which: int, reply: str, cut: Cut | None, streamed: bool) -> None:
        held, text = self.one(which), self.next_text()
        self.saying.says(reply)

        def act() -> Turn:
            if not streamed:
                return held.session.send(text)
            with held.session.stream(text) as stream:
                return stream.result()

        self.take(held, text, self.tried(held, cut, act))

    def take(self, held: Held, text: str, turn: Turn | None) -> None:
        if turn is not None:
            held.turns = [*held.turns, text]
            assert turn.usage.cached_tokens >= held.cached, "everything to the end of the last reply is cached"
            held.cached = turn.usage.total_tokens - 1
        self.agrees(held)

    @rule(which=WHICH, pieces=st.integers(0, 3))
    def leave_a_stream(self, which: int, pieces: int) -> None:
        held, text = self.one(which), self.next_text()
        self.saying.says("One word after the other, and so on and on. " * 30)
        done: list[Turn] = []

        def act() -> None:
            with held.session.stream(text) as stream:
                for _ in range(pieces):
                    next(stream, None)
                if stream._turn is not None:
                    done.append(stream._turn)

        self.tried(held, None, act)
        self.take(held, text, done[0] if done else None)

    @rule(which=WHICH, cut=CUTS, by_hand=st.booleans())
    def results(self, which: int, cut: Cut | None, by_hand: bool) -> None:
        """Answer the open calls: a run does, or they wait for the next turn."""
        held = self.one(which)
        if held.doubt is not None or not held.session._core.open_tool_calls():
            return
        self.saying.says("Done.")
        if by_hand:
            for call in held.session._core.open_tool_calls():
                held.session.tool_result(call.id, "by hand")
            return
        done = self.tried(held, cut, lambda: held.session.run(max_turns=1))
        self.take(held, "", None if done is None else done.turn)

    @rule(which=WHICH)
    def add_a_tool(self, which: int) -> None:
        self.said += 1
        self.one(which).session.add_tools(later_tool(self.said))

    @rule(which=WHICH, cut=CUTS, at=st.floats(0, 2))
    def fork(self, which: int, cut: Cut | None, at: float) -> None:
        held = self.one(which)
        self.settle(held)
        if len(self.alive) == MOST:
            return
        turns = None if at > 1 else int(at * len(held.turns))
        made = self.tried(held, cut, lambda: held.session.fork(at_turn=turns))
        if made:
            self.alive.append(Held(made[0], held.turns[:turns]))
            self.agrees(self.alive[-1])

    @rule(which=WHICH, cut=CUTS, at=st.floats(0, 0.99))
    def rollback(self, which: int, cut: Cut | None, at: float) -> None:
        held = self.one(which)
        self.settle(held)
        kept = held.turns[: int(at * len(held.turns))]
        held.cached = 0
        if self.did(held, cut, lambda: held.session.rollback(len(kept))):
            held.turns = kept
        elif held.session._core.doubt is not None:
            held.doubt = kept
        self.agrees(held)

    @rule(which=WHICH, cut=CUTS, other=WHICH)
    def adopt(self, which: int, cut: Cut | None, other: int) -> None:
        held, fork = self.one(which), self.one(other)
        if held is fork or held.session._core.lineage[-1] not in fork.session._core.lineage:
            return
        self.settle(held)
        self.settle(fork)
        if held.session.id is None or fork.session.id is None or not {*map(id, (held, fork))} <= {*map(id, self.alive)}:
            return
        held.cached = 0
        if self.did(held, cut, lambda: held.session.adopt(fork.session)):
            held.turns = fork.turns
            self.alive.remove(fork)
        elif held.session._core.doubt is not None:
            held.doubt = fork.turns
            self.alive.remove(fork)
            self.dropped.append(fork.session)
        self.agrees(held)

    @rule(which=WHICH, cut=CUTS, keep=st.integers(0, 2))
    def compact(self, which: int, cut: Cut | None, keep: int) -> None:
        held = self.one(which)
        self.settle(held)
        core = held.session._core
        if core.open_tool_calls() or core.transcript.pending:
            return
        self.saying.says("A summary.")
        done = self.tried(held, cut, lambda: held.session.compact(None if keep else "In short.", keep_turns=keep))
        if done is not None and done.turns_dropped:
            held.turns, held.cached = [], 0
        self.agrees(held)

    @rule(which=WHICH, cut=CUTS, name=st.sampled_from("ab"))
    def snapshot(self, which: int, cut: Cut | None, name: str) -> None:
        held = self.one(which)
        self.settle(held)
        self.tried(held, cut, lambda: held.session.snapshot(name))
        self.agrees(held)

    @rule(name=st.sampled_from("ab"))
    def restore(self, name: str) -> None:
        if len(self.alive) < MOST:
            try:
                session = self.client.restore(name, tools=[look]).open()
            except NotFound:
                return
            self.alive.append(Held(session, texts(session)))
            self.agrees(self.alive[-1])

    @rule(which=WHICH)
    def resume_elsewhere(self, which: int) -> None:
        """Another client sees the same, and takes the session over."""
        held = self.one(which)
        self.settle(held)
        self.dropped.append(held.session)
        held.session = self.client.resume(held.session.id or "", tools=[look]).open()
        self.agrees(held)

    @rule()
    def forget(self) -> None:
        """As a restart does: the sessions are gone, their pages may stay."""
        for info in self.told():
            self.saying.server.http.delete(f"/v1/sessions/{info['id']}").raise_for_status()

    @rule()
    def evict(self) -> None:
        self.saying.server.http.post("/v1/cache/flush").raise_for_status()
        for held in self.alive:
            held.cached = 0

    @rule(which=WHICH)
    def close(self, which: int) -> None:
        if len(self.alive) > 1:
            held = self.one(which)
            held.session.close()
            self.alive.remove(held)

    # -- what is checked

    def settle(self, held: Held) -> None:
        """Whatever is in doubt is finished; a session that is lost for good begins anew from its messages."""
        core = held.session._core

        def all_of_it() -> None:
            with core.alone():
                held.session._transport.drive(core.settle())
            held.session.unpin()

        self.tried(held, None, all_of_it)
        self.agrees(held)

    def tried(self, held: Held, cut: Cut | None, act: Callable[[], T]) -> T | None:
        """What ``act`` comes to; ``None`` when the connection was lost, or the session."""
        self.proxy.cut(cut)
        done = None
        try:
            done = act()
        except ConnectionFailed:
            held.cached = (
                0  # whether the server had begun with it is not known, and a cut turn may have evicted nothing
            )
        except NotFound:
            self.proxy.cut(None)
            if held.session.id not in {info["id"] for info in self.told()}:
                self.anew(held)
        self.proxy.cut(None)
        if held.doubt is not None and held.session._core.doubt is None:
            had = texts(held.session)
            had = had[:-1] if had[-1:] not in (held.doubt[-1:], held.turns[-1:]) else had
            assert had in (held.doubt, held.turns), "a change in doubt is made, or it was not"
            held.turns, held.doubt, held.cached = had, None, 0
        return done

    def did(self, held: Held, cut: Cut | None, act: Callable[[], None]) -> bool:
        """Whether ``act``, which returns nothing, came to its end."""

        def to_its_end() -> Literal["done"]:
            act()
            return "done"

        return self.tried(held, cut, to_its_end) == "done"

    def anew(self, held: Held) -> None:
        """The server had forgotten it, and no snapshot had all of it."""
        lost = held.session
        lost.close()
        calls = lost._core.open_tool_calls()
        messages = [*lost.messages] if not calls else []
        fresh = self.client.session(None if messages else SYSTEM, [look], messages=messages).open()
        held.session, held.turns, held.doubt, held.cached = fresh, [], None, 0

    def agrees(self, held: Held) -> None:
        core = held.session._core
        if core.unsettled or core.doubt is not None or held.session.id not in {info["id"] for info in self.told()}:
            return
        info = self.saying.server.http.get(f"/v1/sessions/{held.session.id}?include=messages").json()
        assert info["messages"] == json.loads(json.dumps(core.transcript.committed))
        assert len(info["turns"]) == held.session.mark() == len(held.turns)
        assert texts(held.session) == held.turns

    def told(self) -> list[dict[str, Any]]:
        return self.saying.server.http.get("/v1/sessions").json()["data"]

    def one(self, which: int) -> Held:
        return self.alive[which % len(self.alive)]

    def next_text(self) -> str:
        self.said += 1
        return f"Question {self.said}?"

    def teardown(self) -> None:
        for held in self.alive:
            self.settle(held)
        for session in [held.session for held in self.alive] + self.dropped:
            session.close()
        ours = {held.session.id for held in self.alive}
        left = self.told()
        assert not ours & {info["id"] for info in left}, "what is closed is gone"
        for info in left:  # their making was cut: they are nobody's, and hold no pages
            self.saying.server.http.delete(f"/v1/sessions/{info['id']}")
        self.client.close()
        drain(self.saying.server)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Lives]]:
    folder = tmp_path_factory.mktemp("lives")
    with saying_server(folder, disk_dir=Path(tempfile.mkdtemp(dir=folder))) as saying, cutting_proxy(
        saying.server.port
    ) as proxy:  # fmt: skip

        class OfThisServer(Lives):
            pass

        OfThisServer.saying, OfThisServer.proxy = saying, proxy
        yield OfThisServer


def lives(machine: type[Lives], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_both_sides_agree_whatever_is_lost(machine: type[Lives]) -> None:
    lives(machine, 12, 25)


@pytest.mark.long
def test_both_sides_agree_whatever_is_lost_for_long(machine: type[Lives]) -> None:
    lives(machine, 200, 40)
