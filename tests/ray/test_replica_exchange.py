"""One request and its answer between whoever asks and an app, without Ray."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentcache.local.exchange import HIGH_WATER, Head
from agentcache.ray.exchange import AnswerCutError, Sent, answered, sent_from


def sent(**fields: Any) -> Sent:
    return Sent(**{"method": "POST", "target": b"/a%20b?x=1", "headers": [(b"host", b"h")], "body": b"body", **fields})


async def parts_of(app: Any, request: Sent) -> list[Any]:
    return [part async for batch in answered(app, request) for part in batch.parts]


async def start(send: Any, status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"a", b"b")]})


async def piece(send: Any, body: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def test_an_app_sees_the_request_as_it_was_sent_and_its_answer_comes_back_whole():
    async def app(scope, receive, send):
        message = await receive()
        assert scope["path"] == "/a b" and scope["raw_path"] == b"/a%20b" and scope["query_string"] == b"x=1"
        assert scope["client"] == ("1.2.3.4", 5) and message == {
            "type": "http.request",
            "body": b"body",
            "more_body": False,
        }
        await start(send, 201)
        await piece(send, b"one")
        await piece(send, b"two", more=False)

    async def run():
        parts = await parts_of(app, sent(client=("1.2.3.4", 5)))
        assert parts[0] == Head(201, [(b"a", b"b")]) and b"".join(parts[1:]) == b"onetwo"

    asyncio.run(run())


def test_a_head_is_told_with_what_follows_it_and_an_empty_body_ends_too():
    async def app(scope, receive, send):
        await start(send, 204)
        await asyncio.sleep(0)
        await piece(send, b"", more=False)

    async def run():
        batches = [batch async for batch in answered(app, sent())]
        assert [(len(batch.parts), batch.last) for batch in batches] == [(1, True)]

    asyncio.run(run())


def test_an_app_that_fails_cuts_its_answer():
    async def app(scope, receive, send):
        await start(send)
        await piece(send, b"half")
        raise RuntimeError("broken")

    async def run():
        answer = answered(app, sent())
        assert (await answer.__anext__()).parts[1:] == [b"half"]
        with pytest.raises(AnswerCutError):
            await answer.__anext__()

    asyncio.run(run())


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_the_app_is_told_when_nobody_listens_any_more(how):
    told = []

    async def app(scope, receive, send):
        await receive()
        await start(send)
        await piece(send, b"first")
        told.append((await receive())["type"])
        await piece(send, b"nobody reads this")  # is dropped, and is no failure

    async def run():
        answer = answered(app, sent())
        first = await answer.__anext__()
        assert first.parts[1] == b"first" and not told
        if how == "closed":
            await answer.aclose()
        else:
            waiting = asyncio.ensure_future(answer.__anext__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        for _ in range(5):
            await asyncio.sleep(0)
        assert told == ["http.disconnect"]

    asyncio.run(run())


def test_an_app_waits_for_a_slow_taker():
    progress = []

    async def app(scope, receive, send):
        await start(send)
        for number in range(100):
            await piece(send, b"x" * 1024 * 16)
            progress.append(number)
        await piece(send, b"", more=False)

    async def run():
        answer = answered(app, sent())
        size = sum(len(part) for part in (await answer.__anext__()).parts if isinstance(part, bytes))
        for _ in range(50):
            await asyncio.sleep(0)
        held = len(progress) * 16 * 1024 - size
        assert HIGH_WATER <= held <= HIGH_WATER + 2 * 16 * 1024
        async for batch in answer:
            size += sum(len(part) for part in batch.parts if isinstance(part, bytes))
        assert size == 100 * 16 * 1024

    asyncio.run(run())


def test_of_a_head_request_no_body_comes_back():
    async def app(scope, receive, send):
        await start(send)
        await piece(send, b"not this", more=False)

    assert asyncio.run(parts_of(app, sent(method="HEAD")))[1:] == []


def test_a_request_is_taken_off_the_place_that_an_app_is_mounted_at():
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/in/replicas/r1/v1/x",
        "raw_path": b"/in/replicas/r1/v1/x",
        "root_path": "/in",
        "query_string": b"a=b",
        "headers": [(b"h", b"v")],
        "client": ["127.0.0.1", 9],
        "server": None,
    }
    found = sent_from(scope, b"", below="/replicas/r1")
    assert (found.target, found.path) == (b"/v1/x?a=b", "/v1/x")
    assert found.client == ("127.0.0.1", 9)
