"""Clients over real HTTP: results, retries, timeouts, lost connections, cancellation."""

from __future__ import annotations

import asyncio
import socket
import time

import openai
import pytest
import sdk_wire
from sdk_wire import WireServer

from agentcache_sdk import (
    AgentCacheError,
    APIError,
    AsyncChatStream,
    AsyncClient,
    AsyncSession,
    BadRequest,
    Busy,
    ChatStream,
    Client,
    ConnectionFailed,
    ContextOverflow,
    NotFound,
    RateLimited,
    ServerError,
    Session,
    SessionDiverged,
    Timeout,
)

HELLO = [{"role": "user", "content": "Hello there"}]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def drain(stream: ChatStream) -> tuple[list[str], Exception | None]:
    """The deltas of a stream, and what ended it."""
    seen: list[str] = []
    try:
        for delta in stream:
            seen.append(delta)  # noqa: PERF402  what came before the failure is the point
    except AgentCacheError as failure:
        return seen, failure
    return seen, None


def test_every_route_gives_a_typed_result(wire: WireServer, client: Client) -> None:
    assert client.health().status == "ok"
    assert client.version().version == "0.1.0"
    assert [(m.id, m.max_model_len, m.page_size) for m in client.models()] == [("tiny", 2048, 16)]
    assert client.detokenize(client.tokenize("Grüße").tokens) == "Grüße"
    assert client.tokenize(messages=HELLO).count > len("Hello there")
    state = client.cache()
    assert state.free + state.live + state.cached + state.pinned == state.total == 64
    client.complete("some text")
    assert client.flush_cache() == 1


def test_a_reply_carries_usage_and_the_cache_report(client: Client) -> None:
    cold = client.chat(HELLO)
    warm = client.chat(HELLO, max_tokens=4)
    assert (cold.finish_reason, warm.finish_reason, len(warm.text)) == ("stop", "length", 4)
    assert cold.cache.miss is not None
    assert cold.cache.miss.code == "cold"
    assert warm.usage.cached_tokens == warm.cache.cached_tokens == warm.usage.prompt_tokens - 1
    assert warm.cache.miss is None
    assert warm.cache.alignment is not None
    assert warm.cache.alignment.share_points[0].tail == 8
    assert warm.raw["id"].startswith("chatcmpl-")


def test_a_completion_takes_text_and_parameters(wire: WireServer, client: Client) -> None:
    turn = client.complete("Once upon", max_tokens=6, temperature=0, seed=None)
    assert turn.text == "Réply "
    assert wire.chats[0] == {"prompt": "Once upon", "max_tokens": 6, "temperature": 0}


def test_unknown_fields_of_a_newer_server_are_kept(wire: WireServer, client: Client) -> None:
    wire.reports.append({"warp": 9, "miss": {"code": "quantum", "at_token": 3, "spin": "up"}})
    turn = client.chat(HELLO)
    assert turn.cache.model_extra == {"warp": 9}
    assert turn.cache.miss is not None
    assert (turn.cache.miss.code, turn.cache.miss.spin) == ("quantum", "up")  # type: ignore[attr-defined]


def test_a_server_without_reports_still_tells_cached_tokens(wire: WireServer, client: Client) -> None:
    body = b'{"choices":[{"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,'
    body += b'"total_tokens":10,"prompt_tokens_details":{"cached_tokens":5}}}'
    wire.faults.append(sdk_wire.raw(200, body))
    turn = client.chat(HELLO)
    assert (turn.usage.cached_tokens, turn.cache.cached_tokens, turn.cache.prompt_tokens) == (5, 5, 9)
    assert (turn.cache.computed_tokens, turn.cache.miss) == (None, None)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_value", BadRequest),
        (400, "context_length_exceeded", ContextOverflow),
        (401, "invalid_api_key", APIError),
        (404, "model_not_found", NotFound),
        (405, None, BadRequest),
        (413, None, BadRequest),
        (415, None, BadRequest),
        (422, "session_diverged", SessionDiverged),
        (429, "session_busy", Busy),
        (429, "queue_full", RateLimited),
        (500, "internal_server_error", ServerError),
        (504, None, ServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_status_becomes_its_class(
    wire: WireServer, client: Client, status: int, code: str | None, kind: type[APIError], stream: bool
) -> None:
    wire.faults.append(sdk_wire.error(status, code, "got 3, expected 4"))
    action = client.stream_chat(HELLO).__enter__ if stream else lambda: client.chat(HELLO)
    with pytest.raises(AgentCacheError) as caught:
        action()
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.param, error.request_id) == (status, code, "p", "req-7")
    assert error.message == "got 3, expected 4"
    assert f"HTTP {status}" in str(error)
    assert len(wire.requests) == 1, "a retry cannot help here"


