"""The SDK's clients in one process with the engine, on a tiny random model."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from live import live_server
from tiny_folder import write_tiny_folder

from agentcache import AsyncLocalClient, LocalClient
from agentcache.cli import main
from agentcache.errors import SettingsError, UnsupportedModelError
from agentcache_sdk import AgentCacheError, BadRequest, Client, ContextOverflow, NotFound

pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.CacheWarning")  # flushing makes prompts miss

SYSTEM = "You read code and answer briefly. " * 6
GREEDY = {"temperature": 0, "max_tokens": 12}
LONG = {"temperature": 0, "max_tokens": 1500}
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "threads": 1,
    "num_pages": 256,
    "enable_test_hooks": True,
}


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


def local_threads_now() -> set[threading.Thread]:
    """Of engines, event loops and their workers."""
    ours = ("agentcache", "AnyIO", "asyncio_")
    return {thread for thread in threading.enumerate() if thread.name.startswith(ours)}


def wait_for_threads(before: set[threading.Thread]) -> bool:
    """Whether no other threads than ``before`` are left within some seconds: to end takes a moment."""
    deadline = time.monotonic() + 5
    while local_threads_now() - before and time.monotonic() < deadline:
        time.sleep(0.01)
    return not local_threads_now() - before


def at_rest(client: LocalClient) -> dict[str, Any]:
    """Nothing runs, waits or holds a page within two seconds, and every invariant holds."""
    deadline = time.monotonic() + 2
    while (pages := client.cache()).live or pages.running or pages.waiting:
        assert time.monotonic() < deadline, pages
        time.sleep(0.005)
    with httpx.Client(transport=client.http_transport(), base_url=client.base_url) as http:
        checked = http.post("/debug/check")
    assert checked.status_code == 200, checked.text
    return pages.model_dump()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local") / "tiny"
    corpus = Path(__file__).read_text("utf-8").splitlines(keepends=True)
    write_tiny_folder(folder, corpus=corpus, vocab_size=1000)
    return folder


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[LocalClient]:
    with LocalClient(folder, home=folder.parent, **SETTINGS) as client:
        yield client
        at_rest(client)
        at_work = threading.active_count()
    assert threading.active_count() < at_work


@pytest.fixture
def client(shared: LocalClient) -> LocalClient:
    shared.flush_cache()
    return shared


def test_it_has_the_session_surface_of_a_server(client: LocalClient) -> None:
    with client.session(system=SYSTEM) as session:
        first = session.send("What does line 1 do?", **GREEDY)
        with session.stream("And line 2?", **GREEDY) as stream:
            text = "".join(stream)
        assert stream.result().text == text
        assert stream.result().usage.cached_tokens >= first.usage.total_tokens - 1
        left, right = session.fork(2)
        assert left.send("Go left.", **GREEDY).usage.cached_tokens > first.usage.total_tokens
        right.rollback(to_turn=1)
        assert len(right.messages) == 3
        session.snapshot("before-line-3")
        assert session.pin(ttl="1m").granted_pages > 0
        with session.waiting("grep", expect_s=1):
            pass
        assert len(session.report().rows) == 2
        left.close()
        right.close()
    with client.restore("before-line-3") as again:
        assert again.send("And line 3?", **GREEDY).usage.cached_tokens >= stream.result().usage.total_tokens - 1
    assert client.sessions() == []
    assert client.engine_info.num_pages == client.cache().total == 256


def test_it_runs_tools_adopts_forks_compacts_prewarms_and_lints(client: LocalClient) -> None:
    def double(n: Literal[1, 2, 3]) -> int:
        """Twice a number."""
        return 2 * n

    client.flush_cache()
    warmed = client.prewarm(SYSTEM, [double])
    with client.session(SYSTEM, tools=[double], pad="system") as session:
        forced = {"tool_choice": {"type": "function", "function": {"name": "double"}}}
        plan = [forced, {"tool_choice": "none", "max_tokens": 8}]
        result = session.run("Double it.", max_turns=2, before_turn=plan.__getitem__, max_tokens=64, temperature=0)
        (call,) = result.tool_runs
        assert (call.error, int(call.content)) == (None, 2 * call.call.args["n"])
        assert result.turns[1].usage.cached_tokens >= result.turns[0].usage.total_tokens - 1
        assert session.padding is not None and session.padding.page_size == warmed.page_size
        (fork,) = session.fork()
        fork.send("And again.", tool_choice="none", **GREEDY)
        session.adopt(fork)
        assert session.mark() == 3
        done = session.compact("We doubled a number.", keep_turns=0)
        assert done.turns_dropped == 3 and done.tokens_after is not None and done.tokens_after < done.tokens_before
        session.send("Go on.", tool_choice="none", **GREEDY)
    assert {finding.code for finding in client.lint(asked("It is late.")).findings} <= {"AC501", "AC502"}
    at_rest(client)


def test_the_same_bits_as_over_http(client: LocalClient, folder: Path) -> None:
    def told(of: Client) -> list[Any]:
        of.flush_cache()
        wanted = {"max_tokens": 16, "seed": 7, "logprobs": True, "top_logprobs": 3, "return_token_ids": True}
        plain = of.chat(asked("What is this?"), **wanted).raw
        with of.session(system=SYSTEM) as session:
            turns = [session.send(text, **wanted).raw for text in ("Look at this.", "And at that.")]
        with of.stream_chat(asked("What is this?"), **wanted) as stream:
            deltas = list(stream)
        return [
            "".join(deltas),
            *({name: raw[name] for name in ("choices", "usage", "prompt_token_ids")} for raw in (plain, *turns)),
            of.tokenize("one two").tokens,
        ]

    with live_server(folder, num_pages=256, home=folder.parent) as server, Client(server.url) as remote:
        over_http = told(remote)
        with pytest.raises(BadRequest) as there:
            remote.chat(asked("Hi"), temperature=-1)
    here = told(client)
    assert here == over_http
    with pytest.raises(BadRequest) as local:
        client.chat(asked("Hi"), temperature=-1)
    assert (local.value.message, local.value.param, local.value.code) == (
        there.value.message, there.value.param, there.value.code,
    )  # fmt: skip


def test_errors_are_those_of_the_sdk(client: LocalClient) -> None:
    with pytest.raises(NotFound, match="session"):
        client.resume("nobody").open()
    with pytest.raises(ContextOverflow, match="2048"):
        client.complete([5] * 3000, max_tokens=1)


def test_a_stream_comes_while_it_is_generated_and_an_early_close_frees_its_pages(client: LocalClient) -> None:
    with client.session(system=SYSTEM) as session:
        with session.stream("Go on.", **LONG) as stream:
            next(stream)
            assert client.cache().running == 1
            assert client.cache().live > 0
        at_rest(client)
        assert session.send("Again.", **GREEDY).usage.cached_tokens > 0
        assert len(session.report().rows) == 1


def test_a_stream_that_nobody_holds_any_more_is_cut(client: LocalClient) -> None:
    stream = client.stream_chat(asked("Go on."), **LONG)
    next(stream.__enter__())
    assert client.cache().running == 1
    del stream
    gc.collect()
    at_rest(client)


def test_silence_longer_than_the_timeout_ends_the_request(client: LocalClient) -> None:
    with httpx.Client(transport=client.http_transport(), base_url=client.base_url, timeout=0.02) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/chat/completions", json={"messages": asked("Go on."), **LONG})
        http.timeout = 5
        assert http.get("/health").status_code == 200  # and closing this client ends no engine
    at_rest(client)


def test_ctrl_c_cuts_a_turn(client: LocalClient) -> None:
    assert threading.current_thread() is threading.main_thread()

    def interrupt() -> None:
        while client.cache().running == 0:
            time.sleep(0.005)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with client.session(system=SYSTEM) as session:
        watcher = threading.Thread(target=interrupt)
        watcher.start()
        with pytest.raises(KeyboardInterrupt):
            session.send("Go on.", **LONG)
        watcher.join()
        at_rest(client)
        assert session.send("Again.", **GREEDY).usage.completion_tokens == 12


def test_many_threads_get_what_one_gets(client: LocalClient) -> None:
    texts = [f"What does line {i} do?" for i in range(8)]
    one_by_one = [client.chat(asked(text), **GREEDY).text for text in texts]
    with ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(lambda text: client.chat(asked(text), **GREEDY).text, texts))
    assert at_once == one_by_one
    at_rest(client)


def test_a_body_in_parts_is_read_as_it_comes(client: LocalClient) -> None:
    with httpx.Client(transport=client.http_transport(), base_url=client.base_url, timeout=5) as http:
        json_type = {"content-type": "application/json"}
        tokens = http.post(
            "/tokenize", content=(part for part in (b'{"prompt":', b' "one two"', b"}")), headers=json_type
        )
        assert tokens.json()["count"] == client.tokenize("one two").count
        pieces = 0

        def endless() -> Iterator[bytes]:
            nonlocal pieces
            while True:
                pieces += 1
                yield b" " * 65536

        refused = http.post("/tokenize", content=endless(), headers=json_type)
        assert refused.status_code == 413
        assert pieces < 1000  # of 64 KiB: the limit is 32 MiB, and little more is read ahead


def test_openai_s_client_works_without_a_socket(client: LocalClient) -> None:
    with client.openai() as official:
        plain = official.chat.completions.create(model=client.models()[0].id, messages=asked("Hi"), **GREEDY)
        stream = official.chat.completions.create(
            model=client.models()[0].id, messages=asked("Hi"), stream=True, **GREEDY
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == plain.choices[0].message.content
    assert client.health().status == "ok"


def test_the_async_twin_loads_at_its_first_use_and_blocks_no_loop(folder: Path) -> None:
    async def use() -> list[str]:
        client = AsyncLocalClient(folder, home=folder.parent, **SETTINGS)
        with pytest.raises(AgentCacheError, match="not loaded yet"):
            _ = client.engine_info
        async with client:
            turns = await asyncio.gather(*(client.chat(asked(f"Line {i}?"), **GREEDY) for i in range(4)))
            async with client.session(system=SYSTEM) as session:
                running = asyncio.create_task(session.send("Go on.", **LONG))
                while (await client.cache()).running == 0:
                    await asyncio.sleep(0.005)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                while (pages := await client.cache()).live or pages.running:
                    await asyncio.sleep(0.005)
                async with session.stream("Again.", **GREEDY) as stream:
                    text = "".join([delta async for delta in stream])
                assert text == (await stream.result()).text
            async with client.openai() as official:
                said = await official.chat.completions.create(
                    model=client.engine_info.model_name, messages=asked("Line 0?"), **GREEDY
                )
            assert said.choices[0].message.content == turns[0].text
        with pytest.raises(AgentCacheError, match="closed"):
            await client.cache()
        return [turn.text for turn in turns]

    before = local_threads_now()
    texts = asyncio.run(asyncio.wait_for(use(), 30))
    assert len(set(texts)) > 1
    assert wait_for_threads(before)


def test_closing_ends_what_runs_and_every_thread(folder: Path) -> None:
    before = local_threads_now()
    client = LocalClient(folder, home=folder.parent, **SETTINGS)
    session = client.session(system=SYSTEM)
    stream = session.stream("Go on.", **LONG).__enter__()
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(client.chat, asked("Me too."), **LONG)
        while client.cache().running < 2:
            time.sleep(0.005)
        client.close()
        client.close()
        with pytest.raises(AgentCacheError, match="closed"):
            elsewhere.result(timeout=10)
    assert wait_for_threads(before)
    with pytest.raises(AgentCacheError, match="shutting"):
        stream.result()
    for use in (client.cache, lambda: session.send("Hi"), client.openai().models.list):
        with pytest.raises(AgentCacheError, match="the client is closed"):
            use()


def test_nobody_holds_it_and_it_ends(folder: Path) -> None:
    before = local_threads_now()
    session = LocalClient(folder, home=folder.parent, **SETTINGS).session(system=SYSTEM)
    gc.collect()
    assert session.send("Hi", **GREEDY).usage.completion_tokens == 12  # a session holds it too
    del session
    gc.collect()
    assert wait_for_threads(before)


def test_what_the_disk_tier_owes_is_written_at_the_end(folder: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "home": folder.parent, "disk_dir": tmp_path / "pages"}
    with LocalClient(folder, **settings) as client:
        first = client.chat(asked("Hi"), **GREEDY)
    with LocalClient(folder, **settings) as client:
        again = client.chat(asked("Hi"), **GREEDY)
    assert again.text == first.text
    assert again.raw["agentcache"]["tiers"]["disk"] > 0


def test_a_wrong_setting_is_told_in_the_words_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--page-size", "0"]) == 2
    on_the_command_line = capsys.readouterr().err
    for make in (LocalClient, AsyncLocalClient):
        with pytest.raises(SettingsError) as refused:
            make(page_size="0")
        assert str(refused.value) in on_the_command_line
        with pytest.raises(SettingsError, match="--page-sizes: no such setting"):
            make(page_sizes=8)
        with pytest.raises(SettingsError, match=r"^api_keys, port: .* has no network") as foreign:
            make(port=8100, api_keys=("secret",))
        assert "secret" not in str(foreign.value)


def test_a_model_that_cannot_be_loaded_leaves_nothing_behind(tmp_path: Path) -> None:
    before = local_threads_now()
    with pytest.raises(UnsupportedModelError, match="absent"):
        LocalClient(tmp_path / "absent.gguf")
    assert wait_for_threads(before)


def test_progress_is_shown_where_it_was_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    public = folder.parent / "public.txt"
    public.write_text(SYSTEM)
    for progress in (said.append, True, False, None):
        LocalClient(folder, progress=progress, public_prefix=public, home=folder.parent, **SETTINGS).close()
        shown = capsys.readouterr().err
        assert ("every key shares" in shown) is (progress is True)  # standard error is no terminal here
    assert any("every key shares" in text for text in said)
