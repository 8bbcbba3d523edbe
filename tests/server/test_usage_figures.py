"""Usage adds up, says what was cached, and is the same streamed or not; also through the official client."""

from __future__ import annotations

import random
import threading

import pytest
from live import drain, live_server, stream
from openai import BadRequestError, NotFoundError, OpenAI

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def fresh_ids(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(256), k=count)


def figures(usage):
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= cached <= usage["prompt_tokens"] - 1
    return usage["prompt_tokens"], cached, usage["completion_tokens"]


def last(chunks):
    """Usage and cache report of a stream that asked for usage."""
    assert chunks[-1]["choices"] == []
    return chunks[-1]["usage"], chunks[-1]["agentcache"]


@pytest.fixture(params=[16, 512], ids=["chunk16", "chunk512"])
def small(tiny, request):
    """30 pages, so that unrelated prompts push old ones out."""
    with live_server(tiny.folder, page_size=16, num_pages=30, prefill_chunk=request.param) as running:
        yield running
        drain(running)


def test_cold_warm_longer_and_evicted_prompts(small):
    prompt = fresh_ids(70, seed=1)
    reply = small.complete(prompt, max_tokens=5)
    assert figures(reply["usage"]) == (70, 0, 5)
    assert reply["agentcache"]["computed_tokens"] == 70 + 4
    assert reply["agentcache"]["miss"]["code"] == "cold"
    reply = small.complete(prompt, max_tokens=5)
    total, cached, _ = figures(reply["usage"])
    assert total == 70 and 64 <= cached <= 69
    assert reply["agentcache"]["cached_tokens"] == cached
    assert reply["agentcache"]["cached_pages"] * 16 + reply["agentcache"]["partial_tokens"] == cached
    assert reply["agentcache"]["tiers"] == {"device": cached, "host": 0, "disk": 0, "store": 0}
    assert reply["agentcache"]["alignment"]["static_tokens"] == 64
    assert reply["agentcache"]["alignment"]["tail_tokens"] == 6
    longer = small.complete(prompt + fresh_ids(30, seed=2), max_tokens=5)
    total, cached, _ = figures(longer["usage"])
    assert total == 100 and 64 <= cached <= 70
    small.complete(fresh_ids(478, seed=10), max_tokens=2)  # needs every page there is
    evicted = small.complete(prompt, max_tokens=5)
    assert figures(evicted["usage"])[:2] == (70, 0)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"max_tokens": 1}, {"stop": ["e", "a", " ", "o"]}], ids=str)
