"""Draws under masks: from rows of logits, and from a model of random weights with a grammar, alone and in company."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from tiny_folder import write_tiny_folder
from torch import Tensor

from agentcache.cache.hashing import namespace_root
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.grammars import GrammarCompiler
from agentcache.chat.tokenizer import Tokenizer
from agentcache.engine.build import build_engine
from agentcache.engine.loop import AsyncEngine
from agentcache.model.gpu.sampling import adjusted, needs_adjusting
from agentcache.model.sampler import NonFiniteLogitsError, adjust, adjusts, logprobs, sample, unfit_on
from agentcache.request import FinishReason, Output, Request, SamplingParams, Sequence
from agentcache.settings import Settings

VOCAB = 1000  # no multiple of 32


class Fixed:
    """A constraint that always allows the same tokens."""

    finished = False

    def __init__(self, *tokens: int, words: int = -(-VOCAB // 32)) -> None:
        bits = np.zeros(32 * words, np.uint8)
        bits[list(tokens)] = 1
        self._mask = np.packbits(bits, bitorder="little").view(np.uint32)

    def mask(self) -> np.ndarray:
        return self._mask

    def advance(self, token: int) -> None: ...


def sequence(params: SamplingParams, *tokens: int, seed: int = 1) -> Sequence:
    request = Request("r", [1, 2], params, b"", lambda _: None)
    made = Sequence(request, 0, PagedTokens([1, 2, 3, 3], 16, b""), 2, 100, seed)
    made.constraint = Fixed(*tokens) if tokens else None
    return made


def logits_for(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


WAYS = {
    "greedy": SamplingParams(temperature=0.0),
    "plain": SamplingParams(),
    "top_k": SamplingParams(top_k=5),
    "top_p": SamplingParams(top_p=0.9, temperature=1.5),
    "min_p": SamplingParams(min_p=0.2),
    "penalties": SamplingParams(temperature=0.0, repetition_penalty=1.5, frequency_penalty=1.0),
    "biased away": SamplingParams(logit_bias=((5, -100.0), (999, -100.0))),
    "biased to others": SamplingParams(temperature=0.0, logit_bias=((6, 100.0), (7, 100.0))),
    "biased without end": SamplingParams(logit_bias=((6, 1e30),)),
}


@pytest.mark.parametrize("way", WAYS)
def test_only_what_a_mask_allows_is_drawn(way: str) -> None:
    allowed = (5, 31, 32, 999)
    for seed in range(10):
        rows = [sequence(WAYS[way], *allowed, seed=100 * seed + row) for row in range(20)]
        drawn = {entry.token for entry in sample(logits_for(20, seed), rows)}
        assert drawn <= set(allowed)


@pytest.mark.parametrize("way", WAYS)
def test_a_single_allowed_token_is_always_drawn(way: str) -> None:
    assert sample(logits_for(1), [sequence(WAYS[way], 5)])[0].token == 5


def test_draws_follow_the_model_among_what_is_allowed() -> None:
    logits, allowed = logits_for(1), [5, 31, 32, 999]
    rows = [sequence(SamplingParams(), *allowed, seed=seed) for seed in range(4000)]
    drawn = [entry.token for entry in sample(logits.expand(4000, -1), rows)]
    share = torch.bincount(torch.tensor(drawn), minlength=VOCAB)[allowed] / 4000
    torch.testing.assert_close(share, logits[0, allowed].softmax(-1), rtol=0, atol=0.03)


def test_biases_and_penalties_decide_among_what_is_allowed() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 3] = 1.0
    assert sample(logits, [sequence(SamplingParams(temperature=0.0), 3, 4)])[0].token == 3
    penalised = SamplingParams(temperature=0.0, frequency_penalty=1.0)  # token 3 was drawn twice
    assert sample(logits, [sequence(penalised, 3, 4)])[0].token == 4
    biased = SamplingParams(temperature=0.0, logit_bias=((4, 2.0),))
    assert sample(logits, [sequence(biased, 3, 4)])[0].token == 4


def test_reported_log_probabilities_are_the_models_own() -> None:
    logits = logits_for(2)
    params = SamplingParams(temperature=0.0, logprobs=5)
    entries = sample(logits, [sequence(params, 5), sequence(params)])
    assert entries == logprobs(logits, torch.tensor([5, int(logits[1].argmax())]), [5, 5])
    assert entries[0].logprob == pytest.approx(float(logits[0].log_softmax(-1)[5]), abs=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_free_rows_are_as_without_constrained_company(way: str) -> None:
    logits = logits_for(8)
    free = [sequence(WAYS[way], seed=row) for row in range(8)]
    alone = [entry.token for entry in sample(logits, free)]
    mixed = [row if i % 2 else sequence(WAYS["plain"], 1, 2, seed=i) for i, row in enumerate(free)]
    assert [entry.token for entry in sample(logits, mixed)][1::2] == alone[1::2]


def test_logits_that_are_no_numbers_are_found_behind_a_mask() -> None:
    logits = logits_for(2)
    logits[1, 700] = math.nan
    with pytest.raises(NonFiniteLogitsError):
        sample(logits, [sequence(SamplingParams(), 5), sequence(SamplingParams(), 5)])


def test_masks_are_the_last_to_change_logits() -> None:
    rows = [sequence(WAYS["biased without end"], 5, 31), sequence(SamplingParams())]
    assert [adjusts(row) for row in rows] == [True, False]
    logits = logits_for(2).double()
    before = logits.clone()
    adjust(logits, rows)
    assert logits[0].isfinite().nonzero().flatten().tolist() == [5, 31]
    assert torch.equal(logits[1], before[1])


def test_masks_are_unpacked_alike_on_a_device() -> None:
    words = np.random.default_rng(0).integers(0, 2**32, (5, 32), dtype=np.uint32)
    expected = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little") == 0
    assert np.array_equal(unfit_on(torch.device("cpu"), words).numpy(), expected)


def test_logits_that_a_mask_does_not_speak_of_are_banned() -> None:
    row = sequence(SamplingParams(temperature=0.0), 5)
    row.constraint = Fixed(5, words=4)
    logits = torch.zeros(1, VOCAB)
    logits[0, 900] = 9.0
    assert sample(logits, [row])[0].token == 5


def test_rows_of_a_gpu_are_masked_before_they_are_drawn_from() -> None:
    logits = logits_for(3)
    rows = [sequence(SamplingParams()), sequence(WAYS["greedy"], 5, 31), sequence(SamplingParams())]
    before = logits.clone()
    assert needs_adjusting(rows) and not needs_adjusting(rows[:1])
    masked = adjusted(logits, rows)
    assert masked[1].isfinite().nonzero().flatten().tolist() == [5, 31]
    assert torch.equal(masked[[0, 2]], before[[0, 2]])
    assert torch.equal(logits, before), "log-probabilities are reported from them"


# -- a model and a grammar -----------------------------------------------------------------------------------------

TEXT = {"type": "string", "maxLength": 8}
SCHEMAS: dict[str, dict[str, Any]] = {
    "object": {
        "type": "object",
        "properties": {
            "city": TEXT,
            "days": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "maxItems": 3},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "choice": {"anyOf": [TEXT, {"type": "boolean"}, {"type": "object", "properties": {"a": {"type": "null"}},
                                                     "required": ["a"], "additionalProperties": False}]},
    "number": {"type": "number", "minimum": 0, "maximum": 99},
    "pattern": {"type": "string", "pattern": "^[a-f]{2}-[0-9]{2}$"},
}  # fmt: skip
PROMPT = list(range(5, 40))


@dataclass(frozen=True)
class Said:
    ids: tuple[int, ...]
    reason: FinishReason | None


class Model:
    """An engine, and what is said in it by requests that are given to it together."""

    def __init__(self, engine: AsyncEngine, tokenizer: Tokenizer, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self.tokenizer = tokenizer
        self.compiler = GrammarCompiler(tokenizer, engine.info.vocab_size)
        self._asked = 0

    def say(self, *asks: SamplingParams, prompt: list[int] = PROMPT) -> list[list[Said]]:
        return self._loop.run_until_complete(self._all(asks, prompt))

    async def _all(self, asks: tuple[SamplingParams, ...], prompt: list[int]) -> list[list[Said]]:
        return list(await asyncio.gather(*(self._one(params, prompt) for params in asks)))

    async def _one(self, params: SamplingParams, prompt: list[int]) -> list[Said]:
        self._asked += 1
        outputs: list[list[Output]] = [[] for _ in range(params.n)]
        stream = self._engine.submit(prompt, params, root=namespace_root("tests"), request_id=f"r{self._asked}")
        async with stream:
            async for output in stream:
                outputs[output.index].append(output)
        return [Said(tuple(t for o in each for t in o.token_ids), each[-1].finish_reason) for each in outputs]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder: Path = tmp_path_factory.mktemp("constrained")
    write_tiny_folder(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": "<|im_end|>"}))
    engine = build_engine(
        Settings(model=str(folder), device="cpu", dtype="float32", threads=1, num_pages=200, page_size=8)
    )
    loop = asyncio.new_event_loop()
    engine.start()
    yield Model(engine, Tokenizer.from_folder(folder), loop)
    loop.run_until_complete(engine.stop())
    loop.close()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_random_model_says_what_the_schema_wants(model: Model, name: str) -> None:
    params = SamplingParams(max_tokens=1200, n=4, grammar=model.compiler.json_schema(SCHEMAS[name]))
    asks = [replace(params, seed=seed, top_p=top_p) for seed, top_p in ((1, 1.0), (50, 0.95))]
    for replies in model.say(*asks, replace(params, n=1, temperature=0.7, seed=9, logit_bias=((7, 5.0),))):
        for said in replies:
            text = model.tokenizer.decode(said.ids)
            assert said.reason is FinishReason.STOP, text
            jsonschema.validate(json.loads(text), SCHEMAS[name])


def test_company_and_the_cache_change_nothing(model: Model) -> None:
    grammar = model.compiler.json_schema(SCHEMAS["object"])
    free = SamplingParams(max_tokens=30, seed=3, ignore_eos=True)
    held = [SamplingParams(max_tokens=600, seed=seed, grammar=grammar, temperature=1.2) for seed in range(3)]
    held.append(SamplingParams(max_tokens=60, temperature=0.0, grammar=grammar))
    prompt = [*PROMPT, 77]
    alone = [model.say(params, prompt=prompt)[0] for params in (free, *held)]  # the first is cold
    assert model.say(free, *held, prompt=prompt) == alone
    assert model.say(*held, replace(free, seed=4), free, prompt=prompt)[-1] == alone[0]


def test_each_of_several_replies_is_as_if_asked_for_alone(model: Model) -> None:
    params = SamplingParams(max_tokens=600, seed=11, grammar=model.compiler.json_schema(SCHEMAS["object"]))
    together = model.say(replace(params, n=3))[0]
    assert together == [model.say(replace(params, seed=11 + index))[0][0] for index in range(3)]


def test_an_ignored_end_token_still_ends_a_complete_reply(model: Model) -> None:
    grammar = model.compiler.json_schema(SCHEMAS["pattern"])
    plain, ignoring = (
        SamplingParams(max_tokens=50, seed=2, grammar=grammar, ignore_eos=ignore) for ignore in (False, True)
    )
    (first,), (second,) = model.say(plain, ignoring)
    assert first == second and first.reason is FinishReason.STOP
