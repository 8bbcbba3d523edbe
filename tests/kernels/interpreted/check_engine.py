"""The model on the kernels: whole steps against the processor's runner, and what graphs read and write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_models
import torch
from engine_cases import GREEDY, PAGE_SIZE, Story, conversation, kernel_runner, model_of, plain_runner
from torch.utils._python_dispatch import TorchDispatchMode

from agentcache.model.sampler import NonFiniteLogitsError
from agentcache.model.transformer import Transformer
from agentcache.request import SamplingParams
from agentcache.scheduler.plan import Chunk, StepPlan


@pytest.fixture(scope="module")
def model(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    return model_of("llama", tmp_path_factory.mktemp("llama"), device)


def test_a_conversation_draws_the_tokens_of_the_processor_s_runner(model: Transformer) -> None:
    """And nothing of what would be captured as a graph waits for the device."""
    recorder = Watched()
    runner = kernel_runner(model, recorder=recorder)
    assert conversation(Story(runner.run)) == conversation(Story(plain_runner(model).run))
    assert {(shape.batch, shape.shared) for shape in runner.decode.shapes} == {(4, True), (2, False), (1, False)}
    assert recorder.recorded == 3
    assert recorder.replayed == 2


@pytest.mark.kernels
@pytest.mark.parametrize(
    "variant", ["llama-one-kv-head-biases", "qwen3-biases-no-gqa", "mistral-window", "qwen2-window"]
)
def test_other_models_do_as_well(variant: str, device: torch.device, tmp_path: Path) -> None:
    """Norms of queries and keys, biases, grouped heads, windows; initial weights are large, so a wrong key shows."""
    model = model_of(variant, tmp_path, device)
    assert conversation(Story(kernel_runner(model).run)) == conversation(Story(plain_runner(model).run))


def test_the_batch_invariant_mode_gives_a_row_the_same_bits_in_any_company(model: Transformer) -> None:
    """Cut differently, decoded or read, alone or among others: log-probabilities are equal to the last bit."""
    prompt = tiny_models.random_prompt(24, seed=3)
    logits = []
    for pieces in ([24], [17, 7], [18, 5, 1]):
        story = Story(kernel_runner(model, batch_invariant=True).run)
        story.begin("a", prompt, list(range(9, 30)))
        story.begin("z", tiny_models.random_prompt(5, seed=4), list(range(60, 40, -1)))
        drawn = [entry for count in pieces for entry in bits(story, a=count)]
        if pieces == [17, 7]:
            bits(story, z=5)
        drawn += bits(story, **({"a": 1, "z": 1} if pieces == [17, 7] else {"a": 1}))[:1]
        again = Story(kernel_runner(model, batch_invariant=True).run)
        again.begin("a", story.sequences["a"].tokens[:-1], list(range(9, 30)))
        assert bits(again, a=25) == drawn[-1:]
        logits.append(drawn)
    assert logits[0] == logits[1] == logits[2]


def bits(story: Story, **rows: int) -> list[tuple[object, ...]]:
    seen: list[tuple[object, ...]] = []
    run = story.run

    def noting(plan: StepPlan):
        result = run(plan)
        seen.extend((e.token, e.logprob.hex(), *e.top) for drawn in result.samples for e in drawn)
        return result

    story.run = noting
    try:
        story.step(**rows)
    finally:
        story.run = run
    return seen


class NoWaiting(TorchDispatchMode):
    """Fails on operations that make the host wait for the device, or whose results' shapes the host must know."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "item", "equal.default", "unique")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(name in str(func) for name in self.WAITING), f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


