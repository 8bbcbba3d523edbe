"""The search for 24 against a server with a tiny random model, whose choices are as good as dice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from fractions import Fraction
from pathlib import Path

import pytest
from live import LiveServer, drain, live_server

from agentcache_sdk import AsyncClient, SessionReport
from examples.agents import tree_search
from examples.agents.game24 import RULES, Term, legal_steps, reachable, start
from examples.agents.tree_search import Node, Search

# Every test ends with an empty cache, and the next one's client is told so.
pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.PrefixBreakWarning")


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[LiveServer]:
    with live_server(tiny_model, num_pages=1200) as server:
        yield server


async def searched(
    server: LiveServer, numbers: tuple[int, ...], width: int, branches: int
) -> tuple[Node, Node, SessionReport]:
    """Root, solution, and what the session that adopted it cost; one more turn shows that it goes on."""
    async with AsyncClient(server.url) as client, client.session(system=RULES) as session:
        async with AsyncExitStack() as opened:
            search = Search(opened, width, branches, 64, seed=1)
            root = search.node(session, start(numbers))
            solution = await search.solve(root)
        assert [info.id for info in await client.sessions()] == [session.id], "every branch is closed"
        assert session.mark() == len(numbers) - 1, "the solution's turns are the session's own"
        after = await session.send("Well done.", max_tokens=4)
        assert solution.turn is not None
        assert after.usage.cached_tokens >= solution.turn.usage.prompt_tokens
        return root, solution, session.report()


@pytest.mark.parametrize(
    "numbers, width, branches",
    [
        ((4, 7, 8, 8), 2, 4),
        ((3, 3, 8, 8), 1, 8),  # only 8 / (3 - 8 / 3): most branches are lost, and steps are tried in several rounds
    ],
)
def test_a_solution_is_found_and_the_branches_share_all_but_their_steps(
    server: LiveServer, numbers: tuple[int, ...], width: int, branches: int
) -> None:
    root, solution, report = asyncio.run(searched(server, numbers, width, branches))
    assert [term.value for term in solution.terms] == [24]
    made = solution.terms[0].text
    assert eval(made.replace(" / ", " * _one / "), {"_one": Fraction(1)}) == 24
    assert sorted(map(int, made.translate(str.maketrans("()+-*/", "      ")).split())) == sorted(numbers)
    nodes = list(root.below())
    turns = [node.turn for node in nodes if node.turn]
    assert {node.fate for node in nodes} <= {"adopted", "left", "pruned", "lost"}
    assert sum(node.fate == "adopted" for node in nodes) == 1
    assert all(not node.alive() for node in nodes if node.fate == "lost")
    # Nobody but the first branch reads the rules; a branch reads its parent's last page again at most.
    computed = [turn.cache.computed_tokens or 0 for turn in turns]
    assert sum(computed) < sum(turn.usage.total_tokens for turn in turns) / 2
    assert sum(count > 150 for count in computed) == 1
    assert sum(row.lost for row in report.rows) == 0
    drain(server)


def test_the_same_seed_searches_the_same_tree(server: LiveServer) -> None:
    trees = []
    for _ in range(2):
        root, solution, _ = asyncio.run(searched(server, (1, 2, 3, 4), 1, 3))
        trees.append(([node.step for node in root.below()], solution.terms[0].text))
        drain(server)
    assert trees[0] == trees[1]


def test_the_command_prints_the_tree_and_the_report(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert tree_search.main(["--url", server.url, "--numbers", "1", "2", "3", "4"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("1 2 3 4\n")
    assert "= 24\n" in printed
    assert "adopted\n" in printed.replace(" ", "")
    assert "tokens per turn" in printed
    drain(server)


def test_a_search_that_fails_leaves_no_session(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert tree_search.main(["--url", server.url, "--max-tokens", "3"]) == 1
    assert capsys.readouterr().err == "tree_search: a step was cut after 3 tokens: raise --max-tokens\n"
    assert server.http.get("/v1/sessions").json()["data"] == []
    drain(server)


def test_numbers_without_a_solution_are_refused(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert tree_search.main(["--url", server.url, "--numbers", "1", "1", "1", "1"]) == 1
    assert capsys.readouterr().err == "tree_search: 1 1 1 1 cannot be made 24: give other numbers\n"


def test_the_evaluator_knows_what_can_be_made() -> None:
    made = {numbers: reachable(terms(*numbers)) for numbers in ((3, 3, 8, 8), (1, 1, 1, 1), (24,), (4, 4))}
    assert made == {(3, 3, 8, 8): True, (1, 1, 1, 1): False, (24,): True, (4, 4): False}
    assert set(legal_steps(terms(0, 6))) == {"0 + 6 = 6", "0 * 6 = 0", "6 - 0 = 6", "0 / 6 = 0"}


def terms(*numbers: int) -> tuple[Term, ...]:
    return tuple(Term(Fraction(number), str(number)) for number in numbers)


def test_help_names_every_flag() -> None:
    done = subprocess.run(
        [sys.executable, tree_search.__file__, "--help"], check=True, capture_output=True, text=True, timeout=60
    )
    for flag in ("--url", "--model", "--numbers", "--width", "--branches", "--seed"):
        assert flag in done.stdout
