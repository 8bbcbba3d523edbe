"""What the fake engine adds to a server: scripts, faults, a clock, and assertions about what was sent."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from agentcache_sdk import (
    AgentCacheError,
    BadRequest,
    Busy,
    CacheWarning,
    ConnectionFailed,
    ContextOverflow,
    NotFound,
    RateLimited,
    ServerError,
    Timeout,
)
from agentcache_sdk.testing import (
    URL,
    FakeEngine,
    ScriptedCall,
    ScriptExhausted,
    call,
    delay,
    error,
    hang_up,
    lose_answer,
    refuse_connection,
    reply,
    silence,
)

SYSTEM = "You are a careful engineer. Read before you write, and run the tests before you say that you are done. " * 2
HELLO = [{"role": "user", "content": "Hello"}]


def read_file(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


def chat_texts(engine: FakeEngine, count: int) -> list[str]:
    with engine.client() as client:
        return [client.chat(HELLO).text for _ in range(count)]


# Scripts


def test_replies_are_given_in_order_and_what_is_no_list_is_given_for_ever() -> None:
    assert chat_texts(FakeEngine(["One.", {"two": 2}]), 2) == ["One.", '{"two": 2}']
    assert chat_texts(FakeEngine("Again."), 3) == ["Again."] * 3
    assert chat_texts(FakeEngine(), 2) == ["Reply 1.", "Reply 2."]
    assert chat_texts(FakeEngine(lambda request: f"{request.number}: {request.text}"), 2) == ["0: Hello", "1: Hello"]
    assert chat_texts(FakeEngine(["First.", lambda request: request.text.upper()]), 2) == ["First.", "HELLO"]


def test_a_script_that_is_over_says_what_was_asked() -> None:
    engine = FakeEngine(["Only this."])
    with engine.client() as client, client.session(SYSTEM, tools=[read_file]) as session:
        session.send("First.")
        with pytest.raises(
            ScriptExhausted, match=r"1 replies, and all were given when request 1 .*read_file.*'Second\.'"
        ):
            session.send("Second.")
        assert session.mark() == 1
        assert engine.requests[1].outcome == "script_exhausted"
    with pytest.raises(AssertionError, match="when request 1"):
        engine.assert_script_done()  # also for an agent that swallows every error


def test_a_script_that_is_not_over_says_what_is_left() -> None:
    engine = FakeEngine(["One.", "Two."])
    engine.when("never asked", ["Three."], name="the reviewer")
    assert chat_texts(engine, 1) == ["One."]
    with pytest.raises(AssertionError, match=r"(?s)the reviewer: 1 of 1 .*'Three\.'.*the script: 1 of 2 .*'Two\.'"):
        engine.assert_script_done()
    with engine.client() as client:
        client.chat(HELLO)
        client.chat([{"role": "user", "content": "never asked, until now"}])
    engine.assert_script_done()


def test_calls_come_with_ids_arguments_and_words_beside_them() -> None:
    said = reply("Both.", calls=[call("read_file", path="a.py"), ScriptedCall("odd", "{not json")], reasoning="Hm.")
    engine = FakeEngine([[call("f", x=1), call("g")], ["Look: ", call("f")], said])
    with engine.client() as client:
        first, second, third = (client.chat(HELLO) for _ in range(3))
        assert [(made.name, made.args) for made in first.tool_calls] == [("f", {"x": 1}), ("g", {})]
        assert len({made.id for made in (*first.tool_calls, *second.tool_calls)}) == 3
        assert (second.text, second.finish_reason) == ("Look: ", "tool_calls")
        assert third.message["reasoning_content"] == "Hm."
        with pytest.raises(ValueError, match="not JSON"):
            _ = third.tool_calls[1].args


@pytest.mark.parametrize("streamed", [False, True])
def test_streams_and_whole_replies_say_the_same(streamed: bool) -> None:
    engine = FakeEngine(
        lambda _: reply("Ünïcode and more, 你好.", calls=[call("f", text="ü")], reasoning="Let me see.")
    )
    with engine.client() as client:
        if streamed:
            with client.stream_chat(HELLO, return_token_ids=True) as stream:
                pieces = list(stream)
            assert len(pieces) > 3
            turn = stream.result()
        else:
            turn = client.chat(HELLO, return_token_ids=True)
    assert turn.text == "Ünïcode and more, 你好."
    assert turn.tool_calls[0].args == {"text": "ü"}
    assert turn.message["reasoning_content"] == "Let me see."
    assert len(turn.token_ids or ()) == turn.usage.completion_tokens - 1  # the end token is counted and not told
    assert (turn.usage.prompt_tokens, turn.usage.completion_tokens) == (9, 41)


@pytest.mark.parametrize("limit", range(1, 35))
def test_a_reply_is_cut_after_any_token(limit: int) -> None:
    said = reply("Some words.", calls=[call("f", x=1)], reasoning="Let me see.")
    with FakeEngine([said, "Go on."]).client() as client, client.session(SYSTEM) as session:
        turn = session.send("Go.", max_tokens=limit)
        assert turn.finish_reason == "length"
        assert bool(turn.tool_calls) == (limit == 34)
        assert turn.usage.completion_tokens == limit
        assert "Some words.".startswith(turn.text)
        if turn.tool_calls:
            session.tool_result(turn.tool_calls[0].id, "x")
        following = session.send("And?")
        assert following.usage.cached_tokens >= turn.usage.prompt_tokens


def test_what_is_no_reply_is_refused_with_the_value() -> None:
    with FakeEngine([42]).client() as client, pytest.raises(TypeError, match="got 42, expected a text"):
        client.chat(HELLO)
    with FakeEngine([call("f")]).client() as client, pytest.raises(TypeError, match="expected a text: it is no chat"):
        client.complete("Once")
    with pytest.raises(ValueError, match="page_size 0"):
        FakeEngine(page_size=0)
    with pytest.raises(TypeError, match="when: got 7"):
        FakeEngine().when(7, "x")


# Scripts of their own for some requests


def test_forks_that_run_at_once_have_scripts_of_their_own() -> None:
    engine = FakeEngine(["Read."])
    with engine.client() as client, client.session(SYSTEM) as session:
        session.send("Read a.py.")
        forks = session.fork(3)
        for number, fork in enumerate(forks):
            engine.when(fork, [f"{number} a", f"{number} b"])

        def work(fork: Any) -> list[str]:
            return [fork.send("Go.").text, fork.send("On.").text]

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(work, forks)) == [["0 a", "0 b"], ["1 a", "1 b"], ["2 a", "2 b"]]
    engine.assert_script_done()
    engine.assert_no_misses()


def test_the_first_route_that_matches_has_the_say() -> None:
    engine = FakeEngine("Nobody's.")
    engine.when(lambda request: "lint" in request.tool_names, "The linter's.")
    engine.when("You review", "The reviewer's.")
    engine.when("secret", "By the last message.")
    with engine.client() as client:
        review = client.chat([{"role": "system", "content": "You review."}, {"role": "user", "content": "a secret"}])
        other = client.chat([{"role": "user", "content": [{"type": "text", "text": "a secret"}]}])
        linted = client.chat(HELLO, tools=[{"type": "function", "function": {"name": "lint"}}])
        assert [turn.text for turn in (review, other, linted, client.chat(HELLO))] == [
            "The reviewer's.", "By the last message.", "The linter's.", "Nobody's.",
        ]  # fmt: skip


def test_many_threads_share_an_engine() -> None:
    engine = FakeEngine(lambda request: f"to {request.text}")
    with engine.client() as client, ThreadPoolExecutor(8) as pool:
        asked = [f"question {number}" for number in range(64)]
        said = list(pool.map(lambda text: client.chat([{"role": "user", "content": text}]).text, asked))
    assert said == [f"to {text}" for text in asked]
    assert [request.number for request in engine.requests] == list(range(64))


def test_asynchronous_turns_run_side_by_side() -> None:
    engine = FakeEngine(lambda request: f"to {request.text}, slowly and in several pieces")

    async def main() -> tuple[list[str], list[int]]:
        order: list[int] = []
        async with engine.async_client() as client, client.session(SYSTEM) as session:
            await session.send("Begin.")
            forks = await session.fork(3)

            async def read(number: int) -> str:
                async with forks[number].stream(f"fork {number}") as stream:
                    return "".join([piece async for piece in stream if order.append(number) is None])

            return list(await asyncio.gather(*(read(number) for number in range(3)))), order

    texts, order = asyncio.run(main())
    assert texts == [f"to fork {number}, slowly and in several pieces" for number in range(3)]
    assert order != sorted(order), "the streams did not run at once"
    engine.assert_no_misses()


# Faults


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        (error(400, param="tools"), BadRequest, "invalid_value"),
        (error(400, "context_length_exceeded"), ContextOverflow, "context_length_exceeded"),
        (error(429), RateLimited, "queue_full"),
        (error(429, "session_busy"), Busy, "session_busy"),
        (error(500), ServerError, "internal_server_error"),
        (error(418, "teapot", "short and stout"), BadRequest, "teapot"),
        (ServerError("as an exception", 500, "mine"), ServerError, "mine"),
    ],
)
def test_errors_are_what_the_client_raises(fault: Any, kind: type[Any], code: str) -> None:
    engine = FakeEngine([fault, "After it."])
    with engine.client(max_retries=0) as client, client.session(SYSTEM) as session:
        with pytest.raises(kind) as caught:
            session.send("Hello")
        assert caught.value.code == code
        assert session.send("Hello").text == "After it."
    assert [request.outcome for request in engine.requests] == [code, "replied"]


def test_the_client_tries_again_without_sleeping(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    faults = [refuse_connection(), error(503), error(429, retry_after=0.25), "At last."]
    engine = FakeEngine(list(faults))
    with engine.client(max_retries=3) as client:
        assert client.chat(HELLO).text == "At last."
    assert slept == [0.0, 0.0, 0.25]
    engine = FakeEngine([refuse_connection()] * 3)
    with engine.client() as client, pytest.raises(ConnectionFailed, match="cannot connect"):
        client.chat(HELLO)
    engine.assert_script_done()


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_connection_that_is_lost_in_a_stream_leaves_the_session_as_it_was(after: int) -> None:
    engine = FakeEngine([hang_up(after_chunks=after, then="One two three four."), "Again."])
    with engine.client() as client, client.session(SYSTEM) as session:
        pieces: list[str] = []
        with pytest.raises(ConnectionFailed, match="middle of the stream"), session.stream("Go.") as stream:
            pieces += stream
        assert pieces == ["One", " two", " three"][:after]
        assert session.mark() == 0
        assert session.send("Go.").text == "Again."
        assert engine.requests[0].outcome == "cut"
        assert len(client.sessions()[0].turns) == 1


def test_a_connection_that_is_lost_before_the_reply() -> None:
    engine = FakeEngine([hang_up(), lose_answer("Committed, and lost."), "Again."])
    with engine.client() as client, client.session(SYSTEM) as session:
        with pytest.raises(ConnectionFailed):
            session.send("Go.")
        with pytest.raises(ConnectionFailed):
            session.send("Go.")
        assert len(client.sessions()[0].turns) == 1, "the server has taken the turn"
        assert session.send("Go.").text == "Again."
        assert len(client.sessions()[0].turns) == 1, "the client had the lost turn dropped"
    assert [request.outcome for request in engine.requests] == ["cut", "replied", "replied"]
    client = FakeEngine([lose_answer()]).client()
    with pytest.raises(ConnectionFailed, match="middle of the stream"), client.stream_chat(HELLO) as stream:
        list(stream)


def test_an_error_in_the_middle_of_a_stream() -> None:
    engine = FakeEngine([error(503, after_chunks=2), error(503, after_chunks=2)])
    with engine.client(max_retries=0) as client:
        with pytest.raises(ServerError) as caught, client.stream_chat(HELLO) as stream:
            list(stream)
        assert (caught.value.code, caught.value.status) == ("shutting_down", 503)
        with pytest.raises(ServerError):
            client.chat(HELLO)


def test_delays_pass_on_the_engines_clock_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("slept"))
    engine = FakeEngine([delay(20, "Late."), delay(200), silence(), delay(9e9, error(500))])
    with engine.client(timeout=30) as client:
        assert client.chat(HELLO).text == "Late."
        for _ in range(3):
            with pytest.raises(Timeout):
                client.chat(HELLO)
    with FakeEngine([delay(200, "Very late."), silence()]).client(timeout=None) as client:
        assert client.chat(HELLO).text == "Very late."
        with pytest.raises(Timeout):
            client.chat(HELLO)


def test_exceptions_of_httpx_and_others_are_raised_as_they_are() -> None:
    engine = FakeEngine([httpx.ReadTimeout("slow"), KeyboardInterrupt(), "Fine."])
    with engine.client() as client, client.session(SYSTEM) as session:
        with pytest.raises(Timeout):
            session.send("Hello")
        with pytest.raises(KeyboardInterrupt):
            session.send("Hello")
        assert session.send("Hello").text == "Fine."


def test_a_session_runs_one_turn_at_a_time() -> None:
    engine = FakeEngine()
    with engine.client(max_retries=0) as client, client.session(SYSTEM) as session:
        other = client.resume(str(session.id))
        with session.stream("Go.") as stream:
            next(stream)
            with pytest.raises(Busy):
                other.send("Me too.")
            assert client.sessions()[0].id == session.id
        assert other.send("Now.").text == "Reply 2."
    with engine.client() as client, client.session(SYSTEM) as session, session.stream("Go.") as stream:
        next(stream)
        httpx.Client(base_url=URL, transport=engine.transport).delete(f"/v1/sessions/{session.id}")
        with pytest.raises(AgentCacheError, match="deleted while it generated"):
            list(stream)


# The cache


def test_figures_follow_a_conversation_to_the_token() -> None:
    engine = FakeEngine(["One two three."] * 3)
    with engine.client() as client, client.session(SYSTEM) as session:
        first, second = session.send("Go."), session.send("On.")
    a, b = engine.requests
    assert (a.cached_tokens, a.computed_tokens) == (0, a.prompt_tokens + a.completion_tokens - 1)
    # The end token of the first reply was drawn and never run.
    assert b.cached_tokens == a.prompt_tokens + a.completion_tokens - 1
    assert b.computed_tokens == b.prompt_tokens - b.cached_tokens + b.completion_tokens - 1
    assert [first.usage.cached_tokens, second.usage.cached_tokens] == [a.cached_tokens, b.cached_tokens]
    assert engine.cached_share == b.cached_tokens / (a.prompt_tokens + b.prompt_tokens)
    assert engine.computed_tokens == a.computed_tokens + b.computed_tokens


@pytest.fixture
def quiet() -> Iterator[None]:
    """For agents that the SDK itself warns about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        yield


