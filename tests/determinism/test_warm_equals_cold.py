"""The same request gives the same tokens and the same log-probability bits, whatever the cache and the engine did before.

Every test also asserts that what it is about really happened: that tokens were reused, pages evicted, requests preempted.
Prompts are longer than a block of the attention (256 keys), so that results of several blocks are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import tiny_models
import torch
from engine_bits import GREEDY, SEEDED, Ask, Bits, Engine, running
from tiny_tokenizer import write_tokenizer

from agentcache.request import SamplingParams

CASES = [
    ("llama", 16),
    ("llama-tied-mha", 16),
    ("llama-one-kv-head-biases", 16),
    ("mistral-window", 16),
    ("mistral-wide-window", 8),
    ("qwen2", 32),
    ("qwen3", 16),
]
PROMPT = tiny_models.random_prompt(301, seed=1)
ASKS = [Ask(PROMPT, GREEDY), Ask(PROMPT, SEEDED)]
IDS = ["greedy", "seeded"]


@dataclass
class Model:
    """A tiny model, and what it answers when nothing was cached, nobody else is served and prompts run in one piece."""

    folder: Path
    page_size: int
    alone: Engine
    known: dict[Ask, Bits] = field(default_factory=dict)

    def cold(self, ask: Ask) -> Bits:
        key = replace(ask, prompt=tuple(ask.prompt))  # type: ignore[arg-type]
        if key not in self.known:
            (reply,) = self.alone.answer(ask)
            assert reply.report.cached_tokens == 0
            self.known[key] = reply.bits
        return self.known[key]

    def running(self, **settings: object):
        return running(self.folder, page_size=self.page_size, **settings)

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.page_size)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    variant, page_size = request.param
    folder = tmp_path_factory.mktemp(variant)
    tiny_models.save(tiny_models.reference_model(variant), folder)
    write_tokenizer(folder, ["a page of keys and values"], 512)
    with running(folder, page_size=page_size, prefix_cache=False, prefill_chunk=512, num_pages=200) as alone:
        yield Model(folder, page_size, alone)


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[Engine]:
    """With room for everything; what it has cached differs from test to test."""
    with model.running(num_pages=1000) as engine:
        yield engine


@pytest.mark.parametrize("ask", ASKS, ids=IDS)
def test_warm(model: Model, engine: Engine, ask: Ask) -> None:
    engine.answer(ask)
    (again,) = engine.answer(ask)
    assert again.report.cached_tokens == len(PROMPT) - 1
    assert again.bits == model.cold(ask)


@pytest.mark.parametrize("shared, params", [(5, GREEDY), (150, SEEDED), (261, GREEDY), (300, SEEDED)])
def test_a_hit_that_ends_inside_a_page(model: Model, engine: Engine, shared: int, params: SamplingParams) -> None:
    mark = [shared, 0]  # so that what other tests cached does not answer
    prompt, other = mark + PROMPT, mark + PROMPT[:shared] + tiny_models.random_prompt(100, seed=shared)
    engine.answer(Ask(other, GREEDY))
    (reply,) = engine.answer(Ask(prompt, params))
    assert reply.report.cached_tokens == shared + len(mark)
    assert reply.bits == model.cold(Ask(prompt, params))


@pytest.mark.parametrize("ask", ASKS, ids=IDS)
def test_the_next_turn_reads_what_was_generated(model: Model, engine: Engine, ask: Ask) -> None:
    (first,) = engine.answer(ask)
    turn = Ask([*PROMPT, *first.ids, *tiny_models.random_prompt(40, seed=9)], ask.params)
    (second,) = engine.answer(turn)
    assert second.report.cached_tokens >= len(PROMPT) + len(first.ids) - 1
    assert second.bits == model.cold(turn)


@pytest.mark.parametrize("ask, host_pages", [(ASKS[0], 0), (ASKS[1], 100)], ids=["computed", "copied"])
def test_after_eviction(model: Model, ask: Ask, host_pages: int) -> None:
    room = model.pages(len(PROMPT) + GREEDY.max_tokens)
    with model.running(num_pages=room, host_pages=host_pages) as engine:
        (before,) = engine.answer(ask)
        engine.answer(Ask(tiny_models.random_prompt(len(PROMPT), seed=5), GREEDY))
        (after,) = engine.answer(ask)
        assert engine.evictions() > 0
    # Another prompt took all the room; with host pages what it drove out comes back as copies, else it is computed again.
    assert after.report.cached_tokens == after.report.tier_tokens.get("host", 0)
    assert (after.report.cached_tokens > 250) is (host_pages > 0)
    assert before.bits == after.bits == model.cold(ask)


def test_preempted(model: Model) -> None:
    asks = [
        Ask(tiny_models.random_prompt(150 + 11 * i, seed=20 + i), replace([GREEDY, SEEDED][i % 2], max_tokens=60))
        for i in range(4)
    ]
    # All four prompts fit, their outputs do not.
    room = sum(model.pages(len(ask.prompt)) + 1 for ask in asks)
    with model.running(num_pages=room) as engine:
        replies = engine.answer(*asks)
    assert sum(reply.report.preemptions for reply in replies) > 0
    assert [reply.bits for reply in replies] == [model.cold(ask) for ask in asks]


def test_forked(model: Model, engine: Engine) -> None:
    ask = Ask([9, *PROMPT], SEEDED)
    seed = SEEDED.seed or 0
    expected = [model.cold(Ask(ask.prompt, replace(SEEDED, seed=seed + index))) for index in range(4)]
    assert len(set(expected)) == 4
    for cached in (0, len(PROMPT)):
        replies = engine.forks(ask, 4)
        assert replies[0].report.cached_tokens == cached
        assert [reply.bits for reply in replies] == expected


def test_in_a_batch_of_seven(model: Model) -> None:
    """Some share their beginning, some do not; they come with an empty cache and once more with a full one."""
    lengths = [301, 301, 290, 17, 1, 128, 257]
    prompts = [tiny_models.random_prompt(length, seed=30 + i) for i, length in enumerate(lengths)]
    prompts[1] = [*prompts[0][:280], *prompts[1][280:]]
    prompts[2] = [*prompts[0][:270], *prompts[2][270:]]
    asks = [Ask(prompt, [GREEDY, SEEDED][i % 2]) for i, prompt in enumerate(prompts)]
    with model.running(num_pages=400) as engine:
        first, second = engine.answer(*asks), engine.answer(*asks)
    assert sum(reply.report.cached_tokens for reply in first) > 0
    assert [reply.report.cached_tokens for reply in second] == [length - 1 for length in lengths]
    for replies in (first, second):
        assert [reply.bits for reply in replies] == [model.cold(ask) for ask in asks]


@pytest.mark.parametrize("chunk", [16, 48, 64, 512])
def test_in_chunks_beside_others(model: Model, chunk: int) -> None:
    asks = [*ASKS, Ask(tiny_models.random_prompt(90, seed=40), replace(GREEDY, prompt_logprobs=2))]
    with model.running(num_pages=400, prefill_chunk=max(chunk, model.page_size)) as engine:
        replies = engine.answer(*asks)
        (warm,) = engine.answer(asks[0])
    assert [reply.bits for reply in replies] == [model.cold(ask) for ask in asks]
    assert len(replies[2].bits.prompt) == 89
    assert warm.report.cached_tokens == len(PROMPT) - 1
    assert warm.bits == replies[0].bits


@pytest.mark.parametrize("ask", ASKS, ids=IDS)
def test_with_two_threads(model: Model, ask: Ask) -> None:
    before = torch.get_num_threads()
    try:
        with model.running(num_pages=100, threads=2) as engine:
            (cold,), (warm,) = engine.answer(ask), engine.answer(ask)
    finally:
        torch.set_num_threads(before)
    assert warm.report.cached_tokens == len(PROMPT) - 1
    assert cold.bits == warm.bits == model.cold(ask)
