"""Branch, score, prune, adopt: a search for 24 in which every branch is a fork of the session it grew from.

    python examples/agents/tree_search.py --numbers 4 7 8 8

::

    session [ rules ]─────────────────────────────────────[ rules ][ 8 / 8 = 1 ][ 7 - 1 = 6 ][ 4 * 6 = 24 ]   adopt
                     ├─ [ 8 / 8 = 1 ]─┬─ [ 7 - 1 = 6 ]─┬─ [ 4 * 6 = 24 ]──┘
                     │                └─ [ 7 * 4 = 28 ] └─ ...                                                  closed
                     └─ [ 8 + 8 = 16 ] ...                                                                     closed

The model proposes: each fork is asked for one of its share of the legal steps, by constrained decoding, and the mean
log-probability of the reply is its score.  Code decides: steps after which 24 cannot be reached any more are dropped, as
a test suite would drop a patch.  So the search ends with a solution whatever the model is worth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

# Run as a file, Python puts this folder on its path, not the top of the checkout.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from agentcache_sdk import AsyncSession, Turn
from examples.agents.common import all_of, connected_async, example_parser, json_reply, run_example
from examples.agents.game24 import GOAL, RULES, Terms, legal_steps, reachable, start, written


@dataclass(eq=False)
class Node:
    """A session, and the numbers that are left in it.

    Attributes:
        untried: steps from here that no branch has taken, in the order in which they are dealt.
        turn: the one that took ``step``; ``None`` for the root.
        score: mean log-probability of the reply.
    """

    session: AsyncSession
    terms: Terms
    untried: list[str]
    step: str = ""
    turn: Turn | None = None
    score: float = 0.0
    fate: str = ""
    children: list[Node] = field(default_factory=list)

    def alive(self) -> bool:
        return reachable(self.terms)

    def below(self) -> Iterator[Node]:
        """All nodes that grew from this one."""
        for child in self.children:
            yield child
            yield from child.below()


@dataclass(frozen=True)
class Search:
    """A beam search: ``width`` nodes are kept, and ``branches`` grow from each in a round; all of a round run at once.

    Attributes:
        opened: closes what is still open when the search fails.
    """

    opened: AsyncExitStack
    width: int
    branches: int
    max_tokens: int
    seed: int

    def node(self, session: AsyncSession, terms: Terms, **taken: Any) -> Node:
        untried = list(legal_steps(terms))
        random.Random(f"{self.seed} {untried}").shuffle(untried)
        return Node(session, terms, untried, **taken)

    async def solve(self, root: Node) -> Node:
        """Grow the tree to a solution and let the root's session adopt it; all branches are closed then.

        A node with steps that were not tried yet competes with its own children, so no way that may lead to 24 is lost.
        """
        beam = [root]
        while True:
            children = [child for grown in await all_of(map(self.grow, beam)) for child in grown]
            await close([child for child in children if not child.alive()], "lost")
            live = [child for child in children if child.alive()]
            ranked = sorted([*live, *(node for node in beam if node.untried)], key=rank)
            if len(ranked[0].terms) == 1:
                return await self.adopt(root, ranked[0])
            kept = ranked[: self.width]
            await close([node for node in (*beam, *live) if node not in kept and node is not root], "pruned")
            beam = kept

    async def adopt(self, root: Node, solution: Node) -> Node:
        solution.fate = "adopted"
        await root.session.adopt(solution.session)
        await close([node for node in root.below() if not node.fate], "left")
        return solution

    async def grow(self, node: Node) -> list[Node]:
        """Fork the node, deal the steps that were not tried among the forks, and let the model choose in each."""
        shares = [share for i in range(self.branches) if (share := node.untried[i :: self.branches])]
        forks = await node.session.fork(len(shares))
        for fork in forks:
            self.opened.push_async_callback(fork.close)
        children = await all_of(self.step(fork, node, share) for fork, share in zip(forks, shares, strict=True))
        node.untried = [step for step in node.untried if step not in {child.step for child in children}]
        node.children += children
        return children

    async def step(self, fork: AsyncSession, parent: Node, share: Sequence[str]) -> Node:
        wanted = json_reply("step", {"step": {"enum": list(share)}})
        text = f"Left: {written(parent.terms)}. Step:"
        turn = await fork.send(text, max_tokens=self.max_tokens, temperature=0, logprobs=True, **wanted)
        if turn.finish_reason == "length":
            raise ValueError(f"a step was cut after {turn.usage.completion_tokens} tokens: raise --max-tokens")
        step = json.loads(turn.text)["step"]
        return self.node(fork, legal_steps(parent.terms)[step], step=step, turn=turn, score=mean_logprob(turn))


async def close(nodes: list[Node], fate: str) -> None:
    await all_of(node.session.close() for node in nodes)
    for node in nodes:
        node.fate = fate


def rank(node: Node) -> tuple[int, float]:
    """The further the better, then the more likely to the model the better."""
    return len(node.terms), -node.score


def mean_logprob(turn: Turn) -> float:
    tokens = turn.raw["choices"][0]["logprobs"]["content"]
    return float(sum(token["logprob"] for token in tokens) / len(tokens))


def drawn(root: Node) -> Tree:
    """The search as a tree: each step, what it leaves, what the model and the evaluator thought of it, and its tokens."""
    tree = Tree(Text(f"{written(root.terms)}", style="bold"), guide_style="dim")
    grow_drawing(tree, root, depth=1)
    return tree


def grow_drawing(tree: Tree, node: Node, depth: int) -> None:
    styles = {"adopted": "bold green", "left": "green", "pruned": "yellow", "lost": "dim"}
    for child in node.children:
        assert child.turn is not None
        usage, cache_report = child.turn.usage, child.turn.cache
        step = child.step.ljust(28 - 4 * depth)
        figures = f"{child.score:6.2f}  cached {usage.cached_tokens:3}  computed {cache_report.computed_tokens or 0:3}"
        label = Text(f"{step}{written(child.terms):<10}{figures}  {child.fate}", style=styles[child.fate], no_wrap=True)
        grow_drawing(tree.add(label), child, depth + 1)


async def show(args: argparse.Namespace, console: Console) -> None:
    terms = start(args.numbers)
    async with connected_async(args, console) as client, client.session(system=RULES, ttl="10m") as session:
        async with AsyncExitStack() as opened:
            search = Search(opened, args.width, args.branches, args.max_tokens, args.seed)
            root = search.node(session, terms)
            with console.status(f"looking for {GOAL}"):
                solution = await search.solve(root)
        turns = [node.turn for node in root.below() if node.turn]
        sent = sum(turn.usage.prompt_tokens for turn in turns)
        computed = sum(turn.cache.computed_tokens or 0 for turn in turns)
        console.print(drawn(root))
        console.print(f"\n{solution.terms[0].text[1:-1]} = {GOAL}", style="bold green", highlight=False)
        console.print(f"{len(turns)} forks: {sent:,} tokens sent, {computed:,} computed.\n", highlight=False)
        console.print("The session that adopted the solution:", style="bold")
        console.print(session.report())


def main(argv: list[str] | None = None) -> int:
    """Exit status: see ``run_example``; 2 for a bad command line."""
    parser = example_parser("A search for 24 in which every branch is a fork.", max_tokens=48)
    parser.add_argument("--numbers", type=int, nargs=4, default=[4, 7, 8, 8], metavar="N", help="default: 4 7 8 8")
    for flag, default, about in (("--width", 2, "sessions kept after a round"), ("--branches", 4, "forks of each")):
        parser.add_argument(flag, type=int, choices=range(1, 9), default=default, help=f"{about}; default: {default}")
    parser.add_argument("--seed", type=int, default=1, help="of how steps are dealt; default: %(default)s")
    return run_example("tree_search", lambda args, console: asyncio.run(show(args, console)), parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