def agent_of(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> FakeEngine:
    """An agent without a session that does something to its history before its third request."""
    engine = FakeEngine(["The first reply, of some length.", call("read_file", path="a.py"), "Done."])
    history: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    with engine.client() as client:
        for text in ("Look at a.py.", "And at b.py.", "Well?"):
            history.append({"role": "user", "content": text})
            if text == "Well?":
                history = change(history)
            turn = client.chat(history, tools=[read_file])
            history.append(dict(turn.message))
            for made in turn.tool_calls:
                history.append({"role": "tool", "tool_call_id": made.id, "content": "x"})
    return engine


def edited(index: int, **fields: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    def change(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [message | fields if place == index else message for place, message in enumerate(history)]

    return change


@pytest.mark.parametrize(
    ("change", "path", "was", "now"),
    [
        (edited(0, content=f"It is 12:30. {SYSTEM}"), "messages[0].content", "You are", "It is 12"),
        (edited(1, content="Look at c.py."), "messages[1].content", "a.py.<|end|>", "c.py.<|end|>"),
        (
            edited(2, content="The first reply, of"),
            "messages[2].content",
            " some length.<|end|>",
            "<|end|><|begin|>user",
        ),
        (edited(4, tool_calls=[]), "messages[4].content", "<tool_call>", "<|end|>"),
        (lambda history: history[:1] + history[3:], "messages[1].content", "Look at a.py.", "And at b.py."),
        (lambda history: [*history[:3], HELLO[0], *history[3:]], "messages[3].content", "And at b.py.", "Hello"),
    ],
    ids=["system", "user", "reply", "calls", "dropped", "inserted"],
)
@pytest.mark.usefixtures("quiet")
def test_a_changed_history_is_found_and_quoted(change: Any, path: str, was: str, now: str) -> None:
    engine = agent_of(change)
    broken = engine.requests[2].broken
    assert broken is not None
    assert (broken.path, broken.was.lstrip(" ")[: len(was.strip())]) == (path, was.strip())
    assert broken.now.lstrip(" ").startswith(now)
    assert broken.tokens_lost > 0
    with pytest.raises(AssertionError, match=r"request 2 breaks its prefix at token \d+ of \d+ in messages") as caught:
        engine.assert_append_only()
    assert "goes on from request 1" in str(caught.value)
    with pytest.raises(AssertionError, match="breaks its prefix"):
        engine.assert_no_misses()


def test_histories_that_only_grow_pass_however_they_are_written() -> None:
    def rewritten(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
        again = json.loads(json.dumps(history))
        made = again[4]["tool_calls"][0]
        made["id"] = again[5]["tool_call_id"] = "another"
        made["function"]["arguments"] = '{ "path":  "a.py" }'
        return again

    for change in (lambda history: history, rewritten):
        engine = agent_of(change)
        engine.assert_append_only()
        engine.assert_no_misses()
        assert [request.miss.code for request in engine.requests if request.miss] == ["cold"] * 3


def test_reasoning_that_is_not_sent_back_is_cached_all_the_same() -> None:
    engine = FakeEngine([reply("Yes.", reasoning="Let me think about that for a while."), "No."])
    with engine.client() as client:
        turn = client.chat(HELLO)
        client.chat([*HELLO, {"role": "assistant", "content": "Yes."}, *HELLO])
    assert turn.cache.source == "template"
    assert engine.requests[1].cached_tokens == turn.usage.prompt_tokens + turn.usage.completion_tokens - 1
    engine.assert_no_misses()


def test_conversations_that_have_nothing_in_common_are_no_breaks() -> None:
    engine = FakeEngine(["The same reply."] * 5)
    with engine.client() as client:
        shots = [{"role": "system", "content": SYSTEM}, *HELLO, {"role": "assistant", "content": "An example."}]
        for question in ("One?", "Two?"):
            turn = client.chat([*shots, {"role": "user", "content": question}])
            assert turn.text == "The same reply."
        with client.session(SYSTEM) as session:
            session.send("One?")
            (fork,) = session.fork(1, at_turn=0)
            session.rollback(to_turn=0)
            session.send("Something else?")
            fork.send("And else?")
    engine.assert_append_only()
    engine.assert_no_misses()


@pytest.mark.usefixtures("quiet")
def test_system_texts_that_differ_are_misses_unless_they_are_allowed() -> None:
    engine = FakeEngine()
    with engine.client() as client:
        for time_of_day in ("12:30", "12:31"):
            client.chat([{"role": "system", "content": f"It is {time_of_day}. {SYSTEM}"}, *HELLO])
    engine.assert_append_only()
    with pytest.raises(
        AssertionError, match=r"request 1 begins differently .* in messages\[0\]\.content, which was '30\. You"
    ):
        engine.assert_no_misses()
    engine.assert_no_misses(allow="diverged")


def test_pages_that_are_evicted_are_misses_unless_a_lease_keeps_them() -> None:
    engine = FakeEngine()
    with engine.client() as client, client.session(SYSTEM) as session:
        session.send("One.")
        with session.waiting("pytest", expect_s=3):
            assert engine.evict() == 0
        kept = session.send("Two.")
        assert kept.usage.cached_tokens >= engine.requests[0].prompt_tokens
        engine.assert_no_misses()
        session.unpin()
        assert engine.evict() > 0
        with pytest.warns(CacheWarning, match="AC801 evicted"):
            session.send("Three.")
        with pytest.raises(AssertionError, match=r"request 2 computed \d+ tokens again .*evicted at token 0"):
            engine.assert_no_misses()
        engine.assert_no_misses(allow=["evicted"])
        with session.waiting("pytest", expect_s=3):
            engine.advance(31)
            engine.evict()
        with pytest.warns(CacheWarning, match="AC802"):
            assert session.send("Four.").cache.miss is not None
        assert engine.requests[3].miss is not None and engine.requests[3].miss.code == "expired"


def test_few_pages_make_room_for_each_other_and_leases_have_half_of_them() -> None:
    engine = FakeEngine(pages=16, page_size=16)
    with engine.client() as client:
        for number in range(6):
            client.chat([{"role": "system", "content": f"{number}. {SYSTEM}"}, *HELLO])
            state = client.cache()
            assert (state.total, state.free + state.cached) == (16, 16)
        assert client.chat([{"role": "system", "content": f"0. {SYSTEM}"}, *HELLO]).cache.miss.code == "evicted"
        session = client.session(f"Pinned. {SYSTEM}" * 3).open()
        session.send("Hello.")
        assert session.pin("5m").granted_pages == 8
        assert client.cache().pinned == 8
        with pytest.raises(ContextOverflow, match="256 are all"):
            client.chat([{"role": "user", "content": "word " * 300}])


def test_a_restart_takes_sessions_and_pages_and_leaves_snapshots() -> None:
    engine = FakeEngine()
    with engine.client() as client, client.session(SYSTEM) as session:
        session.send("Remember.")
        taken = httpx.Client(base_url=URL, transport=engine.transport)
        assert taken.post(f"/v1/sessions/{session.id}/snapshot", json={"name": "kept"}).status_code == 200
        engine.restart()
        assert engine.sessions == []
        with pytest.raises(NotFound, match="session_not_found"):
            session.send("Do you?")
        with client.restore("kept") as restored:
            turn = restored.send("Do you?")
            assert (turn.cache.miss.code, len(restored.messages)) == ("cold", 5)


def test_the_clock_ends_sessions() -> None:
    engine = FakeEngine([delay(50, "Late."), "More."])
    with engine.client() as client, client.session(SYSTEM, ttl=60) as session:
        session.send("Hello.")
        engine.advance(59)
        session.send("Hello.")
        assert engine.sessions == [session.id]
        engine.advance(60)
        assert engine.sessions == []


def test_beginnings_are_prewarmed_without_asking_the_script() -> None:
    engine = FakeEngine(["Hi."])
    with engine.client() as client:
        first, again = (client.prewarm(SYSTEM, [read_file]) for _ in range(2))
        assert (first.cached_tokens, again.computed_tokens) == (0, 1)
        with client.session(SYSTEM, [read_file]) as session:
            assert session.send("Hello.").usage.cached_tokens >= first.tokens
    assert [request.kind for request in engine.requests] == ["prewarm", "prewarm", "chat"]
    engine.assert_script_done()
    engine.assert_no_misses()


# The SDK on top of it


def test_a_tool_loop_runs_to_its_answer() -> None:
    engine = FakeEngine([call("read_file", path="a.py"), [call("read_file", path="b.py"), call("read_file")], "Done."])
    with engine.client() as client, client.session(SYSTEM, tools=[read_file]) as session:
        result = session.run("Look around.")
    assert (result.text, result.stopped, len(result.tool_runs)) == ("Done.", "answer", 3)
    assert engine.requests[1].text == "the text of a.py"
    assert engine.requests[0].tool_names == ["read_file"]
    assert engine.requests[2].new_messages[0]["content"] == "the text of b.py"
    assert isinstance(result.tool_runs[2].error, Exception)
    engine.assert_no_misses()


def test_compaction_is_no_break() -> None:
    engine = FakeEngine(["One.", "Two.", "A summary.", "Three."])
    with engine.client() as client, client.session(SYSTEM) as session:
        session.send("First?")
        session.send("Second?")
        session.compact()
        assert session.send("Third?").text == "Three."
    engine.assert_append_only()
    assert "A summary." in str(engine.requests[-1].messages)


def test_tools_that_are_added_are_told_behind_everything_else() -> None:
    def run_tests() -> str:
        """Run the tests."""
        return "ok"

    engine = FakeEngine(["One.", "Two."])
    with engine.client() as client, client.session(SYSTEM, tools=[read_file]) as session:
        first = session.send("First?")
        session.add_tools(run_tests)
        second = session.send("Second?")
        assert second.usage.cached_tokens == first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert engine.requests[1].tool_names == ["read_file", "run_tests"]
    engine.assert_no_misses()


def test_findings_of_the_script_become_warnings() -> None:
    finding = {"code": "AC501", "location": {"path": "messages[0].content"}, "tokens_lost": 200}
    with FakeEngine([reply("Hi.", findings=[finding])]).client() as client, pytest.warns(CacheWarning, match="AC501"):
        client.chat(HELLO)


def test_a_server_without_sessions_gets_the_whole_history() -> None:
    engine = FakeEngine(sessions=False)
    with engine.client() as client, client.session(SYSTEM) as session:
        session.send("One.")
        session.send("Two.")
        assert session.id is None
        with pytest.raises(AgentCacheError, match="does not hold sessions"):
            session.pin()
    assert [len(request.new_messages) for request in engine.requests] == [2, 4]
    engine.assert_no_misses()


def test_keys_share_neither_sessions_nor_pages() -> None:
    engine = FakeEngine()
    with engine.client(api_key="a") as a, engine.client(api_key="b") as b:
        messages = [{"role": "system", "content": SYSTEM}, *HELLO]
        assert [client.chat(messages).usage.cached_tokens > 0 for client in (a, a, b)] == [False, True, False]
        with a.session(SYSTEM) as session, pytest.raises(NotFound):
            b.resume(str(session.open().id)).open()
        assert b.sessions() == []


def test_the_official_client_speaks_to_it() -> None:
    engine = FakeEngine(["Hello there, from far away.", call("read_file", path="a.py")])
    with httpx.Client(transport=engine.transport) as http:
        client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", http_client=http)
        stream = client.chat.completions.create(model="fake", messages=HELLO, stream=True)  # type: ignore[call-overload]
        pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
        assert "".join(filter(None, pieces)) == "Hello there, from far away."
        made = client.chat.completions.create(model="fake", messages=HELLO)  # type: ignore[call-overload]
        assert made.choices[0].message.tool_calls[0].function.name == "read_file"


def test_calls_of_http_are_kept() -> None:
    engine = FakeEngine([refuse_connection()])
    with engine.client(max_retries=0) as client, client.session(SYSTEM) as session:
        with session.waiting("pytest", expect_s=3):
            pass
        with pytest.raises(ConnectionFailed):
            session.send("Hello")
    made = [(made.method, made.path.rpartition("/")[2], made.status) for made in engine.calls]
    assert made[:3] == [("POST", "sessions", 200), ("POST", "wait", 200), ("POST", "completions", None)]
    assert engine.calls[1].body == {"tool": "pytest", "expect_s": 3}
    assert made[-1][0] == "DELETE"


def test_nothing_of_an_engine_is_shared_with_another() -> None:
    first, second = FakeEngine(["a"]), FakeEngine(["b"])
    assert chat_texts(first, 1) + chat_texts(second, 1) == ["a", "b"]
    assert len(first.requests) == len(second.requests) == 1
    script = ["x"]
    engine = FakeEngine(script)
    script.clear()
    assert chat_texts(engine, 1) == ["x"]
    assert "1 requests" in repr(engine)


def test_it_needs_no_thread_and_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connected"))
    assert chat_texts(FakeEngine(), 3) == ["Reply 1.", "Reply 2.", "Reply 3."]
    assert threading.active_count() == before


def test_tokens_spell_every_text() -> None:
    with FakeEngine().client() as client:
        for text in (
            "Hello world",
            "  two\n\n\tlines ",
            "naïve café 你好 👩‍👩‍👧",
            "x=1;y==2",
            "<|end|> is text",
            "a" * 100,
        ):
            tokens = client.tokenize(text)
            assert client.detokenize(tokens.tokens) == text
            assert min(tokens.tokens) >= 256
        assert client.detokenize([1, 2, 77, 2**41]) == "<|begin|><|end|><|77|><|2199023255552|>"
    for length in itertools.chain(range(1, 8)):
        assert len(FakeEngine().client().tokenize("ab" * length).tokens) == -(-2 * length // 6)
