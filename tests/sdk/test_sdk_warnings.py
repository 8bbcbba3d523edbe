"""Warnings point at the user's line, once, in stable words, and obey filters and the environment variable."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import warnings
from typing import Any

import pytest
from sdk_wire import WireServer

from agentcache_sdk import (
    AlignmentWarning,
    AsyncClient,
    CacheWarning,
    Client,
    PrefixBreakWarning,
    TemplateWarning,
    VolatileWarning,
)
from agentcache_sdk._codes import CODES

LONG = "You are a careful engineer who reads before writing. " * 12
STAMPED = f"Now: 2026-01-05T10:31:07Z. Run 3f2b8c1e-9d4a-4c7b-8a52-0f6e1d2c3b4a. {LONG}"
EVICTED = {
    "cached_tokens": 16,
    "miss": {"code": "evicted", "at_token": 16, "path": "messages[0].content", "detail": "gone"},
}


def finding(code: str, lost: int | None = 500, path: str = "tools[0]", **more: Any) -> dict[str, Any]:
    return {"code": code, "name": "some-name", "location": {"path": path}, "tokens_lost": lost, **more}


def here() -> int:
    """The caller's line."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def caught_by(action: Any) -> list[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [w for w in caught if issubclass(w.category, CacheWarning)]


def test_a_later_turn_that_lost_its_past_warns_with_the_miss(wire: WireServer, client: Client) -> None:
    wire.reports.extend([{}, EVICTED])
    with client.session(system=LONG) as session:
        first = session.send("one")
        line = here() + 2
        with pytest.warns(PrefixBreakWarning, match=r"^AC801 evicted at messages\[0\].content\n") as caught:
            session.send("two")
    warning = caught[0].message
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    assert isinstance(warning, PrefixBreakWarning)
    assert warning.finding.tokens_lost == first.usage.prompt_tokens - 16 - 16
    assert warning.finding.model_extra["miss"]["code"] == "evicted"
    assert "(gone)" in str(warning)


@pytest.mark.parametrize(
    ("miss", "code", "kind"),
    [
        ("cold", "AC803", PrefixBreakWarning),
        ("expired", "AC802", PrefixBreakWarning),
        ("diverged", "AC401", PrefixBreakWarning),
        ("salt", "AC602", PrefixBreakWarning),
        ("model", "AC601", PrefixBreakWarning),
        ("template", "AC702", TemplateWarning),
        ("in_flight", None, None),
        ("disabled", None, None),
        ("below_page", None, None),
    ],
)
def test_each_reason_has_its_code(wire: WireServer, client: Client, miss: str, code: str | None, kind: Any) -> None:
    wire.reports.extend([{}, {"cached_tokens": 0, "miss": {"code": miss, "at_token": 0}}])
    with client.session(system=LONG) as session:
        session.send("one")
        caught = caught_by(lambda: session.send("two"))
    assert [(w.message.finding.code, w.category) for w in caught] == ([(code, kind)] if code else [])


def test_a_first_turn_and_small_losses_are_silent(wire: WireServer, client: Client) -> None:
    miss = {"code": "evicted", "at_token": 0}
    with client.session(system=LONG) as session:
        wire.reports.append({"cached_tokens": 0, "miss": miss})
        assert caught_by(lambda: session.send("one")) == []
        wire.reports.append({"cached_tokens": 620, "miss": miss})
        assert caught_by(lambda: session.send("two")) == []


def test_findings_of_the_server_become_warnings_of_their_group(wire: WireServer, client: Client) -> None:
    wire.reports.append(
        {"findings": [finding(code) for code in ("AC103", "AC201", "AC301", "AC501", "AC705", "AC999")]}
    )
    caught = caught_by(lambda: client.chat([{"role": "user", "content": "hi"}]))
    kinds = [VolatileWarning, PrefixBreakWarning, PrefixBreakWarning, AlignmentWarning, TemplateWarning, CacheWarning]
    assert [w.category for w in caught] == kinds
    assert str(caught[0].message).splitlines() == [
        "AC103 some-name at tools[0]",
        "  500 tokens cannot be reused",
        f"  fix: {CODES['AC103'].fix}",
    ]


def test_legitimate_ignored_and_small_findings_are_silent(wire: WireServer, client: Client) -> None:
    shown = finding("AC302", None)
    quiet = [finding("AC403", verdict="legitimate"), finding("AC501", 63), finding("AC203"), finding("AC104")]
    wire.reports.append({"findings": [*quiet, shown]})
    with client.session(ignore=("AC2", "AC104")) as session:
        caught = caught_by(lambda: session.send("one"))
    assert [w.message.finding.code for w in caught] == ["AC302"]
    with pytest.raises(ValueError, match="ignore: got 'E501'"):
        client.session(ignore="E501")


