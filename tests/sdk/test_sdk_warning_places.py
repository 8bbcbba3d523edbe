"""Which line a warning points at, and who may silence it: tasks, threads, tool loops, blocks, filters, pytest."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sdk_wire import WireServer
from wire_sessions import Held

from agentcache_sdk import AsyncClient, CacheWarning, Client, VolatileWarning, suppress

RULES = "You are a careful engineer who reads before writing. " * 12
HI = [{"role": "user", "content": "hi"}]
STAMPED = [{"role": "system", "content": f"Now: 2026-01-05T10:31:07Z. {RULES}"}, *HI]


def finding(code: str = "AC501", path: str = "messages[0]", lost: int = 500) -> dict[str, Any]:
    return {"code": code, "name": "some-name", "location": {"path": path}, "tokens_lost": lost}


def findings(wire: WireServer, count: int, code: str = "AC501") -> None:
    """The next replies have one finding each, all different."""
    wire.reports.extend({"findings": [finding(code, f"p{n}")]} for n in range(count))


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def caught_by(action: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [w for w in caught if issubclass(w.category, CacheWarning)]


def codes_by(action: Callable[[], object]) -> list[str]:
    return [w.message.finding.code for w in caught_by(action) if isinstance(w.message, CacheWarning)]


def test_stateless_calls_say_it_once_for_each_line_that_calls(wire: WireServer, client: Client) -> None:
    wire.reports.extend({"findings": [finding()]} for _ in range(5))

    def two_lines() -> None:
        for _ in range(2):
            client.chat(HI)
        client.chat(HI)

    caught = caught_by(two_lines)
    first = two_lines.__code__.co_firstlineno
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, first + 2), (__file__, first + 3)]


def test_partials_lambdas_and_generators_are_blamed_where_they_call(wire: WireServer, client: Client) -> None:
    findings(wire, 4)
    lines: list[int] = []

    def replies() -> Iterator[str]:
        lines.append(here() + 1)
        yield client.chat(HI).text

    def act() -> None:
        send = functools.partial(client.chat, HI)
        lines.append(here() + 1)
        send()
        lines.append(here() + 1)
        again: Callable[[], object] = lambda: client.chat(HI)  # noqa: E731
        again()
        list(replies())
        lines.append(here() + 1)
        with client.stream_chat(HI) as stream:
            pieces = list(stream)
        assert pieces

    assert [(w.filename, w.lineno) for w in caught_by(act)] == [(__file__, line) for line in lines]


def test_tasks_gathered_and_grouped_are_blamed_at_their_calls(wire: WireServer) -> None:
    findings(wire, 5)
    lines: list[int] = []

    async def run() -> None:
        async with AsyncClient(wire.url) as client:
            lines.append(here() + 1)
            coroutines = [client.chat(HI)]
            await asyncio.gather(*coroutines)
            lines.append(here() + 1)
            await asyncio.create_task(client.chat(HI))
            lines.append(here() + 1)
            stream = client.stream_chat(HI)

            async def read() -> None:
                async with stream:
                    assert [piece async for piece in stream]

            await asyncio.wait_for(asyncio.create_task(read()), 10)

            async def replies() -> Any:
                lines.append(here() + 1)
                yield await client.chat(HI)

            assert [turn.text async for turn in replies()]

    caught = caught_by(lambda: asyncio.run(run()))
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, line) for line in lines]


def test_a_tool_loop_is_blamed_at_run_and_a_tool_at_its_own_line(wire: WireServer, client: Client) -> None:
    wire.held = Held()
    findings(wire, 3)
    places: dict[str, int] = {}

    def ask_another(path: str) -> str:
        """Ask another model."""
        places["tool"] = here() + 1
        client.chat(HI)
        return path

    def act() -> None:
        with client.session(system=RULES, tools=[ask_another]) as session:
            places["run"] = here() + 1
            session.run("Use a tool.")

    caught = caught_by(act)
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, places[at]) for at in ("run", "tool", "run")]


def test_the_client_in_one_process_with_the_engine_counts_as_the_sdk(wire: WireServer, client: Client) -> None:
    findings(wire, 2)
    inside = types.ModuleType("agentcache.local.somewhere")
    beside = types.ModuleType("agentcache.localities")
    for module in (inside, beside):
        exec("def chat(client, messages):\n    return client.chat(messages)\n", module.__dict__)
    line = here() + 1
    caught = caught_by(lambda: inside.chat(client, HI))
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, line)]
    assert [w.filename for w in caught_by(lambda: beside.chat(client, HI))] == ["<string>"]


def test_a_block_silences_its_codes_and_no_others(wire: WireServer, client: Client) -> None:
    def act() -> None:
        with suppress("AC1", "AC501", reason="the clock is what this is about"):
            client.session(system=STAMPED[0]["content"])
            wire.reports.append({"findings": [finding(), finding("AC502")]})
            client.chat(HI)
        client.session(system=STAMPED[0]["content"])
        wire.reports.append({"findings": [finding()]})
        client.chat(HI)

    assert codes_by(act) == ["AC502", "AC101", "AC501"]


def test_blocks_nest_and_end_with_what_was_raised(client: Client) -> None:
    def act() -> None:
        with suppress("AC101", reason="outer"):
            with pytest.raises(KeyError), suppress("AC2", reason="inner"):
                raise KeyError
            client.session(system=STAMPED[0]["content"])
        client.session(system=STAMPED[0]["content"])

    assert codes_by(act) == ["AC101"]


def test_what_is_called_inside_a_block_may_be_awaited_or_read_behind_it(wire: WireServer, client: Client) -> None:
    findings(wire, 4)

    async def run() -> None:
        async with AsyncClient(wire.url) as other:
            with suppress("AC5", reason="measured below"):
                task = asyncio.create_task(other.chat(HI))
                coroutine = other.chat(HI)
            await task
            await coroutine
            outside = other.chat(HI)
            with suppress("AC5", reason="measured below"):
                await outside

    def act() -> None:
        asyncio.run(run())
        with suppress("AC5", reason="read below"):
            stream = client.stream_chat(HI)
        with stream:
            list(stream)

    assert codes_by(act) == []


def test_a_block_holds_for_its_own_task_and_thread_only(wire: WireServer, client: Client) -> None:
    findings(wire, 4)
    entered, done = threading.Event(), threading.Event()

    def block() -> None:
        with suppress("AC5", reason="this thread knows"):
            entered.set()
            assert done.wait(10)

    async def tasks(client: AsyncClient) -> None:
        async def quiet() -> None:
            with suppress("AC5", reason="this task knows"):
                await asyncio.sleep(0.05)
                await asyncio.to_thread(time_of_day)

        async def loud() -> None:
            await asyncio.sleep(0.01)
            await client.chat(HI)

        def time_of_day() -> None:
            with Client(wire.url) as other:
                other.chat(HI)

        await asyncio.gather(quiet(), loud())

    def act() -> None:
        with ThreadPoolExecutor(1) as pool:
            blocked = pool.submit(block)
            assert entered.wait(10)
            client.chat(HI)
            done.set()
            blocked.result()
        asyncio.run(_with_client(wire.url, tasks))

    assert codes_by(act) == ["AC501", "AC501"]


async def _with_client(url: str, action: Callable[[AsyncClient], Any]) -> None:
    async with AsyncClient(url) as client:
        await action(client)


@pytest.mark.parametrize(
    ("codes", "reason", "message"),
    [
        (("AC101",), "", "suppress: got '' as reason"),
        (("AC101",), "  \n", "as reason, expected a sentence"),
        ((), "why", "suppress: got no code"),
        (("E501",), "why", "suppress: got 'E501', expected a warning code"),
        (("AC1011",), "why", "suppress: got 'AC1011'"),
    ],
)
def test_a_block_needs_codes_and_a_reason(codes: tuple[str, ...], reason: str, message: str) -> None:
    with pytest.raises(ValueError, match=message), suppress(*codes, reason=reason):
        pass
    with pytest.raises(TypeError, match="reason"):
        suppress("AC101")  # type: ignore[call-arg]


@pytest.mark.parametrize("ignore", ["AC101", ["AC101"], ("AC1",), {"AC101", "AC5"}, (code for code in ["AC1"])])
def test_a_session_ignores_what_it_is_told_in_any_shape(client: Client, ignore: Any) -> None:
    assert codes_by(lambda: client.session(system=STAMPED[0]["content"], ignore=ignore)) == []


def test_a_client_and_a_session_have_a_threshold(wire: WireServer) -> None:
    def codes(client: Client) -> list[str]:
        wire.reports.extend({"findings": [finding(lost=90), finding("AC502", lost=20)]} for _ in range(2))

        def act() -> None:
            client.chat(HI)
            with client.session(min_tokens_lost=0) as session:
                session.send("hi")

        return codes_by(act)

    with Client(wire.url) as usual, Client(wire.url, min_tokens_lost=91) as deaf:
        assert codes(usual) == ["AC501", "AC501", "AC502"]
        assert codes(deaf) == ["AC501", "AC502"]
    for wrong in (-1, "64"):
        with pytest.raises(ValueError, match="min_tokens_lost: got"):
            Client(wire.url, min_tokens_lost=wrong)  # type: ignore[arg-type]


def test_an_error_before_sending_leaves_client_and_session_as_they_were(wire: WireServer, client: Client) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=VolatileWarning)
        with pytest.raises(VolatileWarning):
            client.chat(STAMPED)
        with pytest.raises(VolatileWarning), client.stream_chat([dict(m) for m in STAMPED]):
            pass
        with pytest.raises(VolatileWarning):
            client.session(system=STAMPED[0]["content"])
        assert wire.requests == []
        clean = [{"role": "system", "content": RULES}, *HI]
        assert client.chat(clean).text
        with client.session(system=RULES) as session:
            session.send("one")
            assert session.mark() == 1


SCRIPT = """
import os, warnings
from agentcache_sdk import CacheWarning, Client
for mode in ("error", "ignore", "default", "", "filter"):
    os.environ["AGENTCACHE_WARNINGS"] = mode if mode != "filter" else "default"
    if mode == "filter":
        warnings.filterwarnings("error", category=CacheWarning)
    try:
        Client("http://test").session(system={system!r})
        print(mode, "silent or shown")
    except CacheWarning as error:
        print(mode, "raised", error.finding.code)
"""


def test_the_environment_and_pythons_filters_decide_in_a_process_of_their_own() -> None:
    script = SCRIPT.format(system=STAMPED[0]["content"])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "error raised AC101",
        "ignore silent or shown",
        "default silent or shown",
        " silent or shown",
        "filter raised AC101",
    ]
    assert done.stderr.count("VolatileWarning: AC101 volatile-time at messages[0].content") == 1, "once for the line"


def test_pytest_makes_them_failures_by_its_own_option(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings =\n    error::agentcache_sdk.CacheWarning\n")
    (tmp_path / "test_agent.py").write_text(
        "from agentcache_sdk import Client\n\n\n"
        "def test_stamped():\n"
        f"    Client('http://test').session(system={STAMPED[0]['content']!r})\n\n\n"
        "def test_clean():\n"
        f"    Client('http://test').session(system={RULES!r})\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout
    assert "agentcache_sdk.cache_warnings.VolatileWarning: AC101 volatile-time" in done.stdout
