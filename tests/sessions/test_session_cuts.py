"""The stop button: whatever was cut, the next turn goes on from the last one that was finished."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from live import raw_request
from session_calls import asked, cached, random_ids, said

FIRST, OUT, NEW = 512, 48, 64


def wait_until(condition, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def begun(client, name: str) -> tuple[str, list[int]]:
    """A session after its first turn, and its ids."""
    session = client.create(prompt=random_ids(FIRST, name))
    reply = client.go_on(session, [], OUT)
    return session, asked(reply) + said(reply)


def cut_turn(client, session: str, name: str, *, chunks: int) -> None:
    """Begin a streamed turn and hang up after so many chunks."""
    body = {"session": session, "prompt": random_ids(NEW, name), "temperature": 0, "max_tokens": 900, "stream": True}
    connection = raw_request(client.server, "/v1/completions", body)
    received = b""
    while received.count(b"data: ") < chunks:
        received += connection.recv(4096)
    connection.close()


@pytest.mark.parametrize("pause,chunks", [(0.0, 1), (0.2, 1), (0.0, 0), (0.05, 0)])
def test_after_a_cut_turn_the_next_goes_on_from_the_last_finished_one(serve, reference, pause, chunks):
    with serve() as client:
        session, known = begun(client, f"cut {pause} {chunks}")
        for round_ in range(10):
            cut_turn(client, session, f"cut {round_}", chunks=chunks)
            time.sleep(pause)
            (fork,) = client.fork(session)
            new = random_ids(NEW, f"next {round_}")
            reply = client.go_on(session if round_ == 9 else fork, new, 8)
            assert reply["usage"]["prompt_tokens"] == FIRST + OUT + NEW == 624
            assert asked(reply) == known + new
            assert cached(reply) >= 544
            assert said(reply) == reference.greedy(asked(reply), 8)
            wait_until(lambda: not client.get(session)["in_flight"])
            if round_ < 9:
                assert client.get(session)["tokens"] == FIRST + OUT


def test_the_next_turn_of_the_same_session_can_be_sent_at_once(serve, reference):
    with serve() as client:
        session, known = begun(client, "at once")
        for round_ in range(10):
            cut_turn(client, session, f"cut {round_}", chunks=1)
            new = random_ids(5, f"next {round_}")
            reply = client.go_on(session, new, 4)
            assert asked(reply) == known + new
            known = asked(reply) + said(reply)
        assert said(reply) == reference.greedy(asked(reply), 4)


def test_of_two_turns_at_once_one_is_refused_and_none_interleaved(serve, reference):
    with serve() as client, ThreadPoolExecutor(2) as pool:
        session, known = begun(client, "two")
        for round_ in range(10):
            bodies = [
                {"session": session, "prompt": random_ids(NEW, (round_, i).__repr__()), "temperature": 0}
                | {"max_tokens": 24, "return_token_ids": True}
                for i in range(2)
            ]
            replies = list(pool.map(lambda body: client.request("POST", "/v1/completions", body), bodies))
            statuses = sorted(reply.status_code for reply in replies)
            if statuses == [200, 200]:  # one was over before the other came
                continue
            assert statuses == [200, 429]
            refused = next(reply for reply in replies if reply.status_code == 429)
            assert refused.json()["error"]["code"] == "session_busy" and refused.headers["retry-after"]
            served = next(reply for reply in replies if reply.status_code == 200).json()
            assert asked(served)[: len(known)] == known
            known = asked(served) + said(served)
            assert said(served) == reference.greedy(asked(served), 24)
        assert client.get(session)["tokens"] >= len(known)


def test_a_second_turn_during_a_long_one_is_busy_and_the_first_goes_on(serve):
    with serve() as client:
        session, known = begun(client, "long")
        done: list[dict] = []
        thread = threading.Thread(target=lambda: done.append(client.go_on(session, [1], 1200)))
        thread.start()
        wait_until(lambda: client.get(session)["in_flight"])
        body = {"session": session, "prompt": [2], "max_tokens": 2}
        assert client.refused(429, "POST", "/v1/completions", body)["code"] == "session_busy"
        assert client.refused(429, "POST", f"/v1/sessions/{session}/rollback", {"to_turn": 0})["code"] == "session_busy"
        (fork,) = client.fork(session)
        assert client.get(fork)["tokens"] == FIRST + OUT
        other = client.go_on(fork, [3], 4)
        assert asked(other) == [*known, 3]
        thread.join()
        assert asked(done[0]) == [*known, 1] and len(said(done[0])) == 1200


@pytest.mark.parametrize("streaming", [False, True])
def test_a_session_deleted_while_it_generates_ends_its_turn(serve, streaming):
    with serve() as client:
        for round_ in range(5):
            session = client.create(prompt=random_ids(64, round_))
            answers: list[tuple[int, str]] = []
            body = {"session": session, "prompt": [1], "max_tokens": 1900, "stream": streaming}

            def ask(body=body, answers=answers) -> None:
                reply = client.request("POST", "/v1/completions", body)
                answers.append((reply.status_code, reply.text))

            thread = threading.Thread(target=ask)
            thread.start()
            wait_until(lambda: client.server.pages()["running"] == 1)
            client.call("DELETE", f"/v1/sessions/{session}")
            thread.join(5)
            ((status, text),) = answers
            assert "session_not_found" in text and status in ({200, 404} if streaming else {404})
            if status == 200:
                last = [line for line in text.splitlines() if line][-2:]
                assert json.loads(last[0].removeprefix("data: "))["error"]["code"] == "session_not_found"
            client.refused(404, "GET", f"/v1/sessions/{session}")
            wait_until(lambda: client.server.pages()["live"] == 0, 2)
