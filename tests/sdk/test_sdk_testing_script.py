"""What the fake engine is told to say, and to whom; and what it does instead of saying it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fake_agent import HELLO, SYSTEM, chat_texts, read_file

from agentcache_sdk import (
    AgentCacheError,
    BadRequest,
    Busy,
    ConnectionFailed,
    ContextOverflow,
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
