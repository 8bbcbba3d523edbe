"""What the fake engine counts and asserts, what happens to its sessions, and the SDK on top of it."""

from __future__ import annotations

import itertools
import json
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from fake_agent import HELLO, SYSTEM, chat_texts, read_file

from agentcache_sdk import (
    AgentCacheError,
    CacheWarning,
    ConnectionFailed,
    ContextOverflow,
    NotFound,
)
from agentcache_sdk.testing import (
    URL,
    FakeEngine,
    call,
    delay,
    refuse_connection,
    reply,
)


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
