"""Hits of every shape against a running server: right tokens, right log-probabilities, right figures, no leaks."""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from reference import cached, random_ids

FIGURES = {"max_tokens": 8, "logprobs": 5, "return_token_ids": True}


def test_a_prompt_that_is_cached_to_its_last_token_is_answered_right(serve, reference):
    with serve(num_pages=64) as server:
        for length in (1, 15, 16, 17, 31, 32, 33, 48):
            prompt = random_ids(length, "whole")
            first, second = (server.complete(prompt, **FIGURES) for _ in range(2))
            with ThreadPoolExecutor(3) as pool:
                at_once = list(pool.map(lambda _, prompt=prompt: server.complete(prompt, **FIGURES), range(3)))
            for reply in (first, second, *at_once):
                reference.check(prompt, reply, 8)
            assert cached(first) == 0
            for reply in (second, *at_once):
                assert (-(-length // 16) - 1) * 16 <= cached(reply) <= length - 1


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_the_token_redone_on_a_full_hit_does_not_break_the_chain_behind_it(serve, reference, pages):
    with serve(num_pages=64) as server:
        prompt = random_ids(16 * pages, "chain")
        for _ in range(2):
            reply = server.complete(prompt, **FIGURES)
        longer = prompt + reply["choices"][0]["token_ids"] + random_ids(8, "tail")
        third = server.complete(longer, **FIGURES)
        reference.check(longer, third, 8)
        assert cached(third) >= 16 * pages


def test_generated_tokens_are_cached_for_the_next_turn(serve, reference):
    with serve(num_pages=64) as server:
        prompt = random_ids(20, "turn")
        reply = server.complete(prompt, max_tokens=29, logprobs=0, return_token_ids=True)
        said = reply["choices"][0]["token_ids"]
        following = server.complete(prompt + said + [7, 8, 9], **FIGURES)
        assert cached(following) == 48  # 20 + 29 tokens, of which the last has no keys and values yet
        reference.check(prompt + said + [7, 8, 9], following, 8)


def test_a_hit_that_ends_inside_a_page_copies_its_beginning(serve, reference):
    with serve(num_pages=64) as server:
        prompt = random_ids(48, "inside")
        server.complete(prompt, **FIGURES)
        for keep in (17, 23, 31, 40, 47):
            other = [*prompt[:keep], (prompt[keep] + 1) % 512, *random_ids(5, keep)]
            reply = server.complete(other, **FIGURES)
            assert cached(reply) == keep
            report = reply["agentcache"]
            assert report["cached_pages"] * 16 + report["partial_tokens"] == keep
            assert report["miss"]["code"] == "diverged" and report["miss"]["at_token"] == keep
            reference.check(other, reply, 8)
        reference.check(prompt, server.complete(prompt, **FIGURES), 8)


async def _staggered(server, prompts: list[list[int]]) -> list[dict]:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:

        async def ask(index: int, prompt: list[int]) -> dict:
            await asyncio.sleep(0.005 * index)
            body = {"prompt": prompt, "temperature": 0, **FIGURES, "max_tokens": 10 + 5 * index}
            reply = await http.post("/v1/completions", json=body)
            assert reply.status_code == 200, reply.text
            return reply.json()

        return await asyncio.gather(*(ask(i, p) for i, p in enumerate(prompts)))


def test_eight_writers_behind_one_half_filled_page_do_not_see_each_other(serve, reference):
    with serve(num_pages=128) as server:
        trunk = random_ids(20, "trunk")
        server.complete(trunk, **(FIGURES | {"max_tokens": 4}))
        prompts = [[*trunk, x] for x in range(8)]
        for index, reply in enumerate(asyncio.run(_staggered(server, prompts))):
            reference.check(prompts[index], reply, 10 + 5 * index)


def test_equal_replies_that_fill_equal_pages_at_once_free_nothing_twice(serve, reference):
    with serve(num_pages=40) as server:
        trunk = random_ids(20, "twins")
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda _: server.complete(trunk, **(FIGURES | {"max_tokens": 40})), range(4)))
        for reply in replies:
            reference.check(trunk, reply, 40)
        for n in range(20):
            server.complete(random_ids(100, n), max_tokens=2)
            pages = server.pages()
            assert pages["free"] + pages["live"] + pages["cached"] + pages["pinned"] == pages["total"]
        reference.check(trunk, server.complete(trunk, **(FIGURES | {"max_tokens": 40})), 40)


def test_several_sequences_of_one_request_share_the_prompt_and_part_when_they_write(serve, reference):
    with serve(num_pages=64) as server:
        prompt = random_ids(41, "n")
        reply = server.complete(prompt, **FIGURES, n=4)
        assert [choice["token_ids"] for choice in reply["choices"]] == [reference.greedy(prompt, 8)] * 4
        assert reply["usage"]["prompt_tokens"] == 41
        assert reply["agentcache"]["computed_tokens"] == 41 + 4 * 7


