"""Pages run out: who gives way, how often, and that everybody still says what it would have said alone."""

import random

import pytest
from replay import continuation, make_request
from scheduling import make_world, prompt_of

from agentcache.scheduler.outlook import private_part
from agentcache.scheduler.policy import POLICIES
from agentcache.scheduler.preemption import Costs, Victim, Way, choose_victim, final_length, settled


def prefilled(report) -> int:
    """Positions run other than those of tokens just drawn: the prompt, and what was computed again."""
    return report.computed_tokens - max(0, report.completion_tokens - 1)


def reports(sinks):
    return [sink.finished().report for sink in sinks]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("pages", "size", "count", "prompt", "reply"),
    [(40, 16, 6, 96, 160), (40, 16, 12, 96, 160), (40, 4, 30, 40, 100), (64, 4, 40, 100, 40), (64, 4, 40, 16, 64)],
)
def test_many_that_outgrow_the_pool_all_finish_within_the_bounds(policy, pages, size, count, prompt, reply):
    world = make_world(pages, size, budget=128, running=64, policy=policy)
    sinks = [world.ask(str(n), prompt_of(prompt, n), max_tokens=reply) for n in range(count)]
    world.run(20_000)
    assert [sink.tokens() for sink in sinks] == [continuation(prompt_of(prompt, n), reply) for n in range(count)]
    assert world.scheduler.num_preemptions > 0
    assert max(report.preemptions for report in reports(sinks)) <= 4
    assert sum(map(prefilled, reports(sinks))) <= 3 * count * prompt
    assert all(prefilled(report) <= 3 * prompt + reply for report in reports(sinks))
    assert world.drained()


def test_many_that_share_most_of_the_pool_and_all_want_to_grow_finish():
    world = make_world(96, 4, budget=64, running=32)
    shared = prompt_of(59 * 4)
    world.ask("warm", shared, max_tokens=1)
    world.run()
    sinks = [world.ask(str(n), [*shared, n], max_tokens=60) for n in range(32)]
    world.run(20_000)
    assert [sink.tokens() for sink in sinks] == [continuation([*shared, n], 60) for n in range(32)]
    assert max(report.preemptions for report in reports(sinks)) <= 4
    assert sum(map(prefilled, reports(sinks))) < 32 * 60  # the shared pages were never computed again
    assert world.drained()


