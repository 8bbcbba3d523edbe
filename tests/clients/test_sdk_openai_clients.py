"""``client.openai()``: the official clients with this SDK's server, key, timeout and retries."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai
import pytest
from saying import Saying, saying_server

from agentcache_sdk import AsyncClient, Client

ANSWER = "It is sunny there."
MESSAGES = [{"role": "system", "content": "Be brief. " * 30}, {"role": "user", "content": "How is it?"}]
BOTH = pytest.mark.parametrize("kind", [Client, AsyncClient])


@pytest.fixture(scope="module")
def locked(tmp_path_factory) -> Iterator[Saying]:
    with saying_server(tmp_path_factory.mktemp("locked"), api_keys=("open sesame",)) as made:
        made.says(ANSWER)
        yield made


def used(kind, url, use, **settings):
    """What ``use(client, official)``, a coroutine function, comes to; ``official``'s calls may be awaited or not."""

    async def run():
        client = kind(url, **settings)
        official = client.openai()
        try:
            return await use(client, official)
        finally:
            await now(official.close())
            await now(client.close())

    return asyncio.run(run())


async def now(outcome):
    return await outcome if inspect.isawaitable(outcome) else outcome


async def listed(stream):
    return [event async for event in stream] if hasattr(stream, "__aiter__") else list(stream)


@BOTH
def test_chat_streams_and_responses_share_the_cache_with_the_sdk(locked, kind):
    async def use(client, official):
        ours = await now(client.chat(MESSAGES, model="saying", temperature=0))
        chat = await now(official.chat.completions.create(model="saying", messages=MESSAGES, temperature=0))
        assert (ours.text, chat.choices[0].message.content) == (ANSWER, ANSWER)
        assert chat.usage.prompt_tokens_details.cached_tokens == ours.usage.prompt_tokens - 1
        assert chat.model_extra["agentcache"]["cached_tokens"] == ours.usage.prompt_tokens - 1
        chunks = await listed(
            await now(official.chat.completions.create(model="saying", messages=MESSAGES, stream=True))
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
        assert chunks[-1].model_extra["agentcache"]["prompt_tokens"] == ours.usage.prompt_tokens
        first = await now(official.responses.create(model="saying", input="How is it?", instructions="Be brief."))
        assert first.output_text == ANSWER
        events = await listed(
            await now(
                official.responses.create(
                    model="saying", input="And now?", previous_response_id=first.id, instructions="Be brief.", stream=True
                )
            )
        )  # fmt: skip
        last = events[-1].response
        assert (events[-1].type, last.output_text) == ("response.completed", ANSWER)
        assert last.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 2
        names = await now(official.models.list())
        assert [served.id for served in names.data] == ["saying"]

    used(kind, locked.server.url, use, api_key="open sesame")


@BOTH
def test_without_a_key_the_official_client_is_refused_too_whatever_the_environment_holds(locked, kind, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "open sesame")

    async def use(client, official):
        with pytest.raises(openai.AuthenticationError):
            await now(official.chat.completions.create(model="saying", messages=MESSAGES))

    used(kind, locked.server.url, use)


@BOTH
def test_a_key_keeps_its_own_cache(tmp_path, kind):
    async def use(client, official):
        chat = await now(official.chat.completions.create(model="saying", messages=MESSAGES))
        return chat.usage.prompt_tokens_details.cached_tokens

    with saying_server(tmp_path, api_keys=("mine", "yours")) as shared:
        shared.says(ANSWER)
        assert [used(kind, shared.server.url, use, api_key=key) > 0 for key in ("mine", "mine", "yours")] == [
            False, True, False,
        ]  # fmt: skip


@BOTH
def test_the_timeout_is_the_sdks(kind):
    async def use(client, official):
        assert official.timeout == 0.1
        with pytest.raises(openai.APITimeoutError):
            await now(official.chat.completions.create(model="saying", messages=MESSAGES))

    with socket.create_server(("127.0.0.1", 0)) as silent:
        used(kind, f"http://127.0.0.1:{silent.getsockname()[1]}", use, timeout=0.1, max_retries=0)

    async def waits_for_ever(client, official):
        assert official.timeout is None

    used(kind, "http://127.0.0.1:9", waits_for_ever, timeout=None)


@BOTH
@pytest.mark.parametrize("retries", [0, 2])
def test_retries_are_as_many_as_the_sdks(kind, retries):
    async def use(client, official):
        with pytest.raises(openai.InternalServerError):
            await now(official.chat.completions.create(model="saying", messages=MESSAGES))

    with unwell() as (url, asked):
        used(kind, url, use, max_retries=retries)
    assert asked == ["/v1/chat/completions"] * (1 + retries)


@contextmanager
def unwell() -> Iterator[tuple[str, list[str]]]:
    """A server that answers 503 and asks to be asked again at once, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(503)
            self.send_header("retry-after-ms", "1")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
