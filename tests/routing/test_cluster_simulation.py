"""Many replicas with the real router keep nearly what one machine with their memory would, and survive changes."""

import pytest

from bench.cluster_parts.sim import GOAL, simulate
from bench.cluster_parts.sim_placement import Routed, by_session
from bench.cluster_parts.sim_run import Cluster, Simulation
from bench.cluster_parts.sim_traffic import Traffic

CLUSTER = Cluster(replicas=6, pages=820)
TRAFFIC = Traffic(sessions=40, at_once=32, turns=5, kinds=2)


@pytest.fixture(scope="module")
def report():
    return simulate(CLUSTER, TRAFFIC)


def test_nearly_as_much_is_cached_as_on_one_machine(report):
    rates = {line.name: line.hit_rate for line in report.lines}
    assert report.share >= GOAL
    assert rates["prefix router, replies re-tokenised"] >= 0.9 * rates["one machine"]
    assert rates["prefix router"] > 1.2 * rates["random"]
    assert all(line.turns == TRAFFIC.sessions * TRAFFIC.turns for line in report.lines)


def test_only_what_must_move_moves(report):
    """About one prompt in N, and hardly a conversation that has pages where it is."""
    for change in report.changes:
        assert 0.5 / 7 < change.prompts_moved < 2 / 6
        assert change.agents_moved < 2.5 / 6


def test_a_prompt_that_is_suddenly_hot_is_served_from_the_cache(report):
    assert report.hot.turns >= 20
    assert report.hot.hit_rate > 0.6


def test_a_run_repeats_from_its_seed():
    def run():
        outcome = Simulation(CLUSTER, TRAFFIC, lambda clock: Routed(clock, TRAFFIC.page_size)).run()
        return [(turn.agent, turn.replica, turn.cached) for turn in outcome.turns]

    assert run() == run()


def test_every_turn_is_served_although_replicas_die_one_after_the_other():
    simulation = Simulation(CLUSTER, TRAFFIC, lambda clock: Routed(clock, TRAFFIC.page_size))
    for number in range(5):
        simulation.later(10.0 + 5 * number, lambda number=number: simulation.kill(f"r{number}"))
    outcome = simulation.run()
    assert len(outcome.turns) == TRAFFIC.sessions * TRAFFIC.turns and outcome.retried
    assert {turn.replica for turn in outcome.turns if turn.at > 35} == {"r5"}


def test_pages_and_leases_add_up_when_it_is_over():
    simulation = Simulation(CLUSTER, TRAFFIC, lambda clock: by_session())
    simulation.run()
    for replica in simulation.replicas.values():
        counts = replica.manager.counts()
        assert (counts.live, replica.manager.num_leases, replica.load().tokens) == (0, 0, 0)
        assert len(replica.feed) == counts.cached - sum(node.tail for node in replica.manager.tree.nodes())
