"""One request between a reader and an app, and the thread that an app lives on; without a model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import httpx
import pytest

from agentcache.local.exchange import HIGH_WATER, Asked, Exchange, Head

PIECE = b"x" * 1024
START = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}


def exchange(method: str = "POST", patience_s: float = 60) -> Exchange:
    return Exchange(Asked(method, httpx.URL("http://localhost/path?q=1"), [(b"A", b"b")]), lambda: None, patience_s)


class Talker:
    """An app that sends ``count`` pieces, and then notes what it hears."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.sent = 0
        self.heard: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        await send(START)
        for left in reversed(range(self.count)):
            await send({"type": "http.response.body", "body": PIECE, "more_body": left > 0})
            self.sent += 1
        self.heard.append(await receive())


async def rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_reader_that_does_not_read_stops_the_app_and_not_its_loop() -> None:
    async def main() -> None:
        app, read = Talker(1000), exchange()
        task = asyncio.create_task(read.run(app))
        await rest()
        assert app.sent * len(PIECE) == HIGH_WATER + len(PIECE)
        assert read.head() == Head(200, [(b"a", b"b")])
        taken = 0
        while (piece := read.piece()) != b"":
            taken += len(piece or b"")
            await rest()
        assert taken == 1000 * len(PIECE)
        await task
        assert app.heard == [{"type": "http.disconnect"}]

    asyncio.run(main())


def test_a_reader_that_takes_nothing_for_too_long_is_cut() -> None:
    async def main() -> None:
        app, read = Talker(1000), exchange(patience_s=0.02)
        await read.run(app)
        assert app.heard == [{"type": "http.disconnect"}]
        assert len(read.piece() or b"") == HIGH_WATER + len(PIECE)
        with pytest.raises(httpx.RemoteProtocolError, match=r"nothing of the answer was read for 0\.02 seconds"):
            read.piece()

    asyncio.run(main())


def test_an_app_that_is_told_to_hurry_waits_for_no_reader() -> None:
    async def main() -> None:
        app, read = Talker(1000), exchange()
        task = asyncio.create_task(read.run(app))
        await rest()
        read.hurry()
        await task
        assert len(read.piece() or b"") == 1000 * len(PIECE)
        assert read.piece() == b""

    asyncio.run(main())


def test_the_app_hears_the_body_as_it_comes_and_that_nobody_reads_any_more() -> None:
    async def main() -> None:
        heard: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            while not heard or heard[-1]["type"] != "http.disconnect":
                heard.append(await receive())
            await send(START)  # heard by nobody
            await send({"type": "http.response.body", "body": PIECE})

        read = exchange()
        read.feed(b"one ")
        task = asyncio.create_task(read.run(app))
        await rest()
        read.feed(b"two ")
        read.feed(b"three")
        await rest()
        read.end_of_body()
        await rest()
        assert not task.done()
        read.hang_up()
        await task
        assert [(message.get("body"), message.get("more_body")) for message in heard] == [
            (b"one ", True), (b"two three", True), (b"", False), (None, None),
        ]  # fmt: skip
        with pytest.raises(httpx.RemoteProtocolError):
            read.head()

    asyncio.run(main())


def test_an_app_that_fails_cuts_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send(START)
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise ValueError("secret")

        read = exchange()
        await read.run(app)
        assert read.piece() == b"half"
        with pytest.raises(httpx.RemoteProtocolError, match=r"^the request was ended by the server$"):
            read.piece()

    asyncio.run(main())
    assert "POST /path failed" in caplog.text


def test_an_answer_to_head_has_no_body_and_a_scope_is_whole() -> None:
    async def main() -> None:
        app, read = Talker(3), exchange("HEAD")
        await read.run(app)
        assert read.head() is not None
        assert read.piece() == b""
        assert (app.scope["path"], app.scope["raw_path"], app.scope["query_string"]) == ("/path", b"/path", b"q=1")
        assert app.scope["headers"] == [(b"a", b"b")]

    asyncio.run(main())


_FORGOTTEN = """
import os, threading
from contextlib import asynccontextmanager
from fastapi import FastAPI
import httpx
from agentcache.local.host import Host
from agentcache.local.runtime import LocalRuntime
from agentcache.local.transports import LocalTransport
from agentcache.server.lifecycle import Lifecycle
from agentcache.settings import Settings

@asynccontextmanager
async def lifespan(app):
    yield
    print("ended", flush=True)

app = FastAPI(lifespan=lifespan)
app.state.lifecycle = Lifecycle()
app.get("/")(lambda: 1)  # runs on a worker thread, which is no daemon either
host = Host(app)
host.start()
runtime = LocalRuntime(Settings(), False)
runtime._host = host
client = httpx.Client(transport=LocalTransport(runtime, owner=True), base_url="http://in-process.localhost")
print(client.get("/").text, flush=True)
if (child := os.fork()) == 0:
    try:
        client.get("/")
    except Exception as error:
        print(type(error).__module__, error, flush=True)
    client.close()
    os._exit(0)
os.waitpid(child, 0)
print(client.get("/").text, flush=True)
"""


def test_a_program_that_forgets_to_close_ends_and_a_fork_is_told() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _FORGOTTEN], capture_output=True, text=True, timeout=30, check=False, cwd="/"
    )
    assert run.returncode == 0, run.stderr
    served, forked, still_served, ended = run.stdout.splitlines()
    assert (served, still_served, ended) == ("1", "1", "ended")
    assert forked.startswith("agentcache_sdk.errors this client was made before a fork")


_WITHOUT_TORCH = """
import sys
import agentcache
assert "LocalClient" in agentcache.__all__ and "agentcache_sdk" not in sys.modules
assert agentcache.LocalClient and not {"torch", "transformers", "fastapi", "uvicorn", "numpy"} & sys.modules.keys()
sys.modules["torch"] = None
try:
    agentcache.LocalClient()
except agentcache.errors.AgentCacheError as error:
    print(error)
"""


def test_without_the_extra_it_says_what_to_install() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH], capture_output=True, text=True, timeout=30, check=True, cwd="/"
    )
    assert run.stdout == (
        "a client in one process with the engine needs the packages of the extra 'serve', and torch is not installed: "
        "pip install '.[serve]' in the folder of agentcache's source\n"
    )
