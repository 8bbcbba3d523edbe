"""Steps of the runner against Hugging Face, and against the same work cut or mixed differently."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tiny_models
import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentcache.cache.pages import PageCopy
from agentcache.cache.tokens import PagedTokens
from agentcache.model.kv_store import KVStore
from agentcache.model.runner import ModelRunner
from agentcache.model.sampler import NonFiniteLogitsError
from agentcache.model.transformer import Transformer
from agentcache.request import Request, SamplingParams, Sequence, TokenLogprob
from agentcache.scheduler.plan import Chunk, StepPlan, StepResult

PAGE_SIZE = 8
VOCAB = 512
GREEDY = SamplingParams(temperature=0.0, logprobs=VOCAB)


@pytest.fixture(scope="module")
def reference() -> PreTrainedModel:
    return tiny_models.reference_model("llama")


@pytest.fixture(scope="module")
def model(reference: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    return tiny_models.load(tiny_models.save(reference, tmp_path_factory.mktemp("llama")))


@dataclass
class Bench:
    """A runner over a pool that begins as NaN, and sequences that own pages ``first_page, first_page + 1, ...``."""

    model: Transformer
    kv: KVStore = field(init=False)
    runner: ModelRunner = field(init=False)

    def __post_init__(self) -> None:
        config = self.model.config
        self.kv = KVStore(
            config.num_layers, 64, PAGE_SIZE, config.num_kv_heads, config.head_dim, torch.float32, tiny_models.CPU
        )
        for pages in (*self.kv.k, *self.kv.v):
            pages.fill_(math.nan)
        self.runner = ModelRunner(self.model, self.kv, tiny_models.CPU)

    def run(self, *chunks: Chunk, copies: tuple[PageCopy, ...] = ()) -> StepResult:
        return self.runner.run(StepPlan(list(chunks), list(copies)))

    def prefill(self, sequence: Sequence, pages: list[int], size: int) -> TokenLogprob:
        """The whole of ``sequence``, ``size`` rows a step; what its last row draws."""
        chunks = cut(sequence, pages, size)
        for chunk in chunks[:-1]:
            assert self.run(chunk).samples == [[]]
        return self.run(chunks[-1]).samples[0][0]

    def bytes_of(self, pages: list[int]) -> Tensor:
        return torch.cat([layer[:, pages].flatten() for layer in (*self.kv.k, *self.kv.v)]).clone()


def make_sequence(ids: list[int], params: SamplingParams = GREEDY, prompt_len: int | None = None) -> Sequence:
    request = Request("r", ids, params, b"", lambda _: None)
    return Sequence(request, 0, PagedTokens(ids, PAGE_SIZE, b""), prompt_len or len(ids), 100, seed=7)


def cut(sequence: Sequence, pages: list[int], size: int, start: int = 0) -> list[Chunk]:
    total = len(sequence.tokens)
    return [
        Chunk(sequence, at, min(size, total - at), at, pages, (sequence,) if at + size >= total else ())
        for at in range(start, total, size)
    ]


def distribution(entry: TokenLogprob) -> Tensor:
    """``[VOCAB]``, from an entry that lists every token."""
    logprobs = torch.empty(VOCAB)
    ids, values = zip(*entry.top)
    logprobs[list(ids)] = torch.tensor(values)
    return logprobs


def assert_near(entry: TokenLogprob, expected: Tensor) -> None:
    torch.testing.assert_close(distribution(entry), expected, rtol=0, atol=1e-3)
    assert entry.token == int(expected.argmax())
    assert entry.logprob == pytest.approx(float(expected.max()), abs=1e-3)


@pytest.mark.parametrize("size", [1, 3, 8, 20, 61, 100])
def test_a_prompt_in_chunks_equals_hugging_face(model: Transformer, reference: PreTrainedModel, size: int) -> None:
    ids = tiny_models.random_prompt(61)
    entry = Bench(model).prefill(make_sequence(ids), [9, 3, 40, 12, 5, 6, 7, 30], size)
    assert_near(entry, tiny_models.reference_logprobs(reference, ids)[-1])


def test_prompts_in_chunks_give_the_same_bits(model: Transformer) -> None:
    ids = tiny_models.random_prompt(290)
    pages = list(range(37))
    entries = [Bench(model).prefill(make_sequence(ids), pages, size) for size in (290, 100, 37, 1)]
    assert all(entry == entries[0] for entry in entries)


def test_decoding_equals_hugging_face(model: Transformer, reference: PreTrainedModel) -> None:
    prompt = tiny_models.random_prompt(30)
    sequence = make_sequence(prompt)
    pages = list(range(10))
    bench = Bench(model)
    sequence.tokens.append(bench.prefill(sequence, pages, 16).token)
    for _ in range(20):
        at = len(sequence.tokens) - 1
        [[entry]] = bench.run(Chunk(sequence, at, 1, at, pages, (sequence,))).samples
        ids = sequence.tokens[0 : len(sequence.tokens)]
        assert_near(entry, tiny_models.reference_logprobs(reference, ids)[-1])
        sequence.tokens.append(entry.token)


def test_a_mixed_step_gives_each_what_it_gets_alone(model: Transformer) -> None:
    prompts = [tiny_models.random_prompt(length, seed=length) for length in (50, 9, 33, 1, 24)]
    starts = [49, 0, 20, 0, 23]
    tables = [[8 * i + page for page in range(8)] for i in range(5)]

    def prepared(which: list[int]) -> tuple[Bench, list[Chunk]]:
        bench, chunks = Bench(model), []
        for i in which:
            sequence = make_sequence(prompts[i], prompt_len=starts[i] if i in (0, 4) else None)
            if starts[i]:
                bench.run(Chunk(sequence, 0, starts[i], 0, tables[i]))
            chunks += cut(sequence, tables[i], 100, starts[i])
        return bench, chunks

    together_bench, together = prepared([0, 1, 2, 3, 4])
    mixed = together_bench.run(*together).samples
    for i in range(5):
        bench, chunks = prepared([i])
        [[alone]] = bench.run(*chunks).samples
        assert mixed[i][0].token == alone.token
        torch.testing.assert_close(distribution(mixed[i][0]), distribution(alone), rtol=0, atol=1e-3)


def test_a_full_hit_reads_and_writes_nothing(model: Transformer) -> None:
    ids = tiny_models.random_prompt(32)
    pages = [4, 5, 6, 7]
    bench = Bench(model)
    cold = bench.prefill(make_sequence(ids), pages, 32)
    before = bench.bytes_of(list(range(64)))
    sequence = make_sequence(ids)
    [[warm]] = bench.run(Chunk(sequence, 31, 1, 32, pages, (sequence,))).samples
    assert torch.equal(bench.bytes_of(list(range(64))).view(torch.int32), before.view(torch.int32))
    assert warm == cold


def test_only_positions_from_write_from_on_are_written(model: Transformer) -> None:
    ids = tiny_models.random_prompt(16)
    bench = Bench(model)
    bench.prefill(make_sequence(ids), [0, 1], 16)
    marked = bench.kv.k[0][:, 1, 3].clone()
    bench.kv.k[0][:, 1, 3] += 1
    bench.run(Chunk(make_sequence(ids), 8, 8, 12, [0, 1]))
    assert torch.equal(bench.kv.k[0][:, 1, 3], marked + 1), "position 11 lies below write_from"
    bench.run(Chunk(make_sequence(ids), 8, 8, 11, [0, 1]))
    torch.testing.assert_close(bench.kv.k[0][:, 1, 3], marked)


def test_copies_come_before_the_forward_pass(model: Transformer, reference: PreTrainedModel) -> None:
    ids = tiny_models.random_prompt(12)
    bench = Bench(model)
    bench.prefill(make_sequence(ids), [0, 1], 12)
    source = bench.bytes_of([1])
    # Shares page 0 and 3 tokens of page 1, then goes its own way in page 2.
    other = [*ids[:11], *tiny_models.random_prompt(9, seed=3)]
    sequence = make_sequence(other)
    chunk = Chunk(sequence, 11, 9, 11, [0, 2, 3], (sequence,))
    [[entry]] = bench.run(chunk, copies=(PageCopy(1, 2, 3),)).samples
    assert_near(entry, tiny_models.reference_logprobs(reference, other)[-1])
    assert torch.equal(bench.bytes_of([1]).view(torch.int32), source.view(torch.int32))


@pytest.mark.parametrize("size", [300, 64, 1])
def test_prompt_logprobs_equal_hugging_face(model: Transformer, reference: PreTrainedModel, size: int) -> None:
    ids = tiny_models.random_prompt(21 if size == 1 else 210)
    sequence = make_sequence(ids, SamplingParams(temperature=0.0, prompt_logprobs=2))
    bench = Bench(model)
    entries: list[TokenLogprob] = []
    for chunk in cut(sequence, list(range(27)), size):
        result = bench.run(chunk, *cut(make_sequence([1, 2, 3]), [40], 3))
        assert result.prompt_logprobs[1] is None
        assert result.prompt_logprobs[0] is not None
        entries += result.prompt_logprobs[0]
    assert [entry.token for entry in entries] == ids[1:]
    expected = tiny_models.reference_logprobs(reference, ids)
    for position, entry in enumerate(entries):
        row = expected[position]
        assert entry.logprob == pytest.approx(float(row[ids[position + 1]]), abs=1e-3)
        best = row.topk(2)
        assert [value for _, value in entry.top] == pytest.approx(best.values.tolist(), abs=1e-3)


def test_output_rows_are_no_prompt_logprobs(model: Transformer) -> None:
    params = SamplingParams(temperature=0.0, prompt_logprobs=0)
    sequence = make_sequence(tiny_models.random_prompt(20), params, prompt_len=12)
    bench = Bench(model)
    found = [bench.run(chunk).prompt_logprobs[0] for chunk in cut(sequence, [0, 1, 2], 8)]
    assert [len(entries or []) for entries in found] == [8, 3, 0]


def test_sequences_of_one_request_draw_from_one_row(model: Transformer) -> None:
    ids = tiny_models.random_prompt(10)
    params = SamplingParams(temperature=3.0)
    sequences = tuple(make_sequence(ids, params) for _ in range(40))
    for seed, sequence in enumerate(sequences):
        sequence.seed = seed
    other = make_sequence(ids[:4])
    together = Bench(model).run(Chunk(sequences[0], 0, 10, 0, [0, 1], sequences), Chunk(other, 0, 4, 0, [2], (other,)))
    drawn = [entry.token for entry in together.samples[0]]
    assert len(set(drawn)) > 1
    assert len(together.samples[1]) == 1
    [[alone]] = Bench(model).run(Chunk(sequences[17], 0, 10, 0, [0, 1], (sequences[17],))).samples
    assert alone.token == drawn[17]


def test_a_plan_without_rows_still_copies(model: Transformer) -> None:
    bench = Bench(model)
    bench.prefill(make_sequence(tiny_models.random_prompt(8)), [0], 8)
    assert bench.run(copies=(PageCopy(0, 5, 8),)) == StepResult([], [])
    assert torch.equal(bench.bytes_of([5]), bench.bytes_of([0]))


def test_warming_up_writes_nothing(model: Transformer) -> None:
    bench = Bench(model)
    bench.runner.warm_up()
    assert bench.bytes_of(list(range(64))).isnan().all()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_chunk_with_a_row_that_is_no_number_is_not_taken(
    reference: PreTrainedModel, tmp_path: Path, compiled: bool
) -> None:
    """Its earlier rows are spoilt too, and once published they would spoil whoever shares them."""
    model = tiny_models.load(tiny_models.save(reference, tmp_path))
    model.embedding.weight[7] = math.nan
    bench = Bench(model)
    config, cpu = model.config, tiny_models.CPU
    sizes = config.num_layers, 64, PAGE_SIZE, config.num_kv_heads, config.head_dim
    bench.kv = KVStore(*sizes, torch.float32, cpu, compiled)
    bench.runner = ModelRunner(model, bench.kv, cpu)
    ids = [token if token != 7 else 8 for token in tiny_models.random_prompt(40)]
    ids[25] = 7
    chunks = cut(make_sequence(ids), [1, 2, 3, 4, 5], 20)
    other = cut(make_sequence(ids[:10]), [9, 10], 10)
    bench.run(chunks[0])
    with pytest.raises(NonFiniteLogitsError, match="not finite between positions 20 and 35") as caught:
        bench.run(Chunk(chunks[1].sequence, 20, 15, 20, chunks[1].pages, ()), *other)
    assert caught.value.sequence is chunks[1].sequence