def test_each_code_and_path_is_said_once_per_session_and_not_again_by_forks(wire: WireServer, client: Client) -> None:
    findings = [finding("AC201", lost) for lost in (100, 200)] + [finding("AC201", path="tools[1]")]
    wire.reports.extend({"findings": findings} for _ in range(4))
    with client.session() as one, client.session() as other:
        assert len(caught_by(lambda: one.send("a"))) == 2
        assert caught_by(lambda: one.send("b")) == []
        assert caught_by(lambda: one.fork(1)[0].send("c")) == []
        assert len(caught_by(lambda: other.send("a"))) == 2


def test_a_time_stamp_or_uuid_in_the_system_text_warns_where_the_session_is_made(client: Client) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = here() + 1
        client.session(system=STAMPED)
    assert [w.message.finding.code for w in caught] == ["AC101", "AC102"]
    assert {(w.filename, w.lineno, w.category) for w in caught} == {(__file__, line, VolatileWarning)}
    first = caught[0].message.finding
    assert (first.before, first.location.path, first.location.char) == (
        "2026-01-05T10:31:07Z",
        "messages[0].content",
        5,
    )
    assert first.tokens_lost_kind == "estimate"
    assert "about" in str(caught[0].message)
    assert "volatile={...}" in str(caught[0].message)


@pytest.mark.parametrize(
    "system",
    [LONG, "Now: 2026-01-05T10:31:07Z. Be brief.", LONG + "Released on 2026-01-05.", LONG + "Scale 3:2 or 16:9."],
)
def test_plain_text_and_stamps_with_little_behind_them_are_silent(client: Client, system: str) -> None:
    assert caught_by(lambda: client.session(system=system)) == []


def test_stateless_chat_counts_the_history_behind_a_stamp(wire: WireServer, client: Client) -> None:
    messages = [{"role": "system", "content": "It is 10:31:07."}, {"role": "user", "content": LONG}]
    assert [w.message.finding.code for w in caught_by(lambda: client.chat(messages))] == ["AC101"]
    assert caught_by(lambda: client.chat(messages)) == [], "the same text again is no reason to suspect it"


def test_filters_turn_them_into_errors_before_anything_is_sent(wire: WireServer, client: Client) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=VolatileWarning)
        with pytest.raises(VolatileWarning) as caught:
            client.chat([{"role": "system", "content": STAMPED}])
        assert caught.value.finding.code == "AC101"
    assert wire.requests == []


def test_an_error_about_a_finished_turn_keeps_the_turn(wire: WireServer, client: Client) -> None:
    wire.reports.extend([{"findings": [finding("AC501")]}, {"findings": [finding("AC502")]}])
    with warnings.catch_warnings(), client.session(system=LONG) as session:
        warnings.filterwarnings("error", category=CacheWarning)
        with pytest.raises(AlignmentWarning):
            session.send("one")
        with session.stream("two") as stream, pytest.raises(AlignmentWarning):
            stream.result()
        assert stream.result().text
        assert len(session.messages) == 5
        assert session.send("three").text


@pytest.mark.parametrize(("mode", "raised", "count"), [("error", True, 0), ("ignore", False, 0), ("default", False, 1)])
def test_the_environment_decides(
    client: Client, monkeypatch: pytest.MonkeyPatch, mode: str, raised: bool, count: int
) -> None:
    monkeypatch.setenv("AGENTCACHE_WARNINGS", mode)
    errors: list[Exception] = []

    def make() -> None:
        try:
            client.session(system=STAMPED, ignore="AC102")
        except VolatileWarning as error:
            errors.append(error)

    assert len(caught_by(make)) == count
    assert bool(errors) is raised


def test_a_wrong_value_in_the_environment_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCACHE_WARNINGS", "loud")
    with pytest.raises(ValueError, match="AGENTCACHE_WARNINGS: got 'loud', expected error, ignore or default"):
        Client("http://test")


def test_async_code_is_blamed_at_the_line_of_the_call_even_in_a_task(wire: WireServer) -> None:
    wire.reports.extend({"findings": [finding("AC501", path=f"p{i}")]} for i in range(3))
    lines: list[int] = []

    async def run() -> None:
        async with AsyncClient(wire.url) as client, client.session(system=LONG) as session:
            lines.append(here() + 1)
            await session.send("one")
            lines.append(here() + 1)
            task = asyncio.create_task(session.send("two"))
            await task
            lines.append(here() + 1)
            async with session.stream("three") as stream:
                await asyncio.wait_for(stream.result(), 5)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(run())
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, line) for line in lines]


def test_pythons_default_filter_shows_a_user_their_own_source_line() -> None:
    code = f"from agentcache_sdk import Client\nClient('http://test').session(system={STAMPED!r}, ignore='AC102')\n"
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("<stdin>:2: VolatileWarning: AC101 volatile-time at messages[0].content\n")
