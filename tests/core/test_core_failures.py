"""A step fails: who is told, who is not, and when the engine says that it does not work."""

import pytest
from replay import continuation
from scheduling import make_world, prompt_of

from agentcache.engine.health import FIRST_PROBE_S, GIVE_UP_S, LIMIT, LONGEST_PAUSE_S, StepHealth
from agentcache.errors import AgentCacheError
from agentcache.request import FinishReason


class NotFiniteError(AgentCacheError):
    def __init__(self, sequence):
        super().__init__("not finite")
        self.sequence = sequence


def spoil(world, names, *, at=0, index=None):
    """Have the model's logits for some requests be no numbers, from their ``at``-th token on."""
    run = world.engine.runner.run

    def spoiled(plan):
        result = run(plan)
        for chunk in plan.chunks:
            for sequence in chunk.samples:
                fits = index is None or sequence.index == index
                if sequence.request.request_id in names and fits and sequence.output_len >= at:
                    raise NotFiniteError(sequence)
        return result

    world.engine.runner.run = spoiled


@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_sequence_without_finite_logits_fails_alone(at):
    world = make_world(pages=100, running=8, budget=64)
    prompts = {name: prompt_of(20, name) for name in "abc"}
    spoil(world, {"b"}, at=at)
    sinks = {name: world.ask(name, prompt, max_tokens=9) for name, prompt in prompts.items()}
    world.run()
    assert sinks["b"].finished().finish_reason is FinishReason.ERROR and "not finite" in sinks["b"].finished().error
    assert sinks["b"].tokens() == continuation(prompts["b"], at)
    for name in "ac":
        assert sinks[name].tokens() == continuation(prompts[name], 9)
    assert world.engine.metrics.counters["failed_steps"] == 0
    assert world.drained()


def test_copies_are_made_once_although_the_step_runs_again():
    world = make_world(pages=100, running=8, budget=64)
    shared = prompt_of(22)
    world.ask("warm", shared, max_tokens=1)
    world.run()
    spoil(world, {"b"})
    sinks = {name: world.ask(name, [*shared, *prompt_of(3, name)], max_tokens=9) for name in "abc"}
    world.run()
    for name in "ac":  # they begin with a copy of the tail of ``shared``
        assert sinks[name].finished().report.partial_tokens == 2
        assert sinks[name].tokens() == continuation([*shared, *prompt_of(3, name)], 9)


def test_one_of_several_sequences_fails_and_the_others_go_on():
    world = make_world(pages=100, running=8, budget=64)
    spoil(world, {"n"}, at=3, index=1)
    sink = world.ask("n", prompt_of(10), n=3, temperature=1.0, seed=4, max_tokens=9)
    world.run()
    assert sink.finished(1).finish_reason is FinishReason.ERROR
    for index in (0, 2):
        assert sink.tokens(index) == continuation(prompt_of(10), 9, 4 + index, greedy=False)
    assert world.drained()


def test_a_sequence_that_fails_before_its_first_token_takes_its_followers_along():
    world = make_world(pages=100, running=8, budget=64)
    spoil(world, {"n"})
    sinks = world.ask("n", prompt_of(10), n=3), world.ask("other", prompt_of(11))
    world.run()
    assert [sinks[0].finished(index).finish_reason for index in range(3)] == [FinishReason.ERROR] * 3
    assert sinks[1].tokens() == continuation(prompt_of(11), 8)


def test_when_nobody_is_left_or_too_many_are_named_the_step_has_failed():
    for count in (1, 8):
        world = make_world(pages=100, running=8, budget=200)
        names = {f"bad {n}" for n in range(count)}
        spoil(world, names)
        sinks = [world.ask(name, prompt_of(10, name)) for name in sorted(names)]
        world.step()
        assert all(sink.finished().finish_reason is FinishReason.ERROR for sink in sinks)
        assert world.engine.metrics.counters["failed_steps"] == world.engine.health.failures == 1
        assert world.drained()


class Broken:
    """A runner that fails until it is mended."""

    def __init__(self, runner):
        self.runner = runner
        self.broken = True
        self.calls = 0

    def run(self, plan):
        self.calls += 1
        if self.broken:
            raise RuntimeError("for this test")
        return self.runner.run(plan)


def failing_world():
    world = make_world(pages=100, running=1, budget=64, policy="fcfs")
    world.engine.runner = Broken(world.engine.runner)
    sinks = [world.ask(str(n), prompt_of(9, n)) for n in range(LIMIT + 2)]
    for n in range(LIMIT):
        assert not world.engine.health.failing
        world.step()
        assert sinks[n].finished().finish_reason is FinishReason.ERROR
    assert world.engine.health.failing and world.engine.health.reason == f"the last {LIMIT} steps failed"
    return world, sinks[LIMIT:]


def test_after_several_failed_steps_nobody_is_admitted_and_a_probe_ends_that():
    world, (first, second) = failing_world()
    assert not world.step() and world.engine.runner.calls == LIMIT
    world.engine.clock.advance(FIRST_PROBE_S)
    assert world.step() and world.engine.runner.calls == LIMIT + 1
    assert world.engine.health.failing and not world.step()
    world.engine.runner.broken = False
    world.engine.clock.advance(2 * FIRST_PROBE_S)
    assert world.step() and not world.engine.health.failing
    world.run()
    assert first.tokens() == continuation(prompt_of(9, LIMIT), 8)
    assert second.tokens() == continuation(prompt_of(9, LIMIT + 1), 8)
    assert world.drained()


def test_an_engine_that_stays_broken_keeps_nobody_waiting_for_ever():
    world, waiting = failing_world()
    asked = 0
    while world.engine.has_work:
        world.engine.clock.advance(LONGEST_PAUSE_S)
        asked += world.step()
        assert asked < 20
    assert [sink.finished().finish_reason for sink in waiting] == [FinishReason.ERROR] * 2
    assert "does not work" in waiting[0].finished().error
    assert world.engine.health.failing
    world.engine.runner.broken = False
    world.engine.clock.advance(LONGEST_PAUSE_S)
    assert world.step() and not world.engine.health.failing
    assert world.drained()


def test_a_step_that_succeeds_begins_the_count_anew():
    world = make_world(pages=100, running=1, budget=64)
    for n in range(3 * LIMIT):
        if n % LIMIT:
            world.engine.faults.arm("forward", 1)
        world.ask(str(n), prompt_of(6, n), max_tokens=1)
        world.run()
    assert world.engine.metrics.counters["failed_steps"] == 3 * (LIMIT - 1)
    assert not world.engine.health.failing


def test_probes_become_rarer_up_to_a_limit():
    health = StepHealth()
    now, pauses = 100.0, []
    for _ in range(LIMIT + 10):
        health.failed(now)
        if health.next_probe() is not None:
            pauses.append(health.next_probe() - now)
            now = health.next_probe()
    assert pauses[:4] == [FIRST_PROBE_S * 2**n for n in range(4)] and pauses[-1] == LONGEST_PAUSE_S
    assert not health.gives_up(100 + GIVE_UP_S - 1) and health.gives_up(now)
    health.succeeded()
    assert health.next_probe() is None and not health.gives_up(now) and health.reason == "ok"


def test_faults_of_single_requests_are_no_sign_of_a_broken_engine():
    world = make_world(pages=100, running=4, budget=64)
    for n in range(LIMIT + 3):
        world.engine.faults.arm("alloc", 1)
        sink = world.ask(str(n), prompt_of(6, n), max_tokens=1)
        world.run()
        assert sink.finished().finish_reason is FinishReason.ERROR
    assert not world.engine.health.failing