@pytest.mark.parametrize(
    "content", [b"<html>proxy login</html>", b"", b"[]", b'{"choices": []}', b'{"choices": [3]}', b'{"choices": 1}']
)
def test_an_answer_that_is_no_completion_is_one_clear_error(wire: WireServer, client: Client, content: bytes) -> None:
    wire.faults.append(sdk_wire.raw(200, content))
    with pytest.raises(APIError, match="cannot be read") as caught:
        client.chat(HELLO)
    assert caught.value.code == "unreadable_response"


def test_an_error_page_of_a_gateway_is_quoted(wire: WireServer) -> None:
    wire.faults.append(sdk_wire.raw(502, b"<h1>Bad\n gateway</h1>"))
    with Client(wire.url, max_retries=0) as client, pytest.raises(ServerError, match="502: <h1>Bad gateway</h1>"):
        client.chat(HELLO)


@pytest.mark.parametrize("stream", [False, True])
def test_unavailable_and_queue_full_are_retried(wire: WireServer, client: Client, stream: bool) -> None:
    wire.faults.extend([sdk_wire.error(503), sdk_wire.error(429, retry_after="0")])
    if stream:
        with client.stream_chat(HELLO) as reply:
            assert reply.result().text
    else:
        assert client.chat(HELLO).text
    assert len(wire.requests) == 3


def test_retries_end(wire: WireServer) -> None:
    wire.faults.extend([sdk_wire.error(503, retry_after="0")] * 5)
    with Client(wire.url, max_retries=1) as client, pytest.raises(ServerError):
        client.chat(HELLO)
    assert len(wire.requests) == 2


def test_queue_full_without_or_with_a_distant_date_is_not_retried(wire: WireServer, client: Client) -> None:
    wire.faults.extend([sdk_wire.error(429), sdk_wire.error(429, retry_after="3600")])
    with pytest.raises(RateLimited) as first:
        client.chat(HELLO)
    with pytest.raises(RateLimited) as second:
        client.chat(HELLO)
    assert (first.value.retry_after, second.value.retry_after) == (None, 3600)
    assert len(wire.requests) == 2


def test_health_is_asked_once(wire: WireServer, client: Client) -> None:
    wire.faults.append(sdk_wire.error(503, "unavailable"))
    with pytest.raises(ServerError):
        client.health()
    assert len(wire.requests) == 1


def test_a_refused_connection_is_retried_and_then_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with Client(url, max_retries=1) as client, pytest.raises(ConnectionFailed, match="agentcache serve") as caught:
        client.models()
    assert url in str(caught.value)
    assert not caught.value.sent
    assert time.monotonic() - began > 0.1, "it must have waited before the second attempt"


def test_a_connection_lost_after_sending_is_not_retried(wire: WireServer, client: Client) -> None:
    wire.faults.append(sdk_wire.drop)
    with pytest.raises(ConnectionFailed) as caught:
        client.chat(HELLO)
    assert caught.value.sent
    assert len(wire.requests) == 1


@pytest.mark.parametrize("ending", [sdk_wire.Handler.reset, sdk_wire.end_without_done])
def test_a_connection_lost_in_mid_stream_is_one_error_after_the_text(wire: WireServer, client: Client, ending) -> None:
    wire.faults.append(sdk_wire.stream_then(ending))
    with client.stream_chat(HELLO) as stream:
        seen, failure = drain(stream)
        with pytest.raises(AgentCacheError, match="no result"):
            stream.result()
    assert type(failure) is ConnectionFailed
    assert "middle of the stream" in str(failure)
    # A reset may overtake bytes that are still on their way, so not all of the text need arrive; but in order it does.
    assert "piece0 piece1 ".startswith("".join(seen))
    assert len(wire.requests) == 1, "never retried after the first byte"


