"""``--trace FILE``: what was answered, with its exact ids, however it was asked for and however it ended."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import live_engine, raw_request, stream
from saying import Saying, saying_server
from stub_engine import StubEngine

from agentcache.errors import SettingsError
from agentcache.lint.readers.kinds import open_input
from agentcache.lint.records import Record
from agentcache.server.generation import Delta
from agentcache.server.usage import Notes
from agentcache.server.watch import trace_file
from agentcache.server.watch.trace_file import Answered, TraceFile
from agentcache.settings import Settings, load_settings

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {}}}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'


def lines_of(path: Path, count: int) -> list[dict[str, Any]]:
    """The lines of a trace, once there are ``count``."""
    deadline = time.monotonic() + 10
    while (data := path.read_bytes()).count(b"\n") < count:
        assert time.monotonic() < deadline, data
        time.sleep(0.01)
    return [json.loads(line) for line in data.splitlines()]


def records_of(path: Path) -> list[Record]:
    with path.open("rb") as file:
        found = list(open_input(file, path.name))
    assert all(isinstance(record, Record) for record in found), found
    return found


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[Saying, Path]]:
    path = tmp_path / "run.jsonl"
    with saying_server(tmp_path, trace=path) as saying:
        yield saying, path


def test_every_generating_route_leaves_its_exact_ids(traced):
    saying, path = traced
    server = saying.server
    saying.says("Hello there.")
    chat = server.chat([{"role": "user", "content": "Hi\n\u2028 é"}], return_token_ids=True)
    completion = server.complete("Once upon", max_tokens=4, return_token_ids=True)
    message = server.http.post(
        "/v1/messages", json={"max_tokens": 9, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}
    )
    response = server.http.post("/v1/responses", json={"input": "Hi", "instructions": "Be brief."})
    assert message.status_code == response.status_code == 200
    first, second, third, fourth = lines_of(path, 4)

    assert [line["route"] for line in (first, second, third, fourth)] == [
        "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses",
    ]  # fmt: skip
    assert first["request"] == {
        "messages": [{"role": "user", "content": "Hi\n\u2028 é"}],
        "temperature": 0,
        "return_token_ids": True,
    }
    assert first["prompt_token_ids"] == chat["prompt_token_ids"]
    assert first["choices"][0]["token_ids"] == chat["choices"][0]["token_ids"]
    assert first["choices"][0]["message"] == {"role": "assistant", "content": "Hello there."}
    assert first["choices"][0]["end_token"] == 2
    assert (first["usage"], first["agentcache"]) == (chat["usage"], chat["agentcache"])
    assert (first["status"], first["error"], first["session"], first["tenant"]) == (200, None, None, None)
    assert second["prompt_token_ids"] == completion["prompt_token_ids"]
    assert second["choices"][0]["text"] == completion["choices"][0]["text"]
    assert third["request"]["system"] == "Be brief." and "conversation" not in third
    assert fourth["request"]["instructions"] == "Be brief." and "conversation" not in fourth
    assert third["prompt_token_ids"] == fourth["prompt_token_ids"]
    assert third["usage"]["prompt_tokens"] == len(third["prompt_token_ids"])


def test_a_stream_leaves_the_same_line_as_a_whole_answer(traced):
    saying, path = traced
    saying.says("Hello there.")
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "n": 2}
    saying.server.http.post("/v1/chat/completions", json=body)
    stream(saying.server, "/v1/chat/completions", body)
    whole, streamed = lines_of(path, 2)
    assert len(whole["choices"]) == 2
    assert streamed["choices"] == whole["choices"]
    assert streamed["prompt_token_ids"] == whole["prompt_token_ids"]
    assert streamed["request"] == {**body, "stream": True}
    assert streamed["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_sessions_forks_and_tools_read_back_as_the_ids_that_the_model_read(traced):
    saying, path = traced
    server = saying.server
    made = server.http.post("/v1/sessions", json={"messages": [{"role": "system", "content": "Add."}], "tools": [TOOL]})
    parent = made.json()["id"]
    asked = [{"role": "user", "content": "2 + 2?"}]
    saying.says(CALL)
    called = server.chat(asked, session=parent, return_token_ids=True)
    (call,) = called["choices"][0]["message"]["tool_calls"]
    saying.says("It is 4.")
    result = [{"role": "tool", "tool_call_id": call["id"], "content": "4"}]
    told = server.chat(result, session=parent, return_token_ids=True)
    forked = server.http.post(f"/v1/sessions/{parent}/fork", json={"n": 2}).json()["sessions"]
    answers = [called, told]
    for number, session in enumerate([*(fork["id"] for fork in forked), parent]):
        answers.append(
            server.chat([{"role": "user", "content": f"And {number}?"}], session=session, return_token_ids=True)
        )
    lines_of(path, 5)
    records = records_of(path)

    assert [list(record.prompt_ids) for record in records] == [answer["prompt_token_ids"] for answer in answers]
    assert [list(record.reply.token_ids) for record in records] == [
        answer["choices"][0]["token_ids"] for answer in answers
    ]
    assert [record.session for record in records] == [parent, parent, forked[0]["id"], forked[1]["id"], parent]
    assert [record.usage.cached_tokens for record in records] == [
        answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers
    ]
    # The conversation is told whole, although each turn sent only what was new.
    roles = ["system", "user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in records[2].body["messages"]] == roles
    assert records[2].body["messages"][2]["tool_calls"][0]["function"]["name"] == "add"
    assert records[2].body["tools"] == [TOOL]
    assert records[0].reply.message["tool_calls"][0]["id"] == call["id"]
    # Earlier turns are repeated to the token.
    later, earlier = list(records[1].prompt_ids), [*records[0].prompt_ids, *records[0].reply.token_ids]
    assert later[: len(earlier)] == earlier


def test_raw_sessions_tell_their_text(traced):
    saying, path = traced
    server = saying.server
    session = server.http.post("/v1/sessions", json={"prompt": "Once upon"}).json()["id"]
    saying.says(" a time")
    server.complete("", session=session, max_tokens=2)
    server.complete(" there", session=session, max_tokens=2)
    first, second = lines_of(path, 2)
    assert second["request"]["prompt"] == " there"
    assert second["conversation"] == {"prompt": "Once upon a time there"}
    assert second["prompt_token_ids"][: len(first["prompt_token_ids"])] == first["prompt_token_ids"]


def test_conversations_that_go_on_from_a_response_are_told_whole(traced):
    saying, path = traced
    saying.says("Hello.")
    first = saying.server.http.post("/v1/responses", json={"input": "Hi", "store": True}).json()
    saying.server.http.post("/v1/responses", json={"input": "Go on.", "previous_response_id": first["id"]})
    lines_of(path, 2)
    _, second = records_of(path)
    assert [message["role"] for message in second.body["messages"]] == ["user", "assistant", "user"]
    assert second.places.find(("messages", 2, "content")).path == "conversation.messages[2].content"


def test_each_prompt_of_a_request_is_a_line(traced):
    saying, path = traced
    saying.says(" x y z")
    answer = saying.server.complete(["one", "two three"], max_tokens=2, n=2, return_token_ids=True)
    first, second = lines_of(path, 2)
    assert [first["prompt"], second["prompt"]] == [0, 1]
    assert [first["prompt_token_ids"], second["prompt_token_ids"]] == answer["prompt_token_ids"]
    assert [choice["index"] for choice in second["choices"]] == [0, 1]
    assert second["conversation"] == {"prompt": "two three"}
    prompts = [line["usage"]["prompt_tokens"] for line in (first, second)]
    assert sum(prompts) == answer["usage"]["prompt_tokens"]


def test_a_stream_that_is_cut_leaves_the_ids_that_were_drawn(traced):
    saying, path = traced
    saying.says("word " * 3000)
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    whole = saying.server.chat(body["messages"], return_token_ids=True)
    slow = {"site": "forward", "at": 100, "delay_ms": 3000}
    assert saying.server.http.post("/debug/fault", json=slow).status_code == 200
    connection = raw_request(saying.server, "/v1/chat/completions", {**body, "stream": True, "return_token_ids": True})
    seen = b""
    while seen.count(b'"token_ids"') < 3:  # of chunks; the prompt's have another name
        seen += connection.recv(1000)
    connection.close()
    _, cut = lines_of(path, 2)
    (choice,) = cut["choices"]
    assert cut["status"] == 499 and choice["finish_reason"] is None
    assert cut["prompt_token_ids"] == whole["prompt_token_ids"]
    assert choice["token_ids"] and choice["token_ids"] == whole["choices"][0]["token_ids"][: len(choice["token_ids"])]
    assert cut["usage"] == {"prompt_tokens": len(cut["prompt_token_ids"])} and cut["agentcache"] is None
    (record,) = records_of(path)[1:]
    # The token that was drawn last was never computed, so nothing of it is cached.
    assert record.usage is None and list(record.reply.token_ids) == choice["token_ids"][:-1]


def test_several_keys_are_told_apart_and_never_written(tmp_path):
    path = tmp_path / "run.jsonl"
    with saying_server(tmp_path, trace=path, api_keys=("first-key", "second-key")) as saying:
        saying.says("Hello.")
        body = {"messages": [{"role": "user", "content": "Hi"}], "cache_salt": "s"}
        for key in ("first-key", "second-key"):
            reply = saying.server.http.post(
                "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
            )
            assert reply.status_code == 200
        lines_of(path, 2)
        first, second = records_of(path)
    assert first.body["cache_salt"] != second.body["cache_salt"]
    assert b"first-key" not in path.read_bytes() and b"second-key" not in path.read_bytes()


def test_requests_that_the_engine_never_had_are_left_out(traced):
    saying, path = traced
    saying.says("Hello.")
    assert saying.server.http.post("/v1/chat/completions", json={"messages": []}).status_code == 400
    assert saying.server.http.post("/tokenize", json={"prompt": "x"}).status_code == 200
    long = {"messages": [{"role": "user", "content": "word " * 5000}]}
    assert saying.server.http.post("/v1/chat/completions", json=long).status_code == 400
    saying.server.chat([{"role": "user", "content": "Hi"}])
    assert len(lines_of(path, 1)) == 1


# -- the file


def answered(tokens: int = 3, **fields: Any) -> Answered:
    given = {
        "request_id": "r", "answer_id": "a", "route": "/v1/completions", "session": None, "started": 1.5, "status": 499,
        "error": None, "model": "m", "page_size": 16, "tenant": None, "salt": None, "body": b'{\r\n "prompt": "x"\n}',
        "told": None, "prompts": [list(range(tokens))], "asked": (), "n": 1, "choices": [Delta(0, ["a"], [1])],
        "notes": Notes(),
    }  # fmt: skip
    return Answered(**{**given, **fields})


def finish(trace: TraceFile) -> None:
    asyncio.run(trace.close())


def test_it_is_its_owners_alone_and_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "run.jsonl"
    for _ in range(2):
        trace = TraceFile(path, None)
        trace.note(answered())
        finish(trace)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(path.read_bytes() + b'{"format": "agentca')
    trace = TraceFile(path, None)
    trace.note(answered(tokens=10_000))
    finish(trace)
    *_, torn, last = path.read_bytes().splitlines()
    assert torn == b'{"format": "agentca'
    assert json.loads(last)["prompt_token_ids"] == list(range(10_000))
    assert json.loads(last)["request"] == {"prompt": "x"}
    with path.open("rb") as file:
        kinds = [type(record).__name__ for record in open_input(file, "run.jsonl")]
    assert kinds == ["Record", "Record", "NoJson", "Record"]


def test_two_servers_do_not_write_one_file(tmp_path):
    first = TraceFile(tmp_path / "run.jsonl", None)
    with pytest.raises(SettingsError, match="another server"):
        TraceFile(tmp_path / "run.jsonl", None)
    finish(first)
    finish(TraceFile(tmp_path / "run.jsonl", None))


@pytest.mark.parametrize("name", ["no/such/folder.jsonl", "."])
def test_what_cannot_be_written_is_said_before_the_model_is_loaded(tmp_path, name):
    with pytest.raises(SettingsError, match=r"--trace: got .* expected a file in a folder"):
        load_settings({"trace": str(tmp_path / name)})


def test_a_full_disk_ends_the_trace_with_one_warning_and_whole_lines(tmp_path, monkeypatch, caplog):
    path = tmp_path / "run.jsonl"
    trace = TraceFile(path, None)
    room = 2000
    write = os.write

    def full(file: int, data: Any) -> int:
        nonlocal room
        if file != trace._file:
            return write(file, data)
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(file, bytes(data)[:room])
        room -= done
        return done

    monkeypatch.setattr(os, "write", full)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            trace.note(answered())
        finish(trace)
        trace.note(answered())
    assert [record.getMessage() for record in caplog.records] == [
        f"--trace {path}: No space left on device; no more is written to it"
    ]
    lines = path.read_bytes().splitlines()
    assert 1 <= len(lines) < 50 and all(json.loads(line)["version"] == 1 for line in lines)


def test_a_file_that_hangs_holds_nobody_up(tmp_path, monkeypatch, caplog):
    trace = TraceFile(tmp_path / "run.jsonl", None)
    hang = Hang(monkeypatch)
    monkeypatch.setattr(trace_file, "_QUEUED_BYTES", 50_000)
    monkeypatch.setattr(trace_file, "STOP_S", 0.05)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            trace.note(answered())
        finish(trace)
    hang.end()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and "some are left out" in said[0] and "were not written within" in said[1]


class Hang:
    """Writes of another thread that take until ``end``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._over = False
        write = os.write

        def waiting(file: int, data: Any) -> int:
            while not self._over:
                time.sleep(0.005)
            return write(file, data)

        monkeypatch.setattr(trace_file.os, "write", waiting)

    def end(self) -> None:
        self._over = True


def test_a_request_that_cannot_be_written_down_harms_no_other(tmp_path, caplog):
    path = tmp_path / "run.jsonl"
    trace = TraceFile(path, None)
    trace.note(answered(request_id="bad", status=object()))
    trace.note(answered())
    finish(trace)
    assert len(path.read_bytes().splitlines()) == 1
    assert "bad" in caplog.text


def test_a_server_without_it_keeps_no_bodies(tmp_path):
    with live_engine(StubEngine(), Settings(model="stub", access_log="off")) as server:
        assert server.http.get("/health").status_code == 200
    assert not list(tmp_path.iterdir())
