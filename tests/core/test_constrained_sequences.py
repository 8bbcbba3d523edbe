"""Sequences held to a grammar, through the whole step loop, with a model without arithmetic that obeys masks."""

from __future__ import annotations

import numpy as np
import pytest
from replay import VOCAB, PlainText, ReplayRunner, fold, states
from scheduling import World, make_world, prompt_of

from agentcache.cache.lower import LowerTiers
from agentcache.cache.tiers import HostTier
from agentcache.chat.detokenizer import TextDelta
from agentcache.request import ConstraintError, FinishReason, TokenLogprob
from agentcache.scheduler.preemption import Costs

END = 0
WORDS = -(-VOCAB // 32)


class Countdown:
    """``length`` tokens, each in the residue class of its place modulo 3, then an end token."""

    def __init__(self, length: int, optional: int, breaks_at: int | None, ends: tuple[int, ...]) -> None:
        self.length = length
        self.optional = optional
        self.breaks_at = breaks_at
        self.ends = ends
        self.drawn: list[int] = []

    def allowed(self) -> set[int]:
        if self.breaks_at == len(self.drawn):
            return set(range(VOCAB))
        tokens = set(self.ends) if len(self.drawn) >= self.length - self.optional else set()
        if len(self.drawn) < self.length:
            tokens |= {
                token for token in range(1, VOCAB) if token % 3 == len(self.drawn) % 3 and token not in self.ends
            }
        return tokens

    def mask(self) -> np.ndarray:
        bits = np.zeros(32 * WORDS, np.uint8)
        bits[list(self.allowed())] = 1
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def advance(self, token: int) -> None:
        if self.breaks_at == len(self.drawn):
            raise ConstraintError("the library gave up")
        assert token in self.allowed()
        self.drawn.append(token)

    @property
    def finished(self) -> bool:
        return len(self.drawn) >= self.length


class Grammar:
    def __init__(
        self, length: int, optional: int = 0, breaks_at: int | None = None, ends: tuple[int, ...] = (END,)
    ) -> None:
        self.args = (length, optional, breaks_at, ends)
        self.started: list[Countdown] = []

    def start(self) -> Countdown:
        self.started.append(Countdown(*self.args))
        return self.started[-1]


class ObedientRunner(ReplayRunner):
    """Draws by the hash of everything before, among what the sequence's mask allows."""

    def _run_chunk(self, chunk):
        samples, prompt = super()._run_chunk(chunk)
        state = states(chunk.sequence.tokens[0 : chunk.end])[-1]
        for i, sequence in enumerate(chunk.samples):
            if sequence.constraint is not None:
                bits = np.unpackbits(sequence.constraint.mask().view(np.uint8), bitorder="little")
                allowed = bits.nonzero()[0].tolist()
                draw = state if sequence.params.greedy else fold(state, sequence.seed % 2**32)
                samples[i] = TokenLogprob(allowed[draw % len(allowed)], 0.0)
        return samples, prompt


def world_of(*, eos: frozenset[int] = frozenset({END}), pages: int = 100, running: int = 8, **options) -> World:
    world = make_world(pages=pages, running=running, budget=64, **options)
    world.engine.runner = ObedientRunner(pages, 4)
    world.engine.eos_token_ids = eos
    return world


def reply(grammar: Grammar, *, name: str = "a", eos: frozenset[int] = frozenset({END}), **params):
    world = world_of(eos=eos)
    sink = world.ask(name, prompt_of(9, name), grammar=grammar, **{"max_tokens": 50} | params)
    world.run()
    assert world.drained()
    return sink


def test_a_complete_reply_ends_with_the_end_token():
    sink = reply(Grammar(7))
    final = sink.finished()
    assert [token % 3 for token in sink.tokens()] == [0, 1, 2, 0, 1, 2, 0]
    assert final.finish_reason is FinishReason.STOP and final.end_token == END
    assert final.report.completion_tokens == 8


@pytest.mark.parametrize("eos, ignore", [(frozenset({END}), True), (frozenset(), False)])
def test_a_complete_reply_ends_without_an_end_token_where_none_can_come(eos, ignore):
    sink = reply(Grammar(7, ends=tuple(eos)), eos=eos, ignore_eos=ignore)
    final = sink.finished()
    assert len(sink.tokens()) == 7
    assert final.finish_reason is FinishReason.STOP and final.end_token is None
    assert final.report.completion_tokens == 7


def test_an_end_token_ends_a_reply_that_could_go_on_even_where_it_is_ignored():
    for seed in range(20):
        sink = reply(Grammar(30, optional=25), ignore_eos=True, temperature=1.0, seed=seed)
        final = sink.finished()
        assert final.finish_reason is FinishReason.STOP
        assert END not in sink.tokens() and 5 <= len(sink.tokens()) <= 30
        assert (final.end_token == END) == (len(sink.tokens()) < 30)


@pytest.mark.parametrize("room, reason", [(6, FinishReason.LENGTH), (7, FinishReason.STOP)])
def test_a_reply_that_fills_its_room_has_stopped_if_it_is_complete(room, reason):
    sink = reply(Grammar(7), max_tokens=room)
    assert sink.finished().finish_reason is reason and len(sink.tokens()) == room


def test_each_of_several_sequences_has_its_own_constraint():
    grammar = Grammar(12, optional=8)
    world = world_of()
    sink = world.ask("n", prompt_of(9), n=4, temperature=1.0, seed=5, max_tokens=50, grammar=grammar)
    world.run()
    assert len(grammar.started) == 4
    for index, constraint in enumerate(grammar.started):
        assert sink.finished(index).finish_reason is FinishReason.STOP
        assert constraint.drawn == [*sink.tokens(index), END]
    assert len({tuple(sink.tokens(index)) for index in range(4)}) > 1
    for index in range(4):
        alone = world_of()
        other = alone.ask("n", prompt_of(9), temperature=1.0, seed=5 + index, max_tokens=50, grammar=Grammar(12, 8))
        alone.run()
        assert other.tokens() == sink.tokens(index)


def test_a_constraint_that_fails_ends_its_sequence_alone():
    world = world_of()
    broken = [
        world.ask(f"broken {i}", prompt_of(9, i), max_tokens=50, grammar=Grammar(20, breaks_at=3)) for i in range(6)
    ]
    fine = world.ask("fine", prompt_of(9, "fine"), max_tokens=50, grammar=Grammar(20))
    free = world.ask("free", prompt_of(9, "free"), max_tokens=20, ignore_eos=True)
    world.run()
    for sink in broken:
        assert sink.finished().finish_reason is FinishReason.ERROR
        assert sink.finished().error == "the library gave up" and len(sink.tokens()) == 3
    assert fine.finished().finish_reason is FinishReason.STOP and len(fine.tokens()) == 20
    assert len(free.tokens()) == 20
    assert world.engine.metrics.counters["failed_steps"] == 0 and world.drained()


def test_one_of_several_sequences_whose_constraint_fails_leaves_the_others():
    class Mixed(Grammar):
        def start(self):
            made = super().start()
            made.breaks_at = 2 if len(self.started) == 2 else None
            return made

    world = world_of()
    sink = world.ask("n", prompt_of(9), n=3, temperature=1.0, seed=1, max_tokens=50, grammar=Mixed(9))
    world.run()
    reasons = [sink.finished(index).finish_reason for index in range(3)]
    assert reasons == [FinishReason.STOP, FinishReason.ERROR, FinishReason.STOP]


@pytest.mark.parametrize("swap", [False, True])
def test_preemption_changes_no_constrained_reply(swap):
    names = [f"r{i}" for i in range(6)]
    world = world_of(pages=24, running=6)
    if swap:
        world.engine.manager.lower = LowerTiers([HostTier(64)], world.engine.runner, world.engine.faults)
        world.scheduler.costs = Costs(page=0.1)
    sinks = {
        name: world.ask(name, prompt_of(9, name), temperature=1.0, seed=3, max_tokens=50, grammar=Grammar(30, 4))
        for name in names
    }
    world.run()
    assert world.scheduler.num_preemptions > 0
    assert (world.scheduler.num_swapped_pages > 0) == swap
    for name in names:
        alone = reply(Grammar(30, 4), name=name, temperature=1.0, seed=3)
        assert sinks[name].tokens() == alone.tokens()
        assert sinks[name].finished().finish_reason is FinishReason.STOP


def test_a_stop_string_ends_an_unfinished_reply():
    first = reply(Grammar(20)).tokens()
    sink = reply(Grammar(20), stop=(f"<{first[4]}>",))
    assert sink.finished().finish_reason is FinishReason.STOP
    assert sink.finished().stop_reason == f"<{first[4]}>" and len(sink.tokens()) <= 5


def test_a_step_that_runs_again_asks_for_the_same_masks():
    world = world_of()
    run, tried = world.engine.runner.run, set()

    class NotFiniteError(Exception):
        def __init__(self, sequence):
            self.sequence = sequence

    def stumbles(plan):
        result = run(plan)
        for chunk in plan.chunks:
            if chunk.sequence.request.request_id.startswith("bad") and chunk.sequence.output_len == 2:
                tried.add(chunk.sequence.request.request_id)
                raise NotFiniteError(chunk.sequence)
        return result

    world.engine.runner.run = stumbles
    for i in range(2):
        world.ask(f"bad {i}", prompt_of(9, i), max_tokens=9)
    sink = world.ask("a", prompt_of(9, "a"), max_tokens=50, grammar=Grammar(9))
    world.run()
    assert len(tried) == 2 and sink.tokens() == reply(Grammar(9)).tokens()


def test_text_with_stop_strings_is_flushed_when_a_reply_is_complete():
    class Holding(PlainText):
        def push(self, token):
            super().push(token)
            return TextDelta("", None)

        def flush(self):
            return self.said

    world = world_of()
    world.engine.make_text = Holding
    sink = world.ask("a", prompt_of(9, "a"), stop=("never",), ignore_eos=True, max_tokens=50, grammar=Grammar(5))
    world.run()
    assert sink.finished().text == "".join(f"<{token}>" for token in sink.tokens())
