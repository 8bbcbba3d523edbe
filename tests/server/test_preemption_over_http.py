"""Requests that outgrow the pool together are answered as if each had been alone."""

from __future__ import annotations

import functools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from live import drain, live_server, stream

LENGTH, REPLY, COUNT = 96, 160, 6


WAYS = {
    "recompute": {},
    "swap": {"preempt": "swap", "host_pages": 100},
    "small host": {"preempt": "swap", "host_pages": 4},
    "no host": {"preempt": "swap", "host_pages": 0},
}
FIELDS = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "seed": 11},
    "repetition": {"repetition_penalty": 1.3},
    "presence": {"presence_penalty": 1.3, "frequency_penalty": 0.5},
    "n": {"n": 2, "temperature": 0.9, "seed": 5},
}
CASES = [
    *(("recompute", fields) for fields in FIELDS),
    *(("swap", fields) for fields in ("greedy", "presence", "n")),
    ("small host", "greedy"),
    ("no host", "greedy"),
]


@pytest.fixture(scope="module")
def small(request, tiny):
    """40 pages for requests of which each needs 16."""
    with live_server(tiny.folder, page_size=16, num_pages=40, **WAYS[request.param]) as running:
        yield running
        drain(running)


def prompts() -> list[list[int]]:
    return [random.Random(f"preempted {n}").choices(range(512), k=LENGTH) for n in range(COUNT)]


def ask(server, prompt, **fields):
    """What a client sees of one streamed request: per choice ids, text, log-probabilities, why it ended; and the figures."""
    body = {
        "prompt": prompt, "max_tokens": REPLY, "temperature": 0, "logprobs": 1, "return_token_ids": True,
        "stream_options": {"include_usage": True}, **fields,
    }  # fmt: skip
    *chunks, last = stream(server, "/v1/completions", body)
    said = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            one = said.setdefault(choice["index"], {"ids": [], "text": "", "logprobs": [], "end": None})
            one["ids"] += choice.get("token_ids") or []
            one["text"] += choice["text"]
            one["logprobs"] += (choice["logprobs"] or {}).get("token_logprobs") or []
            one["end"] = choice["finish_reason"] or one["end"]
    return said, last


@pytest.fixture(scope="module")
def alone(tiny):
    """What each request says alone, cold (fields have a salt of their own) and with room: asked once, whoever compares."""
    with live_server(tiny.folder, page_size=16, num_pages=256) as roomy:

        @functools.cache
        def solo(number: int, **fields):
            return ask(roomy, prompts()[number], cache_salt=f"alone {sorted(fields.items())}", **fields)

        yield solo


def together(server, each_fields):
    """All at once, with no page on the device and none of theirs on the host."""
    server.http.post("/v1/cache/flush")
    salt = f"together {each_fields}"
    with ThreadPoolExecutor(COUNT) as pool:
        pairs = zip(prompts(), each_fields, strict=True)
        return list(pool.map(lambda pair: ask(server, pair[0], cache_salt=salt, **pair[1]), pairs))


def counted(server, name: str) -> int:
    text = server.http.get("/metrics").text
    (line,) = (line for line in text.splitlines() if line.startswith(f"agentcache_{name}_total "))
    return int(float(line.split()[1]))


def preemptions(server) -> int:
    return counted(server, "preemptions")


@pytest.mark.parametrize(("small", "fields"), CASES, indirect=["small"])
def test_preempted_streams_say_what_they_would_have_said_alone(small, alone, fields):
    fields = FIELDS[fields]
    expected = [alone(number, **fields) for number in range(COUNT)]
    before, swapped = preemptions(small), counted(small, "swapped_pages")
    shared = together(small, [fields] * COUNT)
    happened = preemptions(small) - before
    assert happened > 0
    if small.settings.host_pages != 4:  # four pages take a small victim in, and no large one
        assert (counted(small, "swapped_pages") > swapped) == (small.settings.host_pages == 100)
    prefilled = 0
    for (said, last), (solo, solo_last) in zip(shared, expected):
        assert said.keys() == solo.keys() == set(range(fields.get("n", 1)))
        for index, one in said.items():
            assert one["ids"] == solo[index]["ids"] and len(one["ids"]) == REPLY
            assert one["text"] == solo[index]["text"] and one["end"] == "length"
            assert one["logprobs"] == solo[index]["logprobs"]  # to the last bit
        assert last["usage"] == solo_last["usage"]
        assert last["usage"]["prompt_tokens"] == LENGTH and last["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        report = last["agentcache"]
        assert report["preemptions"] <= 4 * len(said)
        prefilled += report["computed_tokens"] - len(said) * (REPLY - 1)
    assert sum(last["agentcache"]["preemptions"] for _, last in shared) == happened
    assert prefilled <= 3 * COUNT * LENGTH * fields.get("n", 1)


@pytest.mark.parametrize("small", ["recompute", "swap"], indirect=True)
def test_a_stop_string_is_found_although_its_sequence_was_preempted_on_the_way(small, alone):
    solo = [alone(number)[0][0] for number in range(COUNT)]
    stops = [one["text"][len(one["text"]) * 3 // 4 :][:6] for one in solo]
    expected = [alone(number, stop=stop)[0][0] for number, stop in enumerate(stops)]
    assert all(one["end"] == "stop" for one in expected)
    before = preemptions(small)
    shared = together(small, [{"stop": stop} for stop in stops])
    assert preemptions(small) > before
    for (said, _), other in zip(shared, expected):
        assert (said[0]["ids"], said[0]["text"], said[0]["end"]) == (other["ids"], other["text"], "stop")