@pytest.mark.parametrize("seed", range(80))
def test_in_any_traffic_preemption_ends_and_its_bounds_hold(seed):
    rng = random.Random(seed)
    size = rng.choice([1, 2, 4, 8])
    pages = rng.choice([6, 12, 25, 60])
    running = rng.choice([2, 4, 16, 40])
    world = make_world(pages, size, rng.choice([8, 16, 64]), running, policy=rng.choice(list(POLICIES)))
    capacity = pages * size
    heads = [prompt_of(rng.randrange(1, max(2, capacity // 2)), f"{seed} {n}") for n in range(3)]
    sent = []
    for n in range(rng.choice([10, 40])):
        prompt = (rng.choice(heads)[: rng.randrange(1, capacity)] + prompt_of(rng.randrange(6), n))[: capacity - 1] or [
            1
        ]
        asked = rng.choice([None, rng.randrange(1, capacity)])
        fields = {"n": rng.choice([1, 1, 1, min(3, running)]), "seed": n, "temperature": rng.choice([0.0, 1.0])}
        sent.append((prompt, asked, fields, world.ask(str(n), prompt, max_tokens=asked, **fields)))
        for _ in range(rng.choice([0, 0, 1, 10])):
            world.step()
    world.run(60_000)
    for prompt, asked, fields, sink in sent:
        room = min(asked or capacity, capacity - len(prompt))
        for index in range(fields["n"]):
            report = sink.finished(index).report
            expected = continuation(prompt, room, fields["seed"] + index, not fields["temperature"])
            assert sink.tokens(index) == expected
            assert report.preemptions <= 4
            assert prefilled(report) <= 3 * len(prompt) + room
    assert world.drained()


def test_the_same_request_again_fits_beside_the_pages_of_its_first_answer():
    """Pages that are published beside equal ones hold both: that room was promised to nobody."""
    world = make_world(pages=20, running=4, budget=64)
    for name in "abc":
        sinks = [world.ask(f"{name}{n}", prompt_of(8, n), max_tokens=72) for n in range(2)]
        world.run()
        assert [sink.tokens() for sink in sinks] == [continuation(prompt_of(8, n), 72) for n in range(2)]
        assert max(report.preemptions for report in reports(sinks)) <= 4


def test_the_oldest_that_runs_is_never_preempted_for_another():
    world = make_world(pages=12, running=6, budget=64, policy="fcfs")
    sinks = [world.ask(str(n), prompt_of(8, n), max_tokens=24) for n in range(6)]
    world.run()
    assert world.scheduler.num_preemptions > 0
    assert sinks[0].finished().report.preemptions == 0


def running_world(*prompts, pages=200, tokens=1):
    """A world in which each prompt runs and has drawn ``tokens`` tokens."""
    world = make_world(pages=pages, running=20, budget=1000)
    for n, prompt in enumerate(prompts):
        world.ask(str(n), prompt, max_tokens=100)
    for _ in range(tokens):
        world.step()
    assert len(world.scheduler.running) == len(prompts)
    return world


def test_a_victim_frees_most_pages_for_the_least_lost_work():
    shared = prompt_of(40)
    world = running_world(prompt_of(30, 1), [*shared, 1, 2], prompt_of(17, 3))
    world.scheduler.manager.check()
    victim = choose_victim(world.scheduler.manager, world.scheduler.running, Costs())
    assert victim.sequence.request.request_id == "2" and (victim.pages, victim.tokens) == (5, 17)


def test_pages_that_others_hold_too_are_not_counted_as_freed():
    shared = prompt_of(40)
    world = make_world(pages=200, running=20, budget=1000)
    world.ask("warm", shared, max_tokens=1)
    world.run()
    for n in range(3):
        world.ask(str(n), [*shared, n, n], max_tokens=50)
    world.step()
    manager = world.scheduler.manager
    assert [private_part(manager, s.lease) for s in world.scheduler.running] == [(1, 2)] * 3
    for _ in range(8):
        world.step()
    assert [private_part(manager, s.lease) for s in world.scheduler.running] == [(3, 10)] * 3
    world.engine.abort("0")
    world.engine.abort("1")
    assert private_part(manager, world.scheduler.running[0].lease) == (13, 50)


def test_forks_that_share_a_tail_free_nothing_alone():
    world = make_world(pages=200, running=20, budget=1000)
    world.ask("n", prompt_of(10), n=3, max_tokens=50)
    world.step()
    manager = world.scheduler.manager
    assert [private_part(manager, s.lease)[0] for s in world.scheduler.running] == [0, 0, 0]


def test_whoever_comes_back_often_is_settled_in_the_end_and_runs_to_its_own():
    world = make_world(pages=40, size=4, running=64, budget=64)
    for n in range(30):
        world.ask(str(n), prompt_of(30, n), max_tokens=60)
    seen = set()
    while world.engine.has_work:
        before = {s for s in world.scheduler.running if settled(s)}
        world.step()
        seen |= before
        assert not before & set(world.scheduler.preempted)
    assert seen and all(sequence.secured >= final_length(sequence) for sequence in seen)


def victim(pages, tokens, context=0):
    world = running_world(prompt_of(max(1, context + tokens)))
    return Victim(world.scheduler.running[0], pages, tokens)


@pytest.mark.parametrize(
    ("costs", "host_room", "expected"),
    [
        (Costs(), 100, Way.RECOMPUTE),  # no host memory
        (Costs(page=1), 100, Way.SWAP),
        (Costs(page=1), 2, Way.RECOMPUTE),  # too little of it
        (Costs(page=30), 100, Way.RECOMPUTE),  # copying is dearer
        (Costs(page=14), 100, Way.RECOMPUTE),
        (Costs(page=14, context=0.1), 100, Way.SWAP),  # far behind in a long context, computing is
    ],
)
def test_the_cheaper_way_to_give_pages_back_is_chosen(costs, host_room, expected):
    one = victim(pages=3, tokens=40, context=20)
    assert costs.way(one, host_room) is expected
    assert costs.of(one, host_room) == min(
        costs.recompute(one), one.pages * costs.page if expected is Way.SWAP else costs.recompute(one)
    )


def test_a_request_whose_end_the_pool_cannot_hold_is_a_fault_when_it_waits():
    world = make_world(pages=4, running=1)
    world.ask("busy", prompt_of(4), max_tokens=12)
    world.step()
    request, _ = make_request("large", prompt_of(12, 1), max_tokens=4)
    world.engine.add(request)
    assert world.engine.check() == []
    request.sequences[0].max_tokens = 100
    assert "can never hold it" in "".join(world.engine.check())


def test_chunks_end_where_pages_end():
    world = make_world(pages=100, size=8, running=4, budget=20)
    ends = []
    run = world.engine.runner.run

    def watch(plan):
        ends.extend((chunk.end, chunk.sequence.prompt_len) for chunk in plan.chunks if not chunk.samples)
        assert plan.num_tokens <= 20
        return run(plan)

    world.engine.runner.run = watch
    for n in range(6):
        world.ask(str(n), prompt_of(50 + n, n), max_tokens=5)
    world.run()
    assert len(ends) > 15 and all(end % 8 == 0 for end, _ in ends)


def test_a_long_prompt_gets_at_least_half_of_each_step_and_a_short_one_does_not_wait_for_it():
    world = make_world(pages=200, size=4, running=8, budget=32)
    world.ask("long", prompt_of(320, "long"), max_tokens=1)
    world.step()
    long_ = world.scheduler.running[0]
    for n in range(8):
        before = long_.lease.computed
        short = world.ask(str(n), prompt_of(12, n), max_tokens=1)
        world.step()
        assert short.tokens() == continuation(prompt_of(12, n), 1)
        assert long_.lease.computed - before == 20
    for n in range(3):
        world.ask(f"middle {n}", prompt_of(120, n), max_tokens=1)
    while long_.lease:
        before = long_.lease.computed
        world.step()
        assert not long_.lease or long_.lease.computed - before == 16
    world.run()
