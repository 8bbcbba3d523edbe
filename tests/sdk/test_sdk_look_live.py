"""The client's look beside a real server's findings: one defect is one warning, and clean prompts have none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from live import LiveServer, drain, live_server
from look_prompts import ANSWER, CLEAN, DEFECTS, QUESTION, RULES, TOOLS, Pair, system, user
from tiny_folder import write_tiny_folder

from agentcache_sdk import CacheWarning, Client, Finding

BREAKS = ("AC1", "AC2", "AC3", "AC4", "AC6")


def of_length(tokens: int) -> dict[str, Any]:
    return {"temperature": 0, "max_tokens": tokens, "min_tokens": tokens}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("look") / "tiny"
    write_tiny_folder(folder, corpus=[RULES, QUESTION, ANSWER] * 8, vocab_size=600, max_position_embeddings=4096)
    with live_server(folder, num_pages=1024, home=folder.parent) as live:
        yield live
        drain(live)


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with Client(server.url, timeout=30) as client:
        client.flush_cache()
        yield client


def breaks_of(client: Client, pair: Pair, reply_tokens: int) -> list[Finding]:
    """Both requests from one line; where the second goes on with the first one's reply, with the reply that came."""
    messages, found = pair.first, []
    for fields in pair.fields:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            turn = client.chat(messages, **{**of_length(reply_tokens), **fields})
        found += [w.message.finding for w in caught if isinstance(w.message, CacheWarning)]
        reply = {"role": "assistant", "content": turn.text}
        new = pair.reply not in pair.first
        messages = [reply if new and message == pair.reply else message for message in pair.second]
    return [finding for finding in found if finding.code.startswith(BREAKS)]


ONE_OF_EACH = list({pair.code: pair for pair in DEFECTS if pair.code != "AC601"}.values())
"""The rest is in the tests without a server, which are quicker; there is one model here."""
EDITS_OF_A_PROMPT = ("a word changed", "a sentence more")
"""The server, which sees tokens alone, may take these for a slot."""
QUIET = [pair for pair in CLEAN if "model" not in pair.fields[0] and pair.name not in EDITS_OF_A_PROMPT]


@pytest.mark.parametrize("pair", ONE_OF_EACH, ids=lambda pair: pair.name)
def test_a_defect_that_both_sides_see_is_said_once(client: Client, pair: Pair) -> None:
    found = breaks_of(client, pair, 80)  # long enough to be missed
    assert [(f.code, f.location.path) for f in found] == [(pair.code, pair.path)]


@pytest.mark.parametrize("pair", QUIET, ids=lambda pair: pair.name)
def test_clean_prompts_are_silent_on_both_sides(client: Client, pair: Pair) -> None:
    assert breaks_of(client, pair, 8) == []


def test_a_growing_agent_is_silent_and_its_cache_grows(client: Client) -> None:
    messages: list[dict[str, Any]] = [system(RULES)]
    cached = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(4):
            messages.append(user(f"{number}. {QUESTION}"))
            turn = client.chat(messages, tools=TOOLS, **of_length(16))
            messages.append(turn.message)
            cached.append(turn.usage.cached_tokens)
    found = [w.message.finding for w in caught if isinstance(w.message, CacheWarning)]
    assert [finding for finding in found if finding.code.startswith(BREAKS)] == []
    assert cached == sorted(cached)
    assert cached[-1] > cached[1] > 0
