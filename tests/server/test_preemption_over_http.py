"""Requests that outgrow the pool together are answered as if each had been alone."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from live import drain, live_server, stream

LENGTH, REPLY, COUNT = 96, 160, 6


@pytest.fixture(scope="module")
def small(tiny):
    """40 pages for requests of which each needs 16."""
    with live_server(tiny.folder, page_size=16, num_pages=40) as running:
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


def alone(server, prompt, **fields):
    server.http.post("/v1/cache/flush")
    return ask(server, prompt, **fields)


def preemptions(server) -> int:
    text = server.http.get("/metrics").text
    (line,) = (line for line in text.splitlines() if line.startswith("agentcache_preemptions_total "))
    return int(float(line.split()[1]))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.9, "seed": 11},
        {"repetition_penalty": 1.3},
        {"presence_penalty": 1.3, "frequency_penalty": 0.5},
        {"n": 2, "temperature": 0.9, "seed": 5},
    ],
    ids=["greedy", "sampled", "repetition", "presence", "n"],
)
def test_preempted_streams_say_what_they_would_have_said_alone(small, fields):
    expected = [alone(small, prompt, **fields) for prompt in prompts()]
    small.http.post("/v1/cache/flush")
    before = preemptions(small)
    with ThreadPoolExecutor(COUNT) as pool:
        together = list(pool.map(lambda prompt: ask(small, prompt, **fields), prompts()))
    happened = preemptions(small) - before
    assert happened > 0
    prefilled = 0
    for (said, last), (solo, solo_last) in zip(together, expected):
        assert said.keys() == solo.keys() == set(range(fields.get("n", 1)))
        for index, one in said.items():
            assert one["ids"] == solo[index]["ids"] and len(one["ids"]) == REPLY
            assert one["text"] == solo[index]["text"] and one["end"] == "length"
            assert one["logprobs"] == pytest.approx(solo[index]["logprobs"], abs=1e-3)
        assert last["usage"] == solo_last["usage"]
        assert last["usage"]["prompt_tokens"] == LENGTH and last["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        report = last["agentcache"]
        assert report["preemptions"] <= 4 * len(said)
        prefilled += report["computed_tokens"] - len(said) * (REPLY - 1)
    assert sum(last["agentcache"]["preemptions"] for _, last in together) == happened
    assert prefilled <= 3 * COUNT * LENGTH * fields.get("n", 1)


def test_a_stop_string_is_found_although_its_sequence_was_preempted_on_the_way(small):
    solo = [alone(small, prompt)[0][0] for prompt in prompts()]
    stops = [one["text"][len(one["text"]) * 3 // 4 :][:6] for one in solo]
    expected = [alone(small, prompt, stop=[stop])[0][0] for prompt, stop in zip(prompts(), stops)]
    assert all(one["end"] == "stop" for one in expected)
    small.http.post("/v1/cache/flush")
    before = preemptions(small)
    with ThreadPoolExecutor(COUNT) as pool:
        asked = pool.map(lambda pair: ask(small, pair[0], stop=[pair[1]])[0][0], zip(prompts(), stops))
        together = list(asked)
    assert preemptions(small) > before
    for one, other in zip(together, expected):
        assert (one["ids"], one["text"], one["end"]) == (other["ids"], other["text"], "stop")