def test_a_page_that_was_reused_is_never_found_under_its_old_name(serve, reference):
    rng = random.Random(0)
    with serve(num_pages=24) as server:
        prompts = [random_ids(150, name) for name in ("A", "B1", "B2", "B3")]
        order = [prompt for _ in range(15) for prompt in rng.sample(prompts, 4)]
        some_hit = 0
        for prompt in order:
            reply = server.complete(prompt, **(FIGURES | {"max_tokens": 4}))
            reference.check(prompt, reply, 4)
            some_hit += cached(reply) > 0
            if prompt is prompts[3]:
                part = prompts[0][:112] + random_ids(20, "new tail")
                reference.check(part, server.complete(part, **(FIGURES | {"max_tokens": 4})), 4)
        assert some_hit, "nothing was ever reused: this test proves nothing"
        pages = server.pages()
        assert pages["cached"] <= 24


def test_eviction_takes_the_tail_of_a_chain_and_leaves_its_head(serve):
    with serve(num_pages=34, prefill_chunk=64) as server:
        long, other = random_ids(480, "A"), random_ids(160, "B")
        server.complete(long, max_tokens=1)
        server.complete(other, max_tokens=1)
        assert cached(server.complete(long, max_tokens=1)) >= 256


def test_a_hit_refreshes_what_it_hit(serve):
    with serve(num_pages=18) as server:
        x, y, z = (random_ids(64, name) for name in "xyz")
        for prompt in (x, y, z, x):
            server.complete(prompt, max_tokens=1)
        server.complete(random_ids(160, "v"), max_tokens=1)
        assert 48 <= cached(server.complete(x, max_tokens=1)) <= 63
        assert cached(server.complete(y, max_tokens=1)) == 0


def test_prompts_too_short_to_be_kept_push_nothing_out(serve):
    with serve(num_pages=34) as server:
        x = random_ids(160, "x")
        server.complete(x, max_tokens=1)
        for n in range(60):
            server.complete(random_ids(10, n), max_tokens=1)
        assert 144 <= cached(server.complete(x, max_tokens=1)) <= 159


def test_salts_and_keys_never_share_a_page_but_each_finds_its_own(serve):
    with serve(num_pages=200, api_keys=("key-one", "key-two")) as server:
        prompt = random_ids(64, "salt")

        def hit(key="key-one", **fields) -> int:
            headers = {"authorization": f"Bearer {key}"}
            body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
            reply = server.http.post("/v1/completions", json=body, headers=headers)
            assert reply.status_code == 200, reply.text
            return cached(reply.json())

        spaces = [
            {},
            {"cache_salt": "a"},
            {"cache_salt": "b"},
            {"cache_salt": ""},
            {"cache_salt": "α\x00"},
            {"key": "key-two"},
        ]
        assert [hit(**space) for space in spaces] == [0] * len(spaces)
        assert [hit(**space) for space in spaces] == [63] * len(spaces)


def test_sixteen_equal_cold_prompts_at_once_cost_one_prefill(serve, reference):
    with serve(num_pages=256, prefill_chunk=64) as server:
        prompt = random_ids(400, "herd")
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda _: server.complete(prompt, **(FIGURES | {"max_tokens": 1})), range(16)))
        for reply in replies:
            reference.check(prompt, reply, 1)
        computed = sum(reply["agentcache"]["computed_tokens"] for reply in replies)
        assert computed == 400 + 15


LIMIT = 320  # 20 pages of 16 tokens, below the context of 512


@pytest.mark.parametrize("length", [303, 304, 305, 319, 320, 321, 400, 511, 512, 513, 600])
def test_every_prompt_ends_soon_with_the_room_left_or_with_both_numbers(serve, length):
    with serve(num_pages=20, max_model_len=512) as server, ThreadPoolExecutor(1) as beside:
        prompt = random_ids(length, "edge")
        for asked in (1, 16, 10_000, None):
            started = time.monotonic()
            body = {"prompt": prompt, "temperature": 0} | ({} if asked is None else {"max_tokens": asked})
            normal = beside.submit(lambda: (time.sleep(0.05), server.complete(random_ids(20, "normal"), max_tokens=4)))
            reply = server.http.post("/v1/completions", json=body)
            normal.result(timeout=5)
            assert time.monotonic() - started < 5
            if length >= LIMIT:
                assert reply.status_code == 400
                error = reply.json()["error"]
                assert error["code"] == "context_length_exceeded"
                assert str(length) in error["message"] and str(LIMIT) in error["message"]
                continue
            usage = reply.json()["usage"]
            assert usage["prompt_tokens"] == length
            assert usage["completion_tokens"] == min(asked or 10_000, LIMIT - length)
            assert reply.json()["choices"][0]["finish_reason"] == "length"


def test_a_long_chat_is_refused_whole_and_never_cut(serve):
    with serve(num_pages=20, max_model_len=512) as server:
        messages = [
            {"role": "user", "content": f"message {n}: the code word is cucumber, and more words"} for n in range(30)
        ]
        reply = server.http.post("/v1/chat/completions", json={"messages": messages})
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "context_length_exceeded"
        few = server.chat(messages[:3], max_tokens=2)
        counted = server.http.post("/tokenize", json={"messages": messages[:3]}).json()
        assert few["usage"]["prompt_tokens"] == counted["count"]
