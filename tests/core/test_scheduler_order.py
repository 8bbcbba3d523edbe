"""Who is admitted first, and how often anybody is overtaken."""

import random

import pytest
from replay import continuation
from scheduling import make_world, prompt_of

from agentcache.scheduler.policy import POLICIES

HOT = prompt_of(40, "hot")


def warm(world, prompt=HOT):
    world.ask("warm", prompt, max_tokens=1)
    world.run()


def order_of(world, *, after=0):
    """Names in order of first admission."""
    return [world.arrived[rank].request_id for rank in world.admitted[after:]]


def busy(world):
    """Take the only seat, so that what is asked next waits."""
    world.ask("busy", prompt_of(8, "busy"), max_tokens=4)
    world.step()


def test_the_default_policy_is_the_highest_response_ratio():
    assert next(iter(POLICIES)) == "hrrn"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", ["cold", "long hit", "full hit", "short"]),
        ("longest-prefix", ["full hit", "long hit", "cold", "short"]),
        ("hrrn", ["full hit", "short", "long hit", "cold"]),
    ],
)
def test_each_policy_has_its_order(policy, expected):
    world = make_world(pages=200, running=1, budget=64, policy=policy)
    warm(world)
    busy(world)
    world.ask("cold", prompt_of(60, 1), max_tokens=1)
    world.ask("long hit", HOT[:36] + prompt_of(20, 2), max_tokens=1)
    world.ask("full hit", HOT, max_tokens=1)
    world.ask("short", prompt_of(9, 3), max_tokens=1)
    world.run()
    assert order_of(world, after=2) == expected


def test_age_is_counted_in_tokens_and_brings_a_cold_prompt_to_the_front():
    world = make_world(pages=200, running=1, budget=64, max_overtakes=1000)
    warm(world)
    busy(world)
    world.ask("cold", prompt_of(60, 1), max_tokens=1)
    for n in range(40):
        world.ask(f"hot {n}", HOT + prompt_of(12, n), max_tokens=1)
        world.step()
    world.run()
    order = order_of(world, after=2)
    # Hot ones need 12 tokens each and those who wait together age together: the cold one is served in between.
    assert 0 < order.index("cold") < 30


def test_smaller_priorities_go_first_whatever_was_cached():
    world = make_world(pages=200, running=1, budget=64)
    warm(world)
    busy(world)
    for name, prompt, priority in (("hot 1", HOT, 1), ("cold 0", prompt_of(60, 1), 0), ("hot 0", [*HOT, 1], 0)):
        world.ask(name, prompt, priority=priority, max_tokens=1)
    world.run()
    assert order_of(world, after=2) == ["hot 0", "cold 0", "hot 1"]


@pytest.mark.parametrize("policy", POLICIES)
def test_equals_go_in_order_of_arrival(policy):
    world = make_world(pages=200, running=1, budget=64, policy=policy)
    warm(world)
    busy(world)
    names = [f"hot {n}" for n in range(20)]
    for n, name in enumerate(names):
        world.ask(name, HOT + prompt_of(8, n), max_tokens=2)
        if n % 3 == 0:
            world.step()
    world.run()
    assert order_of(world, after=2) == names


@pytest.mark.parametrize("policy", ["hrrn", "longest-prefix"])
@pytest.mark.parametrize("bound", [0, 1, 5, 16])
def test_a_cold_request_is_overtaken_no_more_than_is_allowed_however_many_come(policy, bound):
    world = make_world(pages=200, running=2, budget=64, policy=policy, max_overtakes=bound)
    warm(world)
    busy(world)
    cold = world.ask("cold", prompt_of(120, 1), max_tokens=1)
    sent = 0
    while not cold.outputs:
        while len(world.scheduler.waiting) < 6:
            world.ask(f"hot {sent}", HOT + prompt_of(3, sent), max_tokens=2)
            sent += 1
        world.step()
    assert max(world.overtaken().values()) == 2 * bound  # it needs two steps
    world.run()
    assert cold.tokens() == continuation(prompt_of(120, 1), 1)


def test_the_bound_holds_with_two_hundred_in_the_queue():
    world = make_world(pages=400, running=2, budget=64, policy="longest-prefix", max_overtakes=7, look_ahead=16)
    warm(world)
    busy(world)
    colds = [world.ask(f"cold {n}", prompt_of(40, n), max_tokens=1) for n in range(10)]
    for n in range(200):
        world.ask(f"hot {n}", HOT + prompt_of(3, n), max_tokens=1)
    world.run()
    assert len(world.admitted) == 212 and all(cold.finished() for cold in colds)
    counts = world.overtaken()
    assert max(counts.values()) == 7
    assert [world.arrived[rank].request_id for rank, count in counts.items() if count] == [
        f"cold {n}" for n in range(10)
    ]


def test_a_dear_request_is_more_patient_than_a_cheap_one_that_came_before_it_and_one_that_came_after():
    world = make_world(pages=400, running=1, budget=32, policy="longest-prefix", max_overtakes=3)
    warm(world)
    busy(world)
    for name, length in (("one step", 20), ("four steps", 120), ("two steps", 60)):
        world.ask(name, prompt_of(length, name), max_tokens=1)
    for n in range(20):
        world.ask(f"hot {n}", [*HOT, n], max_tokens=1)
    world.run()
    ranks = {request.request_id: rank for rank, request in world.arrived.items()}
    counts = {name: world.overtaken()[ranks[name]] for name in ("one step", "four steps", "two steps")}
    # The four-step one is overtaken by the two-step one as well.
    assert counts == {"one step": 3, "two steps": 6, "four steps": 12}