def test_stream_and_whole_answer_report_the_same(server, path, fields):
    content = {CHAT: {"messages": [{"role": "user", "content": "the cache keeps pages " * 9}]}, TEXT: {}}[path]
    if path == TEXT:
        content = {"prompt": fresh_ids(70, seed=3)}
    body = {**content, "temperature": 0, "max_tokens": 12, **fields, "cache_salt": f"{path}{fields}"}
    server.http.post(path, json=body).raise_for_status()  # from here on the prompt is warm
    whole = server.http.post(path, json=body).json()
    usage, report = last(stream(server, path, {**body, "stream_options": {"include_usage": True}}))
    assert usage == whole["usage"]
    assert {**report, "miss": None} == {**whole["agentcache"], "miss": None}
    prompt_tokens, cached, completion = figures(usage)
    assert cached >= (prompt_tokens - 1) // 16 * 16
    assert completion <= 12 * fields.get("n", 1)
    for options in ({}, {"stream_options": None}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}):
        chunks = stream(server, path, {**body, **options})
        assert all(chunk.get("usage") is None and len(chunk["choices"]) == 1 for chunk in chunks)
        assert [("agentcache" in chunk) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert chunks[-1]["agentcache"]["cached_tokens"] == cached


def test_n_counts_its_prompt_once_and_only_its_own_work(server):
    reply = server.complete(fresh_ids(70, seed=4), n=3, max_tokens=6, temperature=1, seed=1)
    assert figures(reply["usage"]) == (70, 0, 18)
    assert reply["agentcache"]["computed_tokens"] == 70 + 3 * 5
    assert len(reply["choices"]) == 3


def test_several_prompts_sum_up(server):
    prompts = [fresh_ids(20, seed=5), fresh_ids(33, seed=6)]
    server.complete(prompts, max_tokens=2)
    reply = server.complete(prompts, max_tokens=2)
    total, cached, completion = figures(reply["usage"])
    assert (total, completion) == (53, 4) and 16 + 32 <= cached <= 51
    single = [server.complete(prompt, max_tokens=2, return_token_ids=True) for prompt in prompts]
    both = server.complete(prompts, max_tokens=2, return_token_ids=True)
    assert both["prompt_token_ids"] == prompts
    assert [c["token_ids"] for c in both["choices"]] == [s["choices"][0]["token_ids"] for s in single]


def test_token_ids_of_a_stream_join_to_those_of_the_whole_answer(server, tiny):
    prompt = fresh_ids(25, seed=7)
    whole = server.complete(prompt, max_tokens=9, return_token_ids=True)
    assert whole["prompt_token_ids"] == prompt
    assert whole["choices"][0]["token_ids"] == tiny.greedy(prompt, 9)
    chunks = stream(
        server, TEXT, {"prompt": prompt, "max_tokens": 9, "temperature": 0, "return_token_ids": True, "logprobs": 2}
    )
    assert chunks[0]["prompt_token_ids"] == prompt
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [token for choice in choices for token in choice["token_ids"]] == whole["choices"][0]["token_ids"]
    assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"]
    assert sum(len(choice["logprobs"]["tokens"]) for choice in choices if choice["logprobs"]) == 9


def test_a_stop_token_counts_as_generated_and_is_not_among_the_ids(server, tiny):
    prompt = fresh_ids(25, seed=7)
    third = tiny.greedy(prompt, 3)
    reply = server.complete(prompt, max_tokens=9, stop_token_ids=[third[2]], return_token_ids=True)
    assert reply["choices"][0]["finish_reason"] == "stop" and reply["choices"][0]["stop_reason"] == third[2]
    assert reply["choices"][0]["token_ids"] == third[:2]
    assert reply["usage"]["completion_tokens"] == 3


def test_figures_survive_preemption(tiny):
    # Six requests grow to 16 pages each; 40 pages cannot hold them, so some are put back and computed again.
    prompts = [fresh_ids(96, seed=20 + i) for i in range(6)]
    replies: list[dict] = [{}] * 6
    with live_server(tiny.folder, page_size=16, num_pages=40) as server:

        def run(i: int) -> None:
            body = {
                "prompt": prompts[i], "max_tokens": 160, "temperature": 0, "return_token_ids": True,
                "stream_options": {"include_usage": True},
            }  # fmt: skip
            chunks = stream(server, TEXT, body)
            ids = [token for chunk in chunks[:-1] for token in chunk["choices"][0]["token_ids"]]
            replies[i] = {"ids": ids, "usage": chunks[-1]["usage"], "report": chunks[-1]["agentcache"]}

        threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(reply["report"]["preemptions"] for reply in replies) > 0
        for right, reply in zip(tiny.greedy_each(prompts, 160), replies):
            assert figures(reply["usage"]) == (96, 0, 160)
            assert reply["report"]["computed_tokens"] >= 96 + 159
            assert reply["ids"] == right
        drain(server)


# -- the official client ----------------------------------------------------------------------------------------------


@pytest.fixture
def client(server):
    with OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_the_openai_client_reads_replies_streams_and_usage(client, server):
    messages = [{"role": "user", "content": "the agent sends the same long beginning again"}]
    model = client.models.list().data[0].id
    whole = client.chat.completions.create(
        model=model, messages=messages, max_tokens=6, temperature=0, logprobs=True, top_logprobs=2
    )
    assert whole.choices[0].finish_reason == "length"
    assert len(whole.choices[0].logprobs.content) == 6
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    assert whole.usage.prompt_tokens_details.cached_tokens >= 0
    assert whole.model_extra["agentcache"]["page_size"] == 16
    with client.chat.completions.create(
        model=model, messages=messages, max_tokens=6, temperature=0, stream=True, stream_options={"include_usage": True}
    ) as chunks:
        received = list(chunks)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in received if chunk.choices)
    assert text == whole.choices[0].message.content
    assert received[-1].usage.completion_tokens == 6
    assert [chunk.usage for chunk in received[:-1]] == [None] * (len(received) - 1)
    completion = client.completions.create(model=model, prompt=[[1, 2, 3], [4]], max_tokens=3, echo=True, logprobs=1)
    assert len(completion.choices) == 2
    assert completion.choices[0].logprobs.token_logprobs[0] is None
    assert len(completion.choices[0].logprobs.tokens) == 6


def test_the_openai_client_gets_typed_errors(client):
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(model=None, messages=[{"role": "user", "content": "x"}], temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(NotFoundError):
        client.completions.create(model="wrong", prompt="x")
    with pytest.raises(BadRequestError) as caught:
        client.completions.create(model=None, prompt=[1] * 3000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    assert "3000" in str(caught.value) and "2048" in str(caught.value)
