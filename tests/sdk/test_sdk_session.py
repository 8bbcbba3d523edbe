"""A session only grows, comes back unharmed from failures, and forks and rolls back whole turns.

Everything here holds whether the server holds the session or gets its messages anew with every turn.
"""

from __future__ import annotations

import itertools
import threading

import pytest
import sdk_wire
from sdk_wire import WireServer

from agentcache_sdk import AgentCacheError, Busy, Client, ConnectionFailed, ServerError

pytestmark = pytest.mark.usefixtures("any_wire")
SYSTEM = "You are a careful engineer. " * 8


def read_file(path: str) -> str:
    """Read a file."""
    return path


def test_every_turn_resends_the_messages_of_the_turn_before_unchanged(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM, tools=[read_file]) as session:
        for text in ("one", "two", "three"):
            session.send(text)
    first, second, third = wire.prompts
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert third["messages"][: len(second["messages"])] == second["messages"]
    assert [m["role"] for m in third["messages"]] == ["system", *["user", "assistant"] * 2, "user"]
    assert first["tools"] == third["tools"]


def test_cached_tokens_cover_the_previous_prompt_and_reply(client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        turns = [session.send(f"question {i}") for i in range(4)]
    assert turns[0].usage.cached_tokens == 0
    for before, after in itertools.pairwise(turns):
        assert after.usage.cached_tokens >= before.usage.total_tokens - 2


def test_volatile_text_lands_last_and_stays_in_the_history_as_sent(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        session.send("What is open?", volatile={"now": "10:31", "budget left": 12})
        second = session.send("And now?", volatile={"now": "10:32"})
    assert wire.prompts[0]["messages"][-1]["content"] == "What is open?\n\nnow: 10:31\nbudget left: 12"
    assert wire.prompts[1]["messages"][1] == wire.prompts[0]["messages"][1]
    assert wire.prompts[1]["messages"][-1]["content"].endswith("now: 10:32")
    assert second.usage.cached_tokens > len(SYSTEM)


def test_tool_results_are_sent_with_the_next_turn(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM, tools=[read_file]) as session:
        turn = session.send("use the tool")
        call = turn.tool_calls[0]
        assert (call.name, call.args, turn.text) == ("read_file", {"path": "README.md"}, "")
        with session.waiting(call.name, expect_s=1):
            session.tool_result(call.id, {"lines": 3})
        session.send(volatile={"now": "noon"})
        assert session.waits[0].tool == "read_file"
    sent = wire.prompts[1]["messages"]
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "user"]
    assert sent[2]["tool_calls"][0]["function"]["arguments"] == '{"path": "README.md"}'
    assert sent[3] == {"role": "tool", "tool_call_id": call.id, "content": '{"lines": 3}'}
    assert sent[4]["content"] == "now: noon"


def test_a_result_for_an_unknown_call_names_the_open_ones(client: Client) -> None:
    with client.session(tools=[read_file]) as session:
        call = session.send("use the tool").tool_calls[0]
        with pytest.raises(ValueError, match=rf"got call id 'other', expected one of \['{call.id}'\]"):
            session.tool_result("other", "x")
        with pytest.raises(ValueError, match=f"result for every tool call.*{call.id}"):
            session.send()
        session.tool_result(call.id, "x")
        with pytest.raises(ValueError, match="no call is open"):
            session.tool_result(call.id, "twice")


def test_a_turn_without_anything_to_say_is_refused(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM) as session, pytest.raises(ValueError, match="nothing to send"):
        session.send()
    assert wire.chats == []


@pytest.mark.parametrize("name", ["tools", "messages", "model", "n", "stream"])
def test_what_belongs_to_the_session_cannot_be_changed_by_a_turn(client: Client, name: str) -> None:
    with client.session() as session:
        with pytest.raises(TypeError, match=name):
            session.send("hi", **{name: 2})
        assert session.send("hi").text


def test_a_failed_turn_leaves_the_session_as_it_was(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM, tools=[read_file]) as session:
        call = session.send("use the tool").tool_calls[0]
        session.tool_result(call.id, "three lines")
        before = session.messages
        wire.faults.append(sdk_wire.error(500))
        with pytest.raises(ServerError):
            session.send("go on")
        assert session.messages == before
        session.send("go on")
    assert wire.chats[-1] == wire.chats[-2]


def test_a_stream_that_is_left_early_leaves_the_session_as_it_was(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        first = session.send("one")
        before = session.messages
        wire.faults.append(sdk_wire.stream_then(sdk_wire.go_on_until_hung_up))
        with session.stream("two") as stream:
            assert next(iter(stream)) == "piece0 "
        assert wire.hung_up.wait(5), "the server must see the client go"
        with pytest.raises(AgentCacheError, match="closed before its end"):
            stream.result()
        assert session.messages == before
        second = session.send("two")
    assert second.usage.cached_tokens >= first.usage.total_tokens - 2


def test_a_stream_that_breaks_leaves_the_session_as_it_was(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        wire.faults.append(sdk_wire.stream_then(sdk_wire.Handler.reset))
        with pytest.raises(ConnectionFailed), session.stream("one") as stream:
            stream.result()
        assert [m["role"] for m in session.messages] == ["system"]
        assert session.send("one").text


def test_stream_and_send_give_the_same_turn(wire: WireServer, client: Client) -> None:
    message = {"role": "assistant", "content": "Grüße 👋, \u2028 end."}
    wire.replies.extend([message, message])
    with client.session(system=SYSTEM) as one, client.session(system=SYSTEM) as two:
        sent = one.send("hi", return_token_ids=True)
        with two.stream("hi", return_token_ids=True) as stream:
            deltas = list(stream)
        streamed = stream.result()
        assert one.messages == two.messages
    assert "".join(deltas) == sent.text == streamed.text == message["content"]
    assert streamed.token_ids == sent.token_ids == list(sent.text.encode())
    assert streamed.finish_reason == sent.finish_reason == "stop"
    assert streamed.usage.prompt_tokens == sent.usage.prompt_tokens
    assert streamed.cache.page_size == sent.cache.page_size == 16
    assert streamed.cache.cached_tokens == sent.usage.prompt_tokens - 1


def test_streamed_tool_calls_are_put_together(client: Client) -> None:
    with client.session(tools=[read_file]) as session:
        with session.stream("use the tool") as stream:
            assert list(stream) == []
        turn = stream.result()
        assert turn.tool_calls[0].arguments == '{"path": "README.md"}'
        assert turn.finish_reason == "tool_calls"
        assert session.messages[-1]["content"] is None
        session.tool_result(turn.tool_calls[0].id, "done")
        assert session.send().text


def test_a_second_turn_at_once_is_busy(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM) as session, session.stream("one") as stream:
        with pytest.raises(Busy) as caught:
            session.send("two")
        assert (caught.value.status, caught.value.code) == (429, "session_busy")
        for action in (lambda: session.rollback(0), lambda: session.tool_result("x", "y")):
            with pytest.raises(Busy):
                action()
        stream.result()
        session.send("two")
    assert len(wire.chats) == 2


def test_only_one_of_many_threads_gets_the_turn(wire: WireServer, client: Client) -> None:
    release = threading.Event()
    outcomes: list[str] = []
    with client.session() as session:
        wire.faults.append(lambda _: release.wait(5))

        def run(text: str) -> None:
            try:
                outcomes.append(session.send(text).text)
            except Busy:
                outcomes.append("busy")
                if outcomes.count("busy") == 3:
                    release.set()

        threads = [threading.Thread(target=run, args=(f"t{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert outcomes.count("busy") == 3
        assert len(session.messages) == 2


def test_forks_share_the_past_and_go_their_own_ways(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        first = session.send("one")
        left, right = session.fork(2)
        a, b = left.send("to the left"), right.send("to the right")
        session.send("straight on")
        assert a.usage.cached_tokens >= first.usage.total_tokens - 2
        assert b.usage.cached_tokens >= first.usage.total_tokens - 2
        assert left.messages[:3] == right.messages[:3] == session.messages[:3]
        assert [s.messages[3]["content"] for s in (left, right, session)] == [
            "to the left",
            "to the right",
            "straight on",
        ]
        (head,) = session.fork(at_turn=0)
        assert [m["role"] for m in head.messages] == ["system"]


def test_a_fork_of_a_running_session_begins_after_its_last_finished_turn(client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        session.send("one")
        with session.stream("two") as stream:
            next(iter(stream))
            (fork,) = session.fork()
            assert len(fork.messages) == 3
            assert fork.send("else").text
            stream.result()
        assert (len(session.messages), len(fork.messages)) == (5, 5)


def test_rollback_keeps_whole_turns(wire: WireServer, client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        session.send("one")
        here = session.mark()
        kept = session.messages
        session.send("two")
        session.send("three")
        session.rollback(here)
        assert session.messages == kept
        session.send("two again")
        with pytest.raises(ValueError, match="got turn 3, expected between 0 and 2"):
            session.rollback(3)
        session.rollback(to_turn=0)
        assert [m["role"] for m in session.messages] == ["system"]
    assert wire.prompts[-1]["messages"][:3] == list(kept)


def test_rollback_drops_results_that_were_not_sent_and_a_fork_keeps_them(client: Client) -> None:
    with client.session(tools=[read_file]) as session:
        call = session.send("use the tool").tool_calls[0]
        session.tool_result(call.id, "wrong")
        (fork,) = session.fork()
        session.rollback(session.mark())
        session.tool_result(call.id, "right")
        assert (fork.messages[-1]["content"], session.messages[-1]["content"]) == ("wrong", "right")
        assert session.send().text


def test_messages_are_a_view_that_cannot_change_the_session(client: Client) -> None:
    with client.session(system=SYSTEM, tools=[read_file]) as session:
        session.send("use the tool")
        seen = session.messages
        seen[0]["content"] = "other"
        seen[2]["tool_calls"][0]["function"]["arguments"] = "other"
        assert session.messages[0]["content"] == SYSTEM
        assert session.messages[2]["tool_calls"][0]["function"]["arguments"] == '{"path": "README.md"}'


def test_a_closed_session_refuses_turns(client: Client) -> None:
    session = client.session()
    session.send("one")
    session.close()
    session.close()
    for action in (lambda: session.send("two"), lambda: session.fork(1), lambda: session.rollback(0)):
        with pytest.raises(AgentCacheError, match="closed"):
            action()


def test_closing_while_a_turn_runs_drops_the_turn(client: Client) -> None:
    session = client.session(system=SYSTEM)
    with session.stream("one") as stream:
        session.close()
        with pytest.raises(AgentCacheError, match="closed while this turn ran"):
            stream.result()
    assert len(session.messages) == 1


@pytest.mark.parametrize(
    ("ttl", "fine"),
    [("30m", True), (90, True), ("7d", True), ("8d", False), (0, False), ("x", False), (float("nan"), False)],
)
def test_ttl_is_checked(client: Client, ttl: str | float, fine: bool) -> None:
    if fine:
        client.session(ttl=ttl).close()
    else:
        with pytest.raises(ValueError, match="ttl: got"):
            client.session(ttl=ttl)


def test_the_report_shows_what_each_turn_cost_and_why(
    wire: WireServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    miss = {"code": "evicted", "at_token": 16, "detail": "pages were needed"}
    wire.reports.extend([{}, {"cached_tokens": 16, "miss": miss}])
    with client.session(system=SYSTEM, ignore="AC8") as session:
        first, second = session.send("one"), session.send("two")
        report = session.report()
    row = report.rows[1]
    assert (row.sent, row.cached, row.lost) == (second.usage.prompt_tokens, 16, first.usage.prompt_tokens - 16)
    assert row.computed == second.cache.computed_tokens
    printed = str(report)
    assert "\x1b" not in printed
    assert "AC801 evicted: pages were needed" in printed
    assert row.fix and row.fix.split()[0] in printed
    assert report.sent == first.usage.prompt_tokens + second.usage.prompt_tokens and report.lost == row.lost
    assert f"{first.usage.prompt_tokens - 16:,}" in printed


def test_replies_are_replayed_with_the_fields_that_the_server_gave(wire: WireServer, client: Client) -> None:
    wire.replies.append({"role": "assistant", "content": "4", "reasoning_content": "2+2", "refusal": None})
    with client.session() as session:
        session.send("sum?")
        session.send("sure?")
    assert wire.prompts[1]["messages"][1] == {"role": "assistant", "content": "4", "reasoning_content": "2+2"}
