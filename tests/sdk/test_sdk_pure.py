"""Decisions without a network: retry policy, event decoding, tool schemas, and what importing costs."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import agentcache_sdk
from agentcache_sdk import (
    APIError,
    Busy,
    Client,
    ConnectionFailed,
    RateLimited,
    ServerError,
    Timeout,
    ToolCall,
    tool_schema,
)
from agentcache_sdk._events import EventDecoder
from agentcache_sdk._retry import Repeat, RetryPolicy


def test_importing_the_sdk_loads_no_server_and_no_model_library() -> None:
    code = (
        "import sys, agentcache_sdk; "
        "print([m for m in ('torch', 'transformers', 'fastapi', 'uvicorn', 'numpy', 'openai', 'agentcache') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists_and_is_documented() -> None:
    for name in agentcache_sdk.__all__:
        assert getattr(agentcache_sdk, name).__doc__, name


# Retry policy


def failure(status: int, retry_after: float | None = None) -> APIError:
    error = (RateLimited if status == 429 else ServerError)("no", status)
    error.retry_after = retry_after
    return error


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (ConnectionFailed("refused", sent=False), 0.25),
        (ConnectionFailed("lost", sent=True), None),
        (Timeout("silent"), None),
        (failure(502), 0.25),
        (failure(503), 0.25),
        (failure(503, 2.0), 2.0),
        (failure(500), None),
        (failure(504), None),
        (failure(429), None),
        (failure(429, 7.0), 7.0),
        (failure(429, 31.0), None),
    ],
)
def test_only_what_a_retry_can_cure_is_retried(error: Any, wait: float | None) -> None:
    assert RetryPolicy(jitter=lambda: 0.0).wait_before(1, error) == wait


def test_waits_double_are_shortened_by_chance_and_end() -> None:
    refused = ConnectionFailed("refused", sent=False)
    policy = RetryPolicy(max_retries=3, jitter=lambda: 0.0)
    assert [policy.wait_before(i, refused) for i in (1, 2, 3, 4)] == [0.25, 0.5, 1.0, None]
    assert RetryPolicy(jitter=lambda: 1.0).wait_before(1, refused) == 0.125
    assert RetryPolicy(max_retries=0).wait_before(1, refused) is None


def test_what_appends_to_a_session_is_repeated_only_when_it_was_surely_not_taken() -> None:
    policy = RetryPolicy(jitter=lambda: 0.0)
    for repeat in (Repeat.APPENDING, Repeat.SETTLING):
        assert policy.wait_before(1, ServerError("bad gateway", 502), repeat) is None
        assert policy.wait_before(1, ServerError("shutting down", 503), repeat) == 0.25
        assert policy.wait_before(1, ConnectionFailed("lost", sent=True), repeat) is None
    assert policy.wait_before(1, ServerError("bad gateway", 502)) == 0.25
    assert policy.wait_before(1, ServerError("shutting down", 503), Repeat.NEVER) is None


def test_a_session_that_settles_is_asked_again_for_a_bounded_time() -> None:
    policy, busy = RetryPolicy(max_retries=0), Busy("one turn at a time", 429, "session_busy")
    waits = list(itertools.takewhile(bool, (policy.wait_before(i, busy, Repeat.SETTLING) for i in itertools.count(1))))
    assert waits[:3] == [0.01, 0.02, 0.04]
    assert 10 < sum(waits) < 12
    assert policy.wait_before(1, busy, Repeat.APPENDING) is None


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(RateLimited("full", 429, "queue_full", None, "req-1")))
    assert (type(error), error.status, error.code, error.request_id) == (RateLimited, 429, "queue_full", "req-1")


# Events


@given(st.lists(st.text(alphabet=st.sampled_from('a{}\u2028\x85\x0bé👋" '), min_size=1), max_size=5), st.data())
def test_events_do_not_depend_on_how_their_bytes_are_cut(texts: list[str], data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=len(texts), max_size=len(texts)))
    stream = "".join(f": comment{end}data: {text}{end}{end}" for text, end in zip(texts, ends)).encode() + b"\n"
    decoder, seen, at = EventDecoder(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, 9))
        seen += decoder.feed(stream[at : at + step])
        at += step
    assert seen == texts


def test_an_event_of_several_lines_is_joined() -> None:
    assert list(EventDecoder().feed(b'event: x\ndata: {"a":\ndata: 1}\nid: 3\n\n\n')) == ['{"a":\n1}']


def sse(*chunks: Any) -> httpx.MockTransport:
    content = b"".join(b"data: " + (c if isinstance(c, bytes) else json.dumps(c).encode()) + b"\n\n" for c in chunks)
    return httpx.MockTransport(lambda _: httpx.Response(200, content=content))


def test_a_stream_of_several_choices_shows_the_first_and_keeps_all() -> None:
    def piece(index: int, text: str, **more: Any) -> dict[str, Any]:
        logprobs = {"content": [{"token": text, "logprob": -1.0}]}
        choice = {"index": index, "delta": {"content": text}, "token_ids": [index], "logprobs": logprobs, **more}
        return {"choices": [choice]}

    transport = sse(
        {"choices": [{"index": 1, "delta": {"role": "assistant", "content": ""}, "token_ids": [], "logprobs": None}]},
        {"prompt_token_ids": [7, 8], **piece(0, "a")},
        piece(1, "x"),
        piece(0, "b", finish_reason="stop"),
        piece(1, "y", finish_reason="length"),
        b"[DONE]",
    )
    with Client("http://test", transport=transport) as client, client.stream_chat([{"role": "user"}]) as stream:
        assert list(stream) == ["a", "b"]
    turn = stream.result()
    assert [(c.text, c.finish_reason, c.token_ids) for c in turn.choices] == [
        ("ab", "stop", [0, 0]),
        ("xy", "length", [1, 1]),
    ]
    assert turn.raw["prompt_token_ids"] == [7, 8]
    assert [entry["token"] for entry in turn.raw["choices"][1]["logprobs"]["content"]] == ["x", "y"]


@pytest.mark.parametrize("chunk", [b"not json", b"[1]"])
def test_rubbish_in_a_stream_is_one_clear_error(chunk: bytes) -> None:
    with (
        Client("http://test", transport=sse(chunk)) as client,
        client.stream_chat([{"role": "user"}]) as stream,
        pytest.raises(APIError, match="expected a JSON object in the stream"),
    ):
        list(stream)


# Tool schemas


class Edit(BaseModel):
    """One change."""

    line: int = Field(ge=1)
    title: str = "none"


def patch(
    path: Annotated[str, "file to change"],
    edits: list[Edit],
    mode: Literal["dry", "real"] = "dry",
    limit: Optional[int] = None,  # noqa: UP045
    copy: Annotated[bool, Field(description="keep the old one")] = False,
    _title: str = "t",
) -> str:
    """Change a file
    in place.

    Longer story.
    """
    return path


def test_a_function_becomes_a_schema() -> None:
    schema = tool_schema(patch)
    assert list(schema) == ["type", "function"]
    function = schema["function"]
    assert list(function) == ["name", "description", "parameters"]
    assert (function["name"], function["description"]) == ("patch", "Change a file in place.")
    parameters = function["parameters"]
    assert list(parameters) == ["type", "properties", "required", "additionalProperties", "$defs"]
    assert parameters["additionalProperties"] is False
    assert parameters["required"] == ["path", "edits"]
    assert parameters["properties"] == {
        "path": {"description": "file to change", "type": "string"},
        "edits": {"items": {"$ref": "#/$defs/Edit"}, "type": "array"},
        "mode": {"default": "dry", "enum": ["dry", "real"], "type": "string"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "copy": {"default": False, "description": "keep the old one", "type": "boolean"},
        "_title": {"default": "t", "type": "string"},
    }
    assert list(parameters["$defs"]["Edit"]["properties"]) == ["line", "title"]


def test_schemas_are_the_same_text_in_every_process() -> None:
    code = "import json, test_sdk_pure as t; print(json.dumps(t.tool_schema(t.patch)))"
    texts = {json.dumps(tool_schema(patch)) + "\n"}
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=__file__.rpartition("/")[0],
            env={"PYTHONHASHSEED": seed},
        )
        texts.add(done.stdout)
    assert len(texts) == 1


def untyped(path):  # type: ignore[no-untyped-def]
    return path


def starred(*paths: str) -> None: ...


def unmade(where: Callable[[], int]) -> None: ...


def unknown(where: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize(
    ("function", "what"), [(untyped, "path"), (starred, "paths"), (unmade, "unmade"), (unknown, "Nowhere")]
)
def test_a_function_that_has_no_schema_is_refused_by_name(function: Any, what: str) -> None:
    with pytest.raises(TypeError, match=what):
        tool_schema(function)


def test_methods_lambdas_without_text_and_callables_work() -> None:
    class Shell:
        def run(self, command: str) -> str:
            return command

        def __call__(self, command: str) -> str:
            """Run it."""
            return command

    assert tool_schema(Shell().run)["function"] == {
        "name": "run",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
            "additionalProperties": False,
        },
    }
    assert tool_schema(Shell())["function"]["name"] == "Shell"


def test_two_tools_of_one_name_and_things_that_are_no_tools_are_refused() -> None:
    with Client("http://test") as client:
        with pytest.raises(ValueError, match="two tools are called 'patch'"):
            client.session(tools=[patch, tool_schema(patch)])
        with pytest.raises(TypeError, match="tools: got 3"):
            client.session(tools=[3])  # type: ignore[list-item]


@pytest.mark.parametrize("arguments", ['{"path": "a', "[1]", "3"])
def test_arguments_that_were_cut_stay_readable_as_text(arguments: str) -> None:
    call = ToolCall(id="1", name="patch", arguments=arguments)
    with pytest.raises(ValueError, match="patch"):
        _ = call.args
    assert call.arguments == arguments