def test_an_error_event_in_a_stream_is_raised_after_the_text_before_it(wire: WireServer, client: Client) -> None:
    def shut_down(handler: sdk_wire.Handler) -> None:
        handler.send_event({"error": {"message": "shutting down", "code": "shutting_down"}})
        handler.write(b"data: [DONE]\n\n")
        handler.end_stream()

    wire.faults.append(sdk_wire.stream_then(shut_down))
    with client.stream_chat(HELLO) as stream:
        seen, failure = drain(stream)
    assert "".join(seen) == "piece0 piece1 "
    assert isinstance(failure, ServerError)
    assert (failure.message, failure.code, failure.status) == ("shutting down", "shutting_down", 503)


def test_silence_is_a_timeout(wire: WireServer) -> None:
    wire.faults.extend([sdk_wire.hang, sdk_wire.stream_then(sdk_wire.silence)])
    with Client(wire.url, timeout=0.2) as client:
        with pytest.raises(Timeout, match="sent nothing"):
            client.chat(HELLO)
        with client.stream_chat(HELLO) as stream, pytest.raises(Timeout, match="went silent"):
            stream.result()
    assert len(wire.requests) == 2


def test_a_stream_must_be_opened(client: Client) -> None:
    with pytest.raises(AgentCacheError, match="`with` statement"):
        client.stream_chat(HELLO).result()


def test_connections_are_reused_after_streams(wire: WireServer, client: Client) -> None:
    ports = set()

    def note_port(handler: sdk_wire.Handler) -> bool:
        ports.add(handler.client_address[1])
        return True

    for _ in range(3):
        wire.faults.append(note_port)
        with client.stream_chat(HELLO) as stream:
            stream.result()
    assert len(ports) == 1


def test_a_closed_client_says_so(wire: WireServer) -> None:
    client = Client(wire.url)
    client.close()
    with pytest.raises(AgentCacheError, match="the client is closed"):
        client.chat(HELLO)

    async def run() -> None:
        async with AsyncClient(wire.url) as twin:
            pass
        with pytest.raises(AgentCacheError, match="the client is closed"):
            await twin.chat(HELLO)

    asyncio.run(run())


def test_stream_flags_belong_to_the_method(client: Client) -> None:
    with pytest.raises(TypeError, match="stream_chat"):
        client.chat(HELLO, stream=True)


@pytest.mark.parametrize("messages", ["hi", {"role": "user"}, ["hi"]])
def test_messages_of_a_wrong_shape_are_refused_before_sending(wire: WireServer, client: Client, messages) -> None:
    with pytest.raises(TypeError, match="messages: got"):
        client.chat(messages)
    assert wire.requests == []


@pytest.mark.parametrize("value", [float("nan"), object(), "\ud800"])
def test_what_is_not_json_is_refused_before_sending(wire: WireServer, client: Client, value: object) -> None:
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        client.chat(HELLO, user=value)
    assert wire.requests == []


def test_the_key_travels_as_a_bearer_token(wire: WireServer) -> None:
    with Client(wire.url + "/v1/", api_key="sk-1") as client:
        client.chat(HELLO)
    assert wire.requests[0].headers["authorization"] == "Bearer sk-1"
    assert wire.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("url", ["127.0.0.1:8100", "", "ftp://x"])
def test_a_base_url_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url: got"):
        Client(url)


def test_the_official_client_comes_configured(wire: WireServer) -> None:
    with Client(wire.url, api_key="sk-1") as client:
        reply = client.openai().chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}])
    assert reply.choices[0].message.content
    assert wire.requests[0].headers["authorization"] == "Bearer sk-1"
    assert isinstance(AsyncClient(wire.url).openai(), openai.AsyncOpenAI)


