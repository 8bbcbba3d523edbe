"""Log-probabilities of the prompt are those of a full forward pass, whatever is cached."""

from __future__ import annotations

import math

import pytest
from reference import Reference, cached, random_ids

PROMPT = random_ids(48, "scored")


def scored(server, prompt, **fields):
    body = {"echo": True, "logprobs": 3, "max_tokens": 1, "return_token_ids": True, **fields}
    return server.complete(prompt, **body)


def check(reference: Reference, prompt: list[int], reply, top: int) -> None:
    """Each of the prompt's tokens has the log-probability that Hugging Face gives it, and so have the alternatives."""
    choice = reply["choices"][0]
    figures = choice["logprobs"]
    ids = prompt + choice["token_ids"]
    assert len(figures["token_logprobs"]) == len(figures["top_logprobs"]) == len(ids)
    assert figures["token_logprobs"][0] is None and figures["top_logprobs"][0] is None
    expected = reference.logprobs(ids)
    for place, token in enumerate(ids[1:]):
        got = figures["token_logprobs"][place + 1]
        assert math.isfinite(got) and abs(got - expected[place, token].item()) < 1e-3
        best = sorted(figures["top_logprobs"][place + 1].values(), reverse=True)[:top]
        assert best == pytest.approx(expected[place].topk(top).values.tolist(), abs=1e-3)
    assert len({round(value, 6) for value in figures["token_logprobs"][1:]}) > len(ids) // 2  # no constant run


@pytest.mark.parametrize("chunk", [16, 512])
def test_prompt_logprobs_are_right_cold_warm_partly_warm_and_after_eviction(serve, reference, chunk):
    with serve(num_pages=40, prefill_chunk=chunk) as server:
        cold, warm = scored(server, PROMPT), scored(server, PROMPT)
        parted = PROMPT[:32] + random_ids(16, "parted")
        for prompt, reply in ((PROMPT, cold), (PROMPT, warm), (parted, scored(server, parted))):
            check(reference, prompt, reply, 3)
            assert cached(reply) == 0  # every position is computed
        assert warm["agentcache"]["miss"]["code"] == "disabled"
        plain = server.complete(PROMPT, max_tokens=1)
        assert cached(plain) == 47  # what was computed for the figures is cache like any other
        for n in range(8):
            server.complete(random_ids(96, n), max_tokens=1)
        check(reference, PROMPT, scored(server, PROMPT), 3)


def test_a_prompt_can_be_scored_without_generating_anything(serve, reference):
    with serve(num_pages=40) as server:
        for _ in range(2):
            reply = scored(server, PROMPT, max_tokens=0)
            check(reference, PROMPT, reply, 3)
            assert reply["choices"][0]["token_ids"] == [] and reply["usage"]["completion_tokens"] == 0
        reference.check(PROMPT, server.complete(PROMPT, max_tokens=4, logprobs=1, return_token_ids=True), 4)


def test_more_alternatives_of_the_same_prompt_are_right_as_well(serve, reference):
    with serve(num_pages=40) as server:
        for top in (1, 5, 1):
            check(reference, PROMPT, scored(server, PROMPT, logprobs=top), top)


def test_scoring_beside_others_that_share_the_prompt_gives_the_same_figures(serve, reference):
    with serve(num_pages=80) as server:
        server.complete(PROMPT, max_tokens=1)
        prompts = [PROMPT, PROMPT[:32] + random_ids(20, "other"), PROMPT]
        reply = server.complete(prompts, echo=True, logprobs=2, max_tokens=3, return_token_ids=True)
        for prompt, choice in zip(prompts, reply["choices"], strict=True):
            check(reference, prompt, {"choices": [choice]}, 2)
