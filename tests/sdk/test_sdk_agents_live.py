"""Adopted forks, added tools and compactions on a real server whose model says what it is told."""

from __future__ import annotations

from typing import Any

import pytest
from saying import Saying
from scripted_sessions import SYSTEM, Script, add, run, shout, wanted

from agentcache_sdk import (
    AgentCacheError,
    BadRequest,
    Busy,
    Client,
    SessionDiverged,
)


@pytest.fixture
def client(scripted_client: Client) -> Client:
    return scripted_client


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