def test_without_the_official_client_the_error_says_what_to_install(wire: WireServer, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with Client(wire.url) as client, pytest.raises(AgentCacheError, match="pip install openai"):
        client.openai()


# The asynchronous twin


def test_the_async_client_has_every_public_name_of_the_sync_one() -> None:
    for sync, twin in ((Client, AsyncClient), (Session, AsyncSession), (ChatStream, AsyncChatStream)):
        names = {name for name in dir(sync) if not name.startswith("_")}
        assert names == {name for name in dir(twin) if not name.startswith("_")}


def test_the_async_client_gives_the_same_results(wire: WireServer) -> None:
    async def run() -> None:
        async with AsyncClient(wire.url, timeout=5) as client:
            assert (await client.health()).status == "ok"
            assert (await client.version()).version
            assert (await client.models())[0].id == "tiny"
            assert await client.detokenize((await client.tokenize("abc")).tokens) == "abc"
            assert (await client.cache()).total == 64
            assert (await client.complete("abc", max_tokens=3)).text
            turn = await client.chat(HELLO)
            async with client.stream_chat(HELLO) as stream:
                text = "".join([delta async for delta in stream])
            assert (await stream.result()).text == text
            assert len(text) == len(turn.text)
            assert await client.flush_cache() == 3

    asyncio.run(run())


def test_async_retries_and_errors_are_those_of_the_sync_client(wire: WireServer) -> None:
    async def run() -> None:
        async with AsyncClient(wire.url, timeout=0.3) as client:
            wire.faults.extend([sdk_wire.error(503), sdk_wire.error(429, retry_after="0")])
            assert (await client.chat(HELLO)).text
            for fault, kind in (
                (sdk_wire.error(400, "context_length_exceeded"), ContextOverflow),
                (sdk_wire.drop, ConnectionFailed),
                (sdk_wire.hang, Timeout),
            ):
                wire.faults.append(fault)
                with pytest.raises(kind):
                    await client.chat(HELLO)
            for fault, kind in (
                (sdk_wire.stream_then(sdk_wire.Handler.reset), ConnectionFailed),
                (sdk_wire.stream_then(sdk_wire.end_without_done), ConnectionFailed),
                (sdk_wire.stream_then(sdk_wire.silence), Timeout),
            ):
                wire.faults.append(fault)
                async with client.stream_chat(HELLO) as stream:
                    with pytest.raises(kind):
                        await stream.result()

    asyncio.run(run())
    assert len(wire.requests) == 9


def test_a_cancelled_async_turn_hangs_up_and_leaves_the_session_as_it_was(wire: WireServer) -> None:
    async def run() -> None:
        async with AsyncClient(wire.url, timeout=5) as client, client.session(system="S") as session:
            await session.send("one")
            before = session.messages
            wire.faults.append(sdk_wire.stream_then(sdk_wire.go_on_until_hung_up))

            async def consume() -> None:
                async with session.stream("two") as stream:
                    async for _ in stream:
                        started.set()

            started = asyncio.Event()
            task = asyncio.create_task(consume())
            await asyncio.wait_for(started.wait(), 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(wire.hung_up.wait, 5)
            assert session.messages == before

            wire.faults.append(sdk_wire.hang)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.send("two"), 0.2)
            assert session.messages == before
            assert (await session.send("two")).text

    asyncio.run(run())


def test_an_async_session_forks_rolls_back_and_runs_branches_at_once(wire: WireServer) -> None:
    async def run() -> None:
        async with AsyncClient(wire.url, timeout=5) as client, client.session(system="S" * 40) as session:
            await session.send("one")
            forks = await session.fork(5)
            turns = await asyncio.gather(*(fork.send(f"branch {i}") for i, fork in enumerate(forks)))
            assert all(turn.usage.cached_tokens >= 40 for turn in turns)
            async with session.waiting("tool"):
                pass
            await session.rollback(0)
            assert (session.mark(), len(session.messages), len(session.waits)) == (0, 1, 1)
            first, second = session.send("a"), session.send("b")
            results = await asyncio.gather(first, second, return_exceptions=True)
            assert sorted(type(result).__name__ for result in results) == ["Busy", "Turn"]
            with pytest.raises(AgentCacheError, match="does not hold sessions"):
                await session.pin("1m")

    asyncio.run(run())
