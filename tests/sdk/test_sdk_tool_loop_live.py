"""The loop of an agent on a real server whose model says what it is told."""

from __future__ import annotations

import asyncio
import itertools
import threading
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from saying import Saying
from scripted_sessions import SYSTEM, Script, add, run, shout, wanted

from agentcache_sdk import (
    AsyncClient,
    Client,
    RunResult,
    ToolCall,
    ToolRun,
    Turn,
)


@pytest.fixture
def client(scripted_client: Client) -> Client:
    return scripted_client


def broken(why: str) -> str:
    """Always fails."""
    raise RuntimeError(f"no luck: {why}")


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
