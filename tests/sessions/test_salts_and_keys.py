"""Salts and keys: the same salt hits and another one does not, in figures and in seconds."""

from __future__ import annotations

import random
import statistics
import time

import pytest
from session_calls import Calls, cached

TEXT = "Read the file, run the tests, and say what is wrong with the parser. "
PAGES = 40


def english(client, words: str = TEXT) -> str:
    """Text of 40 pages."""
    count = len(client.call("POST", "/tokenize", {"prompt": words})["tokens"])
    return words * (PAGES * 16 // count + 1)


def ask(client, prompt, **fields):
    return client.call("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, **fields})


def test_the_same_salt_hits_and_every_other_one_misses(serve):
    with serve(num_pages=1200) as client:
        text = english(client)
        first, again = (ask(client, text, cache_salt="alpha") for _ in range(2))
        assert cached(first) == 0 and cached(again) == first["usage"]["prompt_tokens"] - 1
        for fields in ({"cache_salt": "beta"}, {}, {"cache_salt": ""}, {"cache_salt": "x" * 10_000}):
            other = ask(client, text, **fields)
            assert cached(other) == 0 and other["agentcache"]["miss"]["code"] == "salt"
            assert other["agentcache"]["miss"]["was"] is None
        assert cached(ask(client, text, cache_salt="alpha")) > 0
        assert cached(ask(client, text, cache_salt=None)) > 0  # null is absent
        assert cached(ask(client, text, cache_salt="α\x00")) == 0
        assert cached(ask(client, text, cache_salt="α")) == 0
        assert (
            client.refused(400, "POST", "/v1/completions", {"prompt": text, "cache_salt": 5})["param"] == "cache_salt"
        )
        # No plain concatenation of salt and text.
        ask(client, "b" + text, cache_salt="a")
        assert cached(ask(client, text, cache_salt="ab")) == 0


def test_pages_that_come_back_from_the_host_come_back_under_their_own_salt_only(serve):
    with serve(num_pages=200, host_pages=400) as client:
        text = english(client)
        ask(client, text, cache_salt="alpha")
        client.call("POST", "/v1/cache/flush")
        foreign = ask(client, text, cache_salt="beta")
        assert cached(foreign) == 0
        own = ask(client, text, cache_salt="alpha")
        assert cached(own) >= own["usage"]["prompt_tokens"] - 16 and own["agentcache"]["tiers"]["host"] > 0


def test_across_keys_a_miss_is_cold_whatever_others_have(serve):
    with serve(num_pages=400, api_keys=("key-one", "key-two")) as client:
        one, two = Calls(client.server, "key-one"), Calls(client.server, "key-two")
        text = english(one)
        ask(one, text)
        foreign = ask(two, text)
        assert cached(foreign) == 0 and foreign["agentcache"]["miss"]["code"] == "cold"
        assert cached(ask(one, text)) > 0 and cached(ask(two, text)) > 0
        assert ask(one, text, cache_salt="s")["agentcache"]["miss"]["code"] == "salt"


def auc(low: list[float], high: list[float]) -> float:
    """How often a value of ``high`` is above one of ``low``: 0.5 is chance, 1 tells them apart always."""
    wins = sum((b > a) + 0.5 * (b == a) for a in low for b in high)
    return wins / (len(low) * len(high))


@pytest.mark.long
def test_time_tells_nothing_of_other_salts(serve):
    tries = 120  # the figure for things that do not differ then strays by 0.04
    order = random.Random(0)
    with serve(num_pages=4000) as client:
        text = english(client)
        ask(client, text, cache_salt="own")
        times: dict[str, list[float]] = {"own": [], "guess": [], "cold": []}
        for number in range(tries):
            asked = [
                ("own", text, "own"),
                ("guess", text, f"guess {number}"),
                ("cold", f"{number:03} " + text, f"cold {number}"),
            ]
            for kind, prompt, salt in order.sample(asked, 3):
                began = time.perf_counter()
                ask(client, prompt, cache_salt=salt)
                times[kind].append(time.perf_counter() - began)
            client.call("POST", "/v1/cache/flush")
            ask(client, text, cache_salt="own")
        print({kind: statistics.median(values) for kind, values in times.items()})
        assert auc(times["own"], times["cold"]) > 0.9
        assert 0.35 < auc(times["guess"], times["cold"]) < 0.65
