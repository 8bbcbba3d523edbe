"""Server processes that are killed: their sessions go on on another server, to the bit as if nothing had happened."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from served import served
from session_calls import HttpCalls, asked, chat_body, random_ids, raw_body, said

pytestmark = pytest.mark.cluster
HEAD = random_ids(60, "head")
TURNS = [random_ids(20, f"turn {i}") for i in range(4)]


@contextmanager
def process(folder, home, name: str, url: str) -> Iterator[tuple[subprocess.Popen[str], HttpCalls]]:
    flags = ["--dtype", "float32", "--num-pages", "128", "--access-log", "off", "--home", str(home)]
    flags += ["--replica", name, "--store", url]
    with served(folder, *flags) as (server, address, _), httpx.Client(base_url=address, timeout=60) as http:
        yield server, HttpCalls(http)


def kill(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGKILL)
    server.wait()


def test_sessions_of_a_killed_server_go_on_elsewhere_to_the_bit(tiny, tmp_path, url):
    with ExitStack() as stack:
        doomed, first = stack.enter_context(process(tiny, tmp_path, "r0", url))
        _, second = stack.enter_context(process(tiny, tmp_path, "r1", url))
        undisturbed = second.create(prompt=HEAD, cache_salt="undisturbed")
        expected = [second.go_on(undisturbed, turn, 12) for turn in TURNS]
        between, within = first.create(prompt=HEAD), first.create(prompt=HEAD)
        talk = first.create(system="You are a careful agent.")
        told = first.say(talk, "Which files are there?")
        replies = [first.go_on(between, turn, 12) for turn in TURNS[:2]]
        first.go_on(within, TURNS[0], 12)
        body = raw_body(within, TURNS[1], 600, turn_id="me.1", if_turns=1, stream=True)
        with first.http.stream("POST", "/v1/completions", json=body) as broken:
            lines = broken.iter_lines()
            for _ in range(4):
                next(lines)
            kill(doomed)
            with pytest.raises(httpx.HTTPError):
                list(lines)
        replies += [second.go_on(between, turn, 12) for turn in TURNS[2:]]
        for ours, theirs in zip(replies, expected, strict=True):
            assert asked(ours) == asked(theirs) and said(ours) == said(theirs)
        again = second.go_on(within, TURNS[1], 12, turn_id="me.1", if_turns=1)
        assert asked(again) == asked(expected[1]) and said(again) == said(expected[1])
        more = second.call("POST", "/v1/chat/completions", chat_body(talk, "Read the first one."))
        assert asked(more)[: len(asked(told)) + 8] == asked(told) + said(told)
        listed = {session["id"] for session in second.call("GET", "/v1/sessions")["data"]}
        assert {undisturbed, between, within, talk} <= listed


def test_a_server_that_comes_back_knows_that_its_sessions_went_on(tiny, tmp_path, url):
    with process(tiny, tmp_path, "r1", url) as (_, second):
        with process(tiny, tmp_path, "r0", url) as (doomed, first):
            session = first.create(prompt=HEAD)
            first.go_on(session, TURNS[0])
            kill(doomed)
        reply = second.go_on(session, TURNS[1])
        with process(tiny, tmp_path, "r0", url) as (_, first):
            after = first.go_on(session, TURNS[2])
            assert asked(after) == asked(reply) + said(reply) + TURNS[2]
            assert second.turns(session) == 3
