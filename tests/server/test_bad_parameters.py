"""Bad values are refused with a status and the field's name, extreme ones are served, and nobody else notices."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time

import httpx
import pytest
from live import drain, probe, stream

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
BASE = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
    TEXT: {"prompt": [5, 6, 7], "max_tokens": 4},
}
PROBE = [11, 12, 13, 14, 15]
MISSING = object()

BAD_ANYWHERE = {
    "temperature": [-1, math.nan, math.inf, -math.inf, "hot", True, [], 1e7],
    "top_p": [0, -0.1, 1.1, math.nan, "x"],
    "top_k": [-2, 1.5, "5", True],
    "min_p": [2, -0.1, "x"],
    "n": [0, -1, 10**6, 1.5, True, "2", []],
    "best_of": [2, 0, "x"],
    "max_tokens": [-1, 0, "5", 1.5, True, math.inf],
    "max_completion_tokens": [-1, 0, "5"],
    "logit_bias": [
        {"999999": 1},
        {"-1": 1},
        {"AI": 1},
        {"5": 1e9},
        {"5": -1e9},
        {"5": "x"},
        {"5": math.nan},
        {"٥": 1},
        {str(i): 1 for i in range(10**5)},
        [1],
        "x",
    ],
    "stop_token_ids": [[10**9], [-1], ["a"], 5, [1.5], [True], list(range(512)) * 3, [[1]]],
    "stop": [1, [[]], "", [""], ["x"] * 17, {"a": 1}, [1], "x" * 2000],
    "seed": [2**64, -(2**64), 10**400, "x", 1.5, True],
    "priority": ["high", 2**40, 1.5],
    "presence_penalty": [-3, 3, "x"],
    "frequency_penalty": [-3, 3, math.inf],
    "repetition_penalty": [0, 5e-324, -1, 11, "x"],
    "ignore_eos": ["yes", 1],
    "return_token_ids": ["yes", 1],
    "stream_options": [5, [], {"include_usage": "x"}, {"include_usage": 1}],
    "cache_salt": [5, ["a"], {}, True],
    "prompt_cache_key": [5],
    "session": [5, ["abc"], {}, True],
    "model": [5, []],
}
BAD_TEXT = {
    "prompt": [
        "",
        [],
        [[]],
        [-1],
        [10**9],
        [2**70],
        [1.5],
        [True],
        [None],
        None,
        MISSING,
        ["", "a"],
        ["a", 1],
        [1, "a"],
        [[1], []],
        [[1], ["a"]],
        [[1], 2],
        [[[1]]],
        [{}],
        {"a": 1},
        5,
        [[1]] * 3000,
    ],
    "logprobs": [-1, 10**6, True, "3", 1.5],
    "echo": ["yes", 1],
    "suffix": ["x", 5],
}
BAD_CHAT = {
    "messages": [
        [],
        None,
        "hi",
        MISSING,
        [1],
        [{}],
        [{"role": "user", "content": 5}],
        [{"role": "nobody", "content": "x"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    ],
    "logprobs": [-1, 10**6, "x", 1],
    "top_logprobs": [-1, 21, 5, "x"],
    "tools": [5, ["x"], {}],
    "tool_choice": ["required", 5, {"type": "function", "function": {"name": "x"}}],
    "response_format": [
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"schema": 5}},
        "text",
        {},
    ],
    "chat_template_kwargs": [[], 5],
    "add_generation_prompt": ["x"],
}


def table():
    anywhere = [(path, BAD_ANYWHERE) for path in (CHAT, TEXT)]
    for path, fields in (*anywhere, (TEXT, BAD_TEXT), (CHAT, BAD_CHAT)):
        for field, values in fields.items():
            yield pytest.param(path, field, values, id=f"{path.rsplit('/', 2)[-2]}-{field}")


@pytest.fixture(scope="module")
def expected(tiny):
    return tiny.greedy(PROBE, 8)


@pytest.fixture(scope="module", autouse=True)
def neighbours(server, tiny):
    """Two clients whose valid requests run beside every bad one; they must be unharmed."""
    stop = threading.Event()
    harmed: list[str] = []
    served = [0, 0]

    def run(number: int) -> None:
        prompt = [20 + number] * 20
        right = tiny.greedy(prompt, 24)
        with httpx.Client(base_url=server.url, timeout=60) as http:
            while not stop.is_set():
                body = {"prompt": prompt, "temperature": 0, "max_tokens": 24, "return_token_ids": True}
                reply = http.post(TEXT, json=body)
                if reply.status_code != 200 or reply.json()["choices"][0]["token_ids"] != right:
                    harmed.append(reply.text)
                served[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()
    assert not harmed
    assert min(served) > 5
    drain(server)


def post(server, path, body):
    """As JSON text that may hold NaN and Infinity, which clients of other languages do send."""
    content = json.dumps(body).encode()
    began = time.monotonic()
    reply = server.http.post(path, content=content, headers={"content-type": "application/json"})
    return reply, time.monotonic() - began


@pytest.mark.parametrize("path,field,values", list(table()))
def test_a_bad_value_is_refused_by_name_streamed_or_not(server, expected, path, field, values):
    for value, streaming in itertools.product(values, (False, True)):
        body = {**BASE[path], "stream": streaming, field: value}
        if value is MISSING:
            del body[field]
        reply, seconds = post(server, path, body)
        case = f"{field}={str(value)[:60]} stream={streaming}: {reply.status_code} {reply.text[:300]}"
        assert reply.status_code == 400, case
        assert reply.headers["content-type"] == "application/json", case
        error = reply.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}, case
        assert error["type"] == "invalid_request_error", case
        assert error["param"].startswith(field) and field in error["message"], case
        assert len(error["message"]) < 500, case
        for leaked in ("Traceback", "Error", "Exception", "pydantic", "agentcache.", "Body"):
            assert leaked not in error["message"], case
        assert seconds < 2, case
    probe(server, PROBE, expected)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("value", ["yes", 1, []])
def test_stream_itself_must_be_true_or_false(server, path, value):
    reply, _ = post(server, path, {**BASE[path], "stream": value})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "stream"


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", ["", "wrong"])
def test_another_model_is_404(server, expected, path, streaming, name):
    reply, _ = post(server, path, {**BASE[path], "stream": streaming, "model": name})
    assert reply.status_code == 404
    assert reply.json()["error"]["param"] == "model" and reply.json()["error"]["code"] == "model_not_found"
    probe(server, PROBE, expected)


def test_stream_options_need_a_stream(server):
    for path in (CHAT, TEXT):
        for streaming in ({}, {"stream": False}, {"stream": None}):
            reply, _ = post(server, path, {**BASE[path], **streaming, "stream_options": {"include_usage": True}})
            assert reply.status_code == 400 and reply.json()["error"]["param"] == "stream_options"
        reply, _ = post(server, path, {**BASE[path], "stream_options": None})
        assert reply.status_code == 200


LEGAL = [
    {"temperature": 1e6},
    {"temperature": 1e-300},
    {"top_k": 0},
    {"top_k": -1},
    {"top_k": 10**9},
    {"top_k": 10**400, "temperature": 1},
    {"top_p": 1e-9},
    {"top_p": 1},
    {"min_p": 1},
    {"min_p": 0},
    {"n": 3.0, "max_tokens": 2.0},
    {"n": 2, "best_of": 2},
    {"seed": -1},
    {"seed": 2**63 - 1},
    {"seed": -(2**63)},
    {"logit_bias": {}},
    {"logit_bias": {"5": 100, "6": -100.0}},
    {"stop": []},
    {"stop": ["never said"] * 16},
    {"stop_token_ids": []},
    {"repetition_penalty": 1e-6},
    {"presence_penalty": -2, "frequency_penalty": 2},
    {"priority": -5},
    {"cache_salt": "x" * 10_000},
    {"cache_salt": ""},
    {"cache_salt": "\0", "user": "\0", "stop": ["\0", "\ufeff"]},
    {"prompt_cache_key": "me", "user": "you", "store": False, "no_such_field": {"a": [1]}},
    {"model": None, "temperature": None, "top_p": None, "top_k": None, "n": None, "stop": None, "seed": None},
    {"stream": None, "stream_options": None, "logit_bias": None, "logprobs": None, "session": None, "tools": None},
]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("fields", LEGAL, ids="-".join)
def test_an_extreme_but_legal_value_is_served(server, expected, path, fields):
    reply, _ = post(server, path, {**BASE[path], **fields})
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["completion_tokens"] > 0
    chunks = stream(server, path, {**BASE[path], **fields})
    assert "error" not in chunks[-1], chunks[-1]
    ends = {None, "length", "stop"}  # what is drawn may be an end token, or one of the stop strings
    assert all(choice["finish_reason"] in ends for chunk in chunks for choice in chunk["choices"])
    probe(server, PROBE, expected)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1e-8},
        {"temperature": 1, "top_p": 1e-9},
        {"temperature": 1, "top_k": 1},
        {"temperature": 1, "min_p": 1},
        {"temperature": 0, "top_k": 5, "top_p": 0.1, "min_p": 0.5},
        {"temperature": 0, "seed": 7},
        {"temperature": 0, "logit_bias": {str(token): -100 for token in range(512)}},
        {"temperature": 0, "logprobs": 20},
    ],
    ids=str,
)
def test_what_amounts_to_greedy_is_greedy(server, expected, fields):
    probe(server, PROBE, expected, **fields)


@pytest.mark.parametrize("limit", [1, 2**31, 2**63, 2**70, None])
def test_a_huge_max_tokens_means_the_room_left(server, limit):
    reply = server.complete([9] * 2040, max_tokens=limit)
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == (1 if limit == 1 else 8)


def test_greedy_rows_beside_sampled_and_banned_rows_equal_their_solo_runs(server, expected):
    banned = {str(token): -100 for token in range(0, 512, 2)}
    mixed = [
        {"temperature": 0, "top_k": 5},
        {"temperature": 1e6, "seed": 1},
        {"temperature": 0.7, "top_p": 0.01, "logit_bias": banned},
        {"temperature": 0},
        {"temperature": 1.5, "min_p": 0.9, "presence_penalty": 2},
    ]
    solo = [ids_of(server, fields) for fields in mixed]
    assert solo[0] == solo[3] == expected
    together: list[list[int] | None] = [None] * len(mixed)

    def run(i: int) -> None:
        together[i] = ids_of(server, mixed[i])

    seeded = [i for i in range(len(mixed)) if "seed" in mixed[i] or mixed[i]["temperature"] == 0]
    for _ in range(3):
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(mixed))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [together[i] for i in seeded] == [solo[i] for i in seeded]
        assert together[2] and all(token % 2 for token in together[2])


def ids_of(server, fields):
    with httpx.Client(base_url=server.url, timeout=60) as http:
        reply = http.post(TEXT, json={"prompt": PROBE, "max_tokens": 8, "return_token_ids": True, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"]


def test_tokenize_detokenize_and_render_check_their_bodies(server):
    bad = [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": BASE[CHAT]["messages"]}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [512]}, "tokens"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
        (CHAT + "/render", {"messages": [{"role": "x"}]}, "messages"),
    ]
    for path, body, field in bad:
        reply, _ = post(server, path, body)
        assert reply.status_code == 400, (path, body, reply.text)
        assert reply.json()["error"]["param"].startswith(field)
    assert server.http.post("/tokenize", json={"prompt": ""}).json()["tokens"] == []
    text = "héllo <|im_start|> 👋"
    tokens = server.http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    assert server.http.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": text}