def test_nobody_is_overtaken_for_waiting_behind_its_own_class():
    world = make_world(pages=200, running=1, budget=64, policy="longest-prefix", max_overtakes=2)
    warm(world)
    busy(world)
    world.ask("cold", prompt_of(60, 1), priority=1, max_tokens=1)
    for n in range(5):
        world.ask(f"urgent {n}", [*HOT, n], priority=0, max_tokens=1)
    for n in range(5):
        world.ask(f"hot {n}", [*HOT, n, n], priority=1, max_tokens=1)
    world.run()
    order = order_of(world, after=2)
    assert order[:5] == [f"urgent {n}" for n in range(5)]
    assert order[5:8] == ["hot 0", "hot 1", "cold"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_programs_next_turn_does_not_queue_behind_newcomers(policy):
    world = make_world(pages=300, running=1, budget=64, policy=policy)
    world.ask("turn 1", prompt_of(12, "program"), program="p", max_tokens=1)
    world.run()
    busy(world)
    for n in range(6):
        world.ask(f"new {n}", prompt_of(24, n), program=f"new {n}", max_tokens=1)
        world.step()
    world.ask("turn 2", prompt_of(24, "other"), program="p", max_tokens=1)
    world.ask("stranger", prompt_of(24, "stranger"), max_tokens=1)
    world.run()
    order = order_of(world, after=2)
    behind = [name for name in order[: order.index("turn 2")] if name.startswith("new")]
    assert behind == order[: len(behind)] and len(behind) < 6  # only those who had begun by then
    assert order.index("turn 2") < order.index(f"new {len(behind)}") < order.index("stranger")


def test_only_one_turn_at_a_time_stands_in_its_programs_place():
    world = make_world(pages=300, running=1, budget=64, policy="fcfs")
    world.ask("first", prompt_of(12, 1), program="p", max_tokens=1)
    world.run()
    busy(world)
    world.ask("new", prompt_of(12, 2), max_tokens=1)
    for n in range(3):
        world.ask(f"turn {n}", prompt_of(12, 3 + n), program="p", max_tokens=1)
    world.run()
    assert order_of(world, after=2) == ["turn 0", "new", "turn 1", "turn 2"]
    assert not world.scheduler.waiting._in_place


def test_programs_of_other_namespaces_have_places_of_their_own():
    world = make_world(pages=300, running=1, budget=64, policy="fcfs")
    world.ask("theirs", prompt_of(12, 1), program="p", root=b"a", max_tokens=1)
    world.run()
    busy(world)
    world.ask("new", prompt_of(12, 2), max_tokens=1, root=b"b")
    world.ask("mine", prompt_of(12, 3), program="p", root=b"b", max_tokens=1)
    world.run()
    assert order_of(world, after=2) == ["new", "mine"]


def test_a_program_that_was_away_for_long_has_no_advantage_over_an_empty_queue():
    world = make_world(pages=300, running=1, budget=64)
    world.ask("old", prompt_of(12, "old"), program="old", max_tokens=1)
    world.run()
    for n in range(20):
        world.ask(str(n), prompt_of(40, n), max_tokens=1)
        world.run()
    busy(world)
    world.ask("large", prompt_of(60, "large"), program="old", max_tokens=1)
    world.ask("small", prompt_of(8, "small"), max_tokens=1)
    world.run()
    assert order_of(world, after=22) == ["small", "large"]


def test_whoever_waits_for_a_page_that_is_being_computed_is_passed_over_by_those_who_need_not():
    world = make_world(pages=300, running=8, budget=16, look_ahead=2)
    prompt = prompt_of(100, "same")
    for n in range(6):
        world.ask(f"same {n}", prompt, max_tokens=1)
    world.step()
    other = world.ask("other", prompt_of(8, "other"), max_tokens=1)
    for _ in range(8):
        world.step()
    assert order_of(world)[0] == "same 0"
    world.run()
    assert other.tokens() == continuation(prompt_of(8, "other"), 1)
    assert world.engine.runner.rows == 100 + 5 + 8


@pytest.mark.parametrize("seed", range(60))
def test_in_any_traffic_nobody_is_overtaken_more_than_allowed_and_runs_replay_exactly(seed):
    first, second = storm(seed), storm(seed)
    assert first.admitted == second.admitted and first.steps == second.steps


def storm(seed: int):
    rng = random.Random(seed)
    bound = rng.choice([0, 1, 2, 5, 16])
    world = make_world(
        pages=rng.choice([12, 30, 100]),
        running=rng.choice([1, 2, 5]),
        budget=rng.choice([4, 16, 64]),
        policy=rng.choice(list(POLICIES)),
        max_overtakes=bound,
        look_ahead=rng.choice([1, 3, 64]),
    )
    heads = [prompt_of(rng.randrange(4, 24), f"{seed} {n}") for n in range(3)]
    for turn in range(120):
        for part in range(rng.choice([0, 0, 1, 2])):
            prompt = rng.choice(heads)[: rng.randrange(1, 24)] + prompt_of(rng.randrange(9), f"{turn} {part}")
            options = {
                "program": rng.choice([None, "p", "q", str(turn)]),
                "priority": rng.choice([0, 0, 0, 1]),
                "max_tokens": rng.randrange(1, 12),
                "n": 2 if rng.random() < 0.1 and world.scheduler.limits.max_running > 1 else 1,
            }
            world.ask(f"{turn}.{part}", prompt or [1], **options)
        if rng.random() < 0.1 and world.arrived:
            world.engine.abort(rng.choice(list(world.arrived.values())[-10:]).request_id)
        world.step()
    world.run()
    for rank, count in world.overtaken().items():
        steps = -(-len(world.arrived[rank].prompt) // world.scheduler.limits.token_budget)
        assert count <= bound * steps
    assert world.drained()
    return world
