"""Tool loops, adopted forks, added tools and compactions on a real server whose model says what it is told."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from live import drain
from saying import Saying, saying_server

from agentcache_sdk import (
    AgentCacheError,
    AsyncClient,
    BadRequest,
    Busy,
    Client,
    RunResult,
    Session,
    SessionDiverged,
    ToolCall,
    ToolRun,
    Turn,
)

SYSTEM = "You are a careful engineer who reads before writing, and who says little. " * 8


@pytest.fixture(scope="module")
def saying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saying]:
    with saying_server(tmp_path_factory.mktemp("agents")) as saying:
        yield saying


@pytest.fixture
def client(saying: Saying) -> Iterator[Client]:
    saying.server.http.post("/v1/cache/flush").raise_for_status()
    with Client(saying.server.url, timeout=20) as client:
        yield client
    for info in saying.server.http.get("/v1/sessions").json()["data"]:
        saying.server.http.delete(f"/v1/sessions/{info['id']}")
    drain(saying.server)


def wanted(*calls: tuple[str, dict[str, Any]]) -> str:
    """What the model says to call functions."""
    texts = (json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls)
    return "\n".join(f"<tool_call>{text}</tool_call>" for text in texts)


@dataclass
class Script:
    """Makes the model say one thing after the other, a turn each."""

    saying: Saying
    lines: list[str]

    def next(self, _: Any = None) -> None:
        self.saying.says(self.lines.pop(0) if self.lines else "Done.")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def broken(why: str) -> str:
    """Always fails."""
    raise RuntimeError(f"no luck: {why}")


def run(session: Session, script: Script, text: str | None = "Go.", **options: Any) -> RunResult:
    script.next()
    return session.run(text, on_turn=script.next, **options)


# -- the loop of an agent ---------------------------------------------------------------------------------------------


def test_a_run_calls_the_functions_until_the_model_answers(saying: Saying, client: Client) -> None:
    script = Script(saying, [wanted(("add", {"a": 2, "b": 3})), wanted(("shout", {"text": "five"})), "It is FIVE."])
    with client.session(SYSTEM, tools=[add, shout]) as session:
        result = run(session, script)
        roles = [message["role"] for message in session.messages]
    assert (result.stopped, result.text, len(result.turns)) == ("answer", "It is FIVE.", 3)
    assert [(r.call.name, r.content, r.error) for r in result.tool_runs] == [
        ("add", "5", None),
        ("shout", "FIVE", None),
    ]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    for before, turn in itertools.pairwise(result.turns):
        assert turn.usage.cached_tokens >= before.usage.total_tokens - 1, "each turn is cached to the reply's end"


def test_what_goes_wrong_in_a_tool_is_told_to_the_model(saying: Saying, client: Client) -> None:
    calls = [("broken", {"why": "rain"}), ("add", {"a": "two", "b": 3}), ("add", {"a": 1, "b": 2, "c": 3}), ("fly", {})]
    script = Script(saying, [wanted(*calls), "I see."])
    with client.session(tools=[add, broken]) as session:
        result = run(session, script)
        told = [message["content"] for message in session.messages if message["role"] == "tool"]
    assert result.stopped == "answer"
    assert told == [r.content for r in result.tool_runs]
    assert told[0] == "error: RuntimeError: no luck: rain"
    assert "add: a: Input should be a valid integer" in told[1]
    assert "unknown argument 'c', expected a, b" in told[2]
    assert "there is no function 'fly'; there are: add, broken" in told[3]
    assert all(r.error is not None for r in result.tool_runs)


def test_a_tool_may_end_the_run_and_the_next_run_goes_on_with_its_call(saying: Saying, client: Client) -> None:
    attempts: list[str] = []

    def flaky(what: str) -> str:
        """Fails the first time."""
        attempts.append(what)
        if len(attempts) == 1:
            raise ConnectionError("the network is down")
        return "here it is"

    script = Script(saying, [wanted(("flaky", {"what": "page"}), ("add", {"a": 1, "b": 1})), "Fine."])
    with client.session(tools=[add, flaky]) as session:
        with pytest.raises(ConnectionError, match="the network is down"):
            run(session, script, on_error="raise")
        result = session.run(on_turn=script.next)
        told = [message["content"] for message in session.messages if message["role"] == "tool"]
    assert attempts == ["page", "page"]
    assert sorted(told) == ["2", "here it is"], "the call that had its result is not run again"
    assert result.text == "Fine." and [r.call.name for r in result.tool_runs] == ["flaky"]


def test_a_run_stops_at_its_last_turn_and_can_be_continued(saying: Saying, client: Client) -> None:
    script = Script(saying, [wanted(("add", {"a": 1, "b": n})) for n in range(3)] + ["Enough."])
    with client.session(tools=[add]) as session:
        result = run(session, script, max_turns=2)
        assert (result.stopped, len(result.turns), len(result.tool_runs)) == ("max_turns", 2, 1)
        with pytest.raises(ValueError, match="needs a result for every tool call"):
            session.send()
        rest = session.run(on_turn=script.next)
        assert (rest.stopped, rest.text, [r.content for r in rest.tool_runs]) == ("answer", "Enough.", ["2", "3"])
        with pytest.raises(ValueError, match="nothing to send"):
            session.run()


def test_callbacks_see_everything_and_may_answer_in_place_of_a_tool(saying: Saying, client: Client) -> None:
    seen: list[Any] = []
    script = Script(saying, [wanted(("shout", {"text": "rm"}), ("shout", {"text": "ls"})), "As you wish."])

    def on_turn(turn: Turn) -> None:
        seen.append(turn)
        script.next()

    def approve(call: ToolCall) -> str | None:
        seen.append(call)
        return "refused by the user" if "rm" in call.arguments else None

    deltas: list[str] = []
    with client.session(tools=[shout]) as session:
        script.next()
        result = session.run("Go.", on_turn=on_turn, on_call=approve, on_result=seen.append, on_delta=deltas.append)
    assert [type(one) for one in seen] == [Turn, ToolCall, ToolRun, ToolCall, ToolRun, Turn]
    assert [r.content for r in result.tool_runs] == ["refused by the user", "LS"]
    assert "".join(deltas) == "As you wish."


def test_each_turn_of_a_run_may_be_sampled_in_its_own_way(saying: Saying, client: Client) -> None:
    script = Script(saying, [wanted(("shout", {"text": "hi"})), "One two three four five six."])
    numbers: list[int] = []

    def before(number: int) -> dict[str, Any] | None:
        numbers.append(number)
        script.next()
        return {"max_tokens": 3} if number else None

    with client.session(tools=[shout]) as session:
        result = session.run("Go.", before_turn=before, max_tokens=100)
        assert numbers == [0, 1] and result.stopped == "answer"
        assert result.turn.finish_reason == "length" and result.turn.usage.completion_tokens == 3
        with pytest.raises(TypeError, match="before_turn: got 'hot', expected a mapping"):
            session.run("Go.", before_turn=lambda _: "hot")
        assert session.mark() == 2


def test_async_tools_run_at_the_same_time(saying: Saying, client: Client) -> None:
    together = threading.Barrier(2, timeout=10)
    met = asyncio.Event()

    def in_thread(n: int) -> int:
        """Waits for its twin."""
        together.wait()
        return n

    async def waits() -> str:
        """Waits for the other."""
        await asyncio.wait_for(met.wait(), 10)
        return "met"

    async def meets() -> str:
        """Lets the other go on."""
        met.set()
        return "meets"

    async def main() -> RunResult:
        calls = [("in_thread", {"n": 1}), ("waits", {}), ("in_thread", {"n": 2}), ("meets", {})]
        script = Script(saying, [wanted(*calls), "Both."])
        async with (
            AsyncClient(saying.server.url) as aclient,
            aclient.session(tools=[in_thread, waits, meets]) as session,
        ):
            script.next()

            async def on_turn(_: Turn) -> None:
                script.next()

            return await session.run("Go.", on_turn=on_turn)

    result = asyncio.run(main())
    assert [r.content for r in result.tool_runs] == ["1", "met", "2", "meets"], "in the order of the calls"
    assert result.text == "Both."


def test_async_functions_in_a_synchronous_session_are_refused_where_they_are_given(client: Client) -> None:
    async def later() -> str:
        """Cannot be awaited here."""
        return "never"

    with pytest.raises(TypeError, match="later: got an async function"):
        client.session(tools=[later])
    with client.session(tools=[add]) as session:
        with pytest.raises(TypeError, match="later: got an async function"):
            session.add_tools(later)
        with pytest.raises(TypeError, match="on_call: got an async function"):
            session.run("Go.", on_call=lambda_async)
        assert session.mark() == 0


async def lambda_async(_: Any) -> None:
    """A callback that would have to be awaited."""


@pytest.mark.parametrize("wrong", ["max_token", "temprature", "max_turn", "on_eror"])
def test_a_misspelt_argument_is_not_dropped(client: Client, wrong: str) -> None:
    with client.session() as session:
        with pytest.raises(TypeError, match=f"{wrong}: there is no such field; did you mean "):
            session.run("Go.", **{wrong: 3})
        if wrong.startswith(("max_token", "temp")):
            for call in (session.send, lambda text, **f: client.chat([{"role": "user", "content": text}], **f)):
                with pytest.raises(TypeError, match="did you mean"):
                    call("Go.", **{wrong: 3})
        session.send("Go.", something_else_altogether=1, extra_body={"max_token": 3})
        assert session.mark() == 1


def test_results_are_written_as_json_and_what_cannot_be_is_told(saying: Saying, client: Client) -> None:
    values: list[Any] = [{"when": date(2026, 1, 5)}, {3}, Path("a/b"), "caf\udce9.txt", ["caf\udce9"], object()]

    def give(n: int) -> Any:
        """Something."""
        return values[n]

    script = Script(saying, [wanted(*(("give", {"n": n}) for n in range(len(values)))), "Thanks."])
    with client.session(tools=[give]) as session:
        result = run(session, script)
        told = [message["content"] for message in session.messages if message["role"] == "tool"]
    assert told[:5] == ['{"when": "2026-01-05"}', "[3]", '"a/b"', "caf\\udce9.txt", '["caf\\udce9"]']
    assert told[5].startswith("error: TypeError: the tool give returned what JSON cannot carry")
    assert result.text == "Thanks."


def test_cancelling_a_run_ends_its_tools_and_leaves_the_session_usable(saying: Saying, client: Client) -> None:
    ended: list[bool] = []

    async def main() -> None:
        started = asyncio.Event()

        async def slow() -> str:
            """Takes for ever."""
            started.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(True)
            return "never"

        script = Script(saying, [wanted(("slow", {})), "On we go."])
        async with AsyncClient(saying.server.url) as aclient, aclient.session(tools=[slow]) as session:
            script.next()
            task = asyncio.create_task(session.run("Go."))
            await asyncio.wait_for(started.wait(), 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            (call,) = (call for message in session.messages for call in message.get("tool_calls") or [])
            session.tool_result(call["id"], "cancelled by the user")
            script.next()
            assert (await session.send()).text == "On we go."

    asyncio.run(main())
    assert ended == [True]


def test_slow_tools_hold_a_lease_and_quick_ones_do_not_ask(saying: Saying, client: Client) -> None:
    script = Script(saying, [wanted(("add", {"a": 1, "b": n})) for n in range(4)])
    with client.session(tools=[add]) as session:
        run(session, script)
        events = [event["event"] for event in session.explain().events]
        assert [wait.tool for wait in session.waits] == ["add"] * 4
    assert events.count("wait") == 1, "after its first run the tool is known to be quick"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_turns": 0}, "max_turns: got 0"),
        ({"on_error": "hide"}, "on_error: got 'hide'"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_bad_options_are_refused_before_anything_is_sent(client: Client, options: dict[str, Any], words: str) -> None:
    with client.session(tools=[add]) as session:
        with pytest.raises(ValueError, match=words):
            session.run("Go.", **options)
        assert session.mark() == 0


# -- forks that are taken over ----------------------------------------------------------------------------------------


def test_a_session_goes_on_with_what_its_fork_came_to(saying: Saying, client: Client) -> None:
    saying.says("Yes.")
    with client.session(SYSTEM) as session:
        first = session.send("One?")
        left, right = session.fork(2)
        best = left.send("Left?")
        right.send("Right?")
        known = session.id
        session.adopt(left)
        right.close()
        assert session.id == known and session.mark() == 2
        assert [m["content"] for m in session.messages[1::2]] == ["One?", "Left?"]
        turn = session.send("Go on.")
        assert turn.usage.cached_tokens >= best.usage.total_tokens - 1
        info = client.resume(known or "").open()
        assert info.messages == session.messages
        with pytest.raises(AgentCacheError, match="closed"):
            left.send("Still there?")
        assert len(client.sessions()) == 1
        assert [row.sent for row in session.report().rows] == [
            t.usage.prompt_tokens for t in (first, best, turn)
        ]  # fmt: skip


def test_turns_that_the_fork_does_not_have_are_dropped(saying: Saying, client: Client) -> None:
    saying.says("Yes.")
    with client.session(SYSTEM) as session:
        session.send("One?")
        (fork,) = session.fork()
        fork.send("Two, in the fork.")
        session.send("Two, in the session.")
        session.send("Three, in the session.")
        session.adopt(fork)
        assert [m["content"] for m in session.messages[1::2]] == ["One?", "Two, in the fork."]
        session.send("Three.")
        session.rollback(1)
        assert session.mark() == 1


def test_only_forks_of_the_session_itself_can_be_adopted(saying: Saying, client: Client) -> None:
    with client.session(SYSTEM) as session, client.session(SYSTEM) as stranger:
        with pytest.raises(ValueError, match="got another session, expected a fork of this one"):
            session.adopt(stranger)
        with pytest.raises(ValueError, match="got the session itself"):
            session.adopt(session)


def test_a_fork_adopts_neither_its_parent_nor_its_siblings(saying: Saying, client: Client) -> None:
    saying.says("Yes.")
    with client.session(SYSTEM) as session:
        session.send("One?")
        left, right = session.fork(2)
        (child,) = left.fork()
        left.send("Two?")
        for taker, taken in ((left, session), (left, right), (child, left), (child, session), (right, child)):
            with pytest.raises(ValueError, match="expected one of its own forks"):
                taker.adopt(taken)
        child.send("Three?")
        session.adopt(child)
        assert [m["content"] for m in session.messages[1::2]] == ["One?", "Three?"]
        session.adopt(left)
        assert session.messages[3]["content"] == "Two?", "all that was refused is as it was"


@pytest.mark.parametrize("wrong", [None, "1", 0.5])
def test_a_rollback_to_nowhere_leaves_the_session_usable(saying: Saying, client: Client, wrong: Any) -> None:
    saying.says("Yes.")
    with client.session(SYSTEM) as session:
        session.send("One?")
        session.send("Two?")
        with pytest.raises(TypeError, match="to_turn: got "):
            session.rollback(wrong)
        session.send("Three?")
        assert session.mark() == 3


def test_an_adoption_never_undoes_another_clients_turn(saying: Saying, client: Client) -> None:
    saying.says("Yes.")
    with client.session(SYSTEM) as session:
        session.send("One?")
        (fork,) = session.fork()
        fork.send("Two?")
        client.resume(session.id or "").send("From elsewhere.")
        with pytest.raises(SessionDiverged):
            session.adopt(fork)
        assert fork.send("Three?").text == "Yes.", "the fork is as it was"


def test_tool_results_that_wait_in_the_fork_come_along(saying: Saying, client: Client) -> None:
    script = Script(saying, [wanted(("add", {"a": 1, "b": 2})), "Three."])
    with client.session(SYSTEM, tools=[add]) as session:
        (fork,) = session.fork()
        script.next()
        (call,) = fork.send("Add.").tool_calls
        fork.tool_result(call.id, 3)
        session.adopt(fork)
        script.next()
        assert session.send().text == "Three."


# -- tools that come later --------------------------------------------------------------------------------------------


def test_added_tools_leave_the_beginning_cached_and_can_be_called(saying: Saying, client: Client) -> None:
    script = Script(saying, ["Hello.", wanted(("shout", {"text": "hi"})), "Done.", "Bye."])
    with client.session(SYSTEM, tools=[add]) as session:
        script.next()
        before = session.send("Hello?")
        session.add_tools(shout, add)
        result = run(session, script, "Shout.")
        assert [r.content for r in result.tool_runs] == ["HI"]
        assert result.turns[0].usage.cached_tokens >= before.usage.total_tokens - 1
        with pytest.raises(ValueError, match="another tool called 'shout'"):
            session.add_tools({"type": "function", "function": {"name": "shout", "parameters": {}}})
        session.rollback(1)
        script.next()
        session.send("Again without it.")
        assert client.resume(session.id or "").open()._core.transcript.known_tools.keys() == {"add"}


def test_a_turn_that_fails_adds_its_tools_again(saying: Saying, client: Client) -> None:
    script = Script(saying, [wanted(("shout", {"text": "hi"})), "Done."])
    with client.session(SYSTEM) as session:
        session.add_tools(shout)
        with pytest.raises(BadRequest):
            session.send("Go.", temperature=-1)
        result = run(session, script)
        assert [r.content for r in result.tool_runs] == ["HI"]


def test_a_resumed_session_takes_functions_for_its_tools_and_new_ones(saying: Saying, client: Client) -> None:
    script = Script(saying, ["Hello.", wanted(("add", {"a": 1, "b": 2}), ("shout", {"text": "hi"})), "Done."])
    with client.session(SYSTEM, tools=[add]) as session:
        script.next()
        session.send("Hello?")
        again = client.resume(session.id or "", tools=[add, shout]).open()
        result = run(again, script)
        assert [r.content for r in result.tool_runs] == ["3", "HI"]


# -- compaction -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error::agentcache_sdk.CacheWarning")
def test_a_compaction_keeps_the_head_cached_and_is_reported(saying: Saying, client: Client) -> None:
    saying.says("Yes, of course.")
    with client.session(SYSTEM, tools=[add]) as session:
        for number in range(4):
            session.send(f"Question {number}? " + "More words about it. " * 20)
        before = session.report()
        saying.says("We talked about questions 0 to 2.")
        done = session.compact(keep_turns=1)
        assert (done.turns_dropped, done.turns_kept, done.summary) == (3, 1, "We talked about questions 0 to 2.")
        assert done.tokens_after is not None and done.tokens_after < done.tokens_before
        assert done.summary_computed > 0 and session.mark() == 0
        saying.says("Yes.")
        turn = session.send("And now?")
        assert done.recomputed is not None and abs(turn.cache.computed_tokens - done.recomputed) < 24
        assert turn.usage.cached_tokens >= before.rows[0].sent - 160, "the head stays cached"
        assert abs(turn.usage.prompt_tokens - done.tokens_after) < 24
        texts = [m["content"] for m in session.messages]
        assert texts[1].startswith("Summary of the conversation so far:\nWe talked") and "Question 3?" in texts[1]
        report = session.report()
        assert report.rows[: len(before.rows)] == before.rows and report.rows[-1].lost == 0
        assert "AC403" in report.rows[-1].why and "AC403 compacted 3 turns" in str(report)
        assert len(client.sessions()) == 1


def test_a_summary_stays_whoever_goes_on(saying: Saying, client: Client) -> None:
    saying.says("Yes.")
    with client.session(SYSTEM) as session:
        session.send("One?")
        done = session.compact("We said hello.", keep_turns=0)
        assert done.summary_computed == 0 and str(done).startswith("AC403 compacted 1 turn: ")
        said = ["Summary of the conversation so far:\nWe said hello.", "I will go on from there."]
        assert [m["content"] for m in session.messages[1:]] == said
        session.snapshot("compacted")
        with client.restore("compacted") as restored:
            assert restored.messages == session.messages
        again = client.resume(session.id or "").open()
        again.send("Two?")
        assert [m["content"] for m in again.messages[1:]] == [*said, "Two?", "Yes."]
        again.rollback(0)
        assert [m["content"] for m in again.messages[1:]] == said


@pytest.mark.parametrize("keep", [0, 1])
def test_a_compaction_never_drops_what_another_client_said(saying: Saying, client: Client, keep: int) -> None:
    saying.says("Yes.")
    with client.session(SYSTEM) as session:
        session.send("One?")
        session.send("Two?")
        other = client.resume(session.id or "")
        other.send("From elsewhere.")
        with pytest.raises(SessionDiverged):
            session.compact("We said hello.", keep_turns=keep)
        assert session.mark() == 2 and len(client.sessions()) == 1
        other.send("Still here?")


def test_a_result_never_loses_its_call_to_a_compaction(saying: Saying, client: Client) -> None:
    script = Script(saying, [wanted(("add", {"a": 1, "b": 2})), "Three.", "Summary.", "Fine."])
    with client.session(SYSTEM, tools=[add]) as session:
        run(session, script)
        done = session.compact(keep_turns=1)
        assert done.turns_dropped == 0 and str(done) == "nothing to compact"
        script.lines = [wanted(("add", {"a": 1, "b": 2})), "Fine."]
        script.next()
        session.send("Again.")
        with pytest.raises(ValueError, match="wait for their results"):
            session.compact("All of it.", keep_turns=0)
        session.compact("The first question.", keep_turns=1)
        assert session.run(on_turn=script.next).text == "Fine."


def test_added_tools_are_announced_again_after_a_compaction(saying: Saying, client: Client) -> None:
    script = Script(saying, ["Yes.", wanted(("shout", {"text": "hi"})), "Done."])
    with client.session(SYSTEM, tools=[add]) as session:
        session.add_tools(shout)
        script.next()
        session.send("Hello?")
        session.compact("We said hello.", keep_turns=0)
        assert [r.content for r in run(session, script).tool_runs] == ["HI"]


def test_nothing_else_runs_during_a_compaction(saying: Saying, client: Client) -> None:
    saying.says("Yes.")
    with client.session(SYSTEM) as session:
        session.send("One?")
        with session.stream("Two?") as stream:
            with pytest.raises(Busy):
                session.compact("No.")
            stream.result()
        with pytest.raises(ValueError, match="keep_turns: got -1"):
            session.compact("No.", keep_turns=-1)