class Watched:
    """A recorder whose repetitions may not wait, and which counts them."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def record(self, body: Callable[[], None]) -> Callable[[], None]:
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            with NoWaiting():
                body()

        with NoWaiting():
            body()
        return replay


def test_what_waits_is_noticed() -> None:
    with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():
        torch.ones(3).nonzero()


def test_rows_that_are_nobody_s_write_nowhere_whoever_was_there_before(model: Transformer) -> None:
    """Four rows, then three in the same graph, in another order; the pages of the one that left begin as NaN again."""
    runner = kernel_runner(model)
    story = Story(runner.run)
    story.read("abcd")
    story.step(a=1, b=1, c=1, d=1)
    store = (*runner.kv.k, *runner.kv.v)
    for pages in store:
        pages[:, [31, 32]] = float("nan")
    before = [pages.clone() for pages in store]
    story.step(c=1, a=1, b=1)
    story.step(a=1, c=1, b=1)
    assert [shape.batch for shape in runner.decode.shapes] == [4]
    written = torch.zeros(before[0].shape[1:3], dtype=torch.bool)
    for name in "abc":
        written[story.tables[name][1], [10 - PAGE_SIZE, 11 - PAGE_SIZE]] = True
    for old, new in zip(before, store):
        changed = ~((old == new) | (old.isnan() & new.isnan())).all(-1).all(0).cpu()
        assert torch.equal(changed, written)


def test_a_row_that_has_its_keys_already_writes_none(model: Transformer) -> None:
    """A prompt that is cached whole redoes its last token from pages that others hold."""
    runner = kernel_runner(model)
    story = Story(runner.run)
    story.begin("a", tiny_models.random_prompt(16, seed=1), [4, 5])
    first = story.step(a=16)
    before = [pages.clone() for pages in (*runner.kv.k, *runner.kv.v)]
    story.begin("b", tiny_models.random_prompt(16, seed=1), [4, 5])
    sequence = story.sequences["b"]
    result = runner.run(StepPlan([Chunk(sequence, 15, 1, 16, [4, 5], (sequence,))]))
    assert result.samples[0][0].token == first[0][0]
    for old, new in zip(before, (*runner.kv.k, *runner.kv.v)):
        assert torch.equal(old.nan_to_num(), new.nan_to_num())


def test_an_open_page_that_was_replaced_is_read_from_its_new_place(model: Transformer) -> None:
    """Copy on write gives a sequence another last page between two steps of one graph."""
    runner = kernel_runner(model)
    story, other = Story(runner.run), Story(plain_runner(model).run)
    for side in (story, other):
        side.begin("a", tiny_models.random_prompt(12, seed=1), [4, 5])
        side.step(a=12)
        side.step(a=1)
    for pages in (*runner.kv.k, *runner.kv.v):
        pages[:, 30] = pages[:, 5]
        pages[:, 5] = float("nan")
    story.tables["a"][1] = 30
    assert [story.step(a=1) for _ in range(6)] == [other.step(a=1) for _ in range(6)]


@pytest.mark.kernels
def test_sampled_penalised_and_biased_rows_share_a_graph(model: Transformer) -> None:
    asked = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.9, top_k=20, top_p=0.9),
        SamplingParams(temperature=1.2, min_p=0.05, frequency_penalty=0.7, logprobs=2),
        SamplingParams(temperature=0.0, logit_bias=((17, 50.0),)),
    ]
    story = Story(kernel_runner(model).run)
    for number, params in enumerate(asked):
        story.begin(f"s{number}", tiny_models.random_prompt(9, seed=number), [10 * number], params, seed=2**63 + number)
        story.step(**{f"s{number}": 9})
    together = [story.step(s0=1, s1=1, s2=1, s3=1) for _ in range(3)]
    assert {step[3][0] for step in together} == {17}
    for number, params in list(enumerate(asked))[1:3]:
        alone = Story(kernel_runner(model).run)
        alone.begin("x", tiny_models.random_prompt(9, seed=number), [3], params, seed=2**63 + number)
        tokens = [alone.step(x=9)] + [alone.step(x=1) for _ in range(3)]
        drawn = [step[0][0] for step in tokens]
        assert drawn == list(story.sequences[f"s{number}"].tokens[9:])


def test_a_row_with_nothing_to_draw_from_is_named(model: Transformer) -> None:
    runner = kernel_runner(model)
    story = Story(runner.run)
    story.read("ab")
    for pages in runner.kv.v:
        pages[:, 11] = float("nan")
    with pytest.raises(NonFiniteLogitsError) as caught:
        story.step(a=1, b=1)
    assert caught.value.sequence is story.sequences["b"]


def test_what_a_prompt_is_asked_is_answered_by_either_kind_of_step(model: Transformer) -> None:
    params = replace(GREEDY, prompt_logprobs=0)
    runner, plain = kernel_runner(model), plain_runner(model)
    answers = []
    for run in (runner.run, plain.run):
        story = Story(run)
        story.begin("a", tiny_models.random_prompt(6, seed=1), [4, 5], params)
        sequence = story.sequences["a"]
        chunks = [Chunk(sequence, 0, 5, 0, [4, 5]), Chunk(sequence, 5, 1, 5, [4, 5], (sequence,))]
        results = [run(StepPlan([chunk])) for chunk in chunks]
        answers.append([[entry.token for entry in result.prompt_logprobs[0]] for result in results])
    assert answers[0] == answers[1]
    assert len(answers[0][0]) == 5 and answers[0][1] == []


@pytest.mark.kernels
def test_warming_up_captures_every_batch_size_and_writes_nothing(model: Transformer) -> None:
    runner = kernel_runner(model, max_context=70)
    runner.warm_up(5000)  # no prompt is longer than a context
    assert [shape.batch for shape in runner.decode.shapes] == [1, 2, 4, 6]
    assert all(pages.isnan().all() for pages in (*runner.kv.k, *runner.kv.v))
    assert runner.run(StepPlan()).samples == []
