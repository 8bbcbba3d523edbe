"""Conversations that branch at random, each branch only appended to, in any order: nothing is wrong with any of them."""

from __future__ import annotations

import random

import pytest
from explained import TEMPLATE, explained, told
from twin_parts import INSTRUCTIONS, TOOLS, Body, assistant, call, result, system, user

SENTENCES = (
    "Try the lexer first.", "Done.", "Go on.", "Mend it.", "The parser splits at blanks.", "Tests pass now.", "Read the file.",
    "OK.", "Plan: start with names, then numbers.", "No.", "Yes, and quickly.",
)  # fmt: skip
"""So few that different branches say the same here and there."""
ARGUMENTS = ('{"path": "a.py"}', '{"path":"a.py"}', '{"path": "b.py", "limit": 3}')


class Search:
    """A tree of conversations, and the requests that grew it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tools = self.random.choice([None, TOOLS, TOOLS[:2]])
        self.requests: list[Body] = []
        self.branches = [self.begin()]
        self.calls = 0
        for _ in range(self.random.randrange(3, 14)):
            self.step()

    def begin(self) -> list[Body]:
        branch = [system(self.random.choice([INSTRUCTIONS, "You plan."])), user(self.sentence())]
        self.send(branch)
        return branch

    def step(self) -> None:
        kind, branch = self.random.random(), self.random.choice(self.branches)
        if kind < 0.25:
            ends = [end for end in range(2, len(branch) + 1) if self.is_turn(branch, end)]
            self.branches.append(branch[: self.random.choice(ends)])
        elif kind < 0.3:
            self.branches.append(self.begin())
        else:
            self.grow(branch)
            self.send(branch)

    def is_turn(self, branch: list[Body], end: int) -> bool:
        results_follow = end < len(branch) and branch[end]["role"] == "tool"
        return branch[end - 1]["role"] in ("user", "tool") and not results_follow

    def grow(self, branch: list[Body]) -> None:
        thought = self.random.choice([None, None, self.sentence()])
        if self.tools is None or self.random.random() < 0.6:
            branch += [assistant(self.sentence(), reasoning=thought), user(self.sentence())]
            return
        numbers = [self.calls + number for number in range(self.random.randrange(1, 3))]
        self.calls += len(numbers)
        made = [
            call(number, self.random.choice(["read_file", "list_files"]), self.random.choice(ARGUMENTS))
            for number in numbers
        ]
        branch += [assistant(self.random.choice(["", self.sentence()]), *made, reasoning=thought)]
        branch += [result(number, self.sentence()) for number in numbers]

    def sentence(self) -> str:
        return self.random.choice(SENTENCES)

    def send(self, branch: list[Body]) -> None:
        self.requests.append({"messages": list(branch), **({"tools": self.tools} if self.tools else {})})


def false_alarms(folder, seeds: range) -> list:
    found = []
    for seed in seeds:
        search = Search(seed)
        for sessions in ((), ["s"] * len(search.requests)):
            for template in (None, TEMPLATE):
                findings = told(explained(folder, search.requests, template=template, sessions=sessions))
                found += [(seed, bool(sessions), template is None, finding) for finding in findings]
    return found


def test_branches_have_no_findings(tokenizer_folder):
    assert false_alarms(tokenizer_folder, range(30)) == []


@pytest.mark.long
def test_many_more_branches_have_no_findings(tokenizer_folder):
    assert false_alarms(tokenizer_folder, range(30, 600)) == []
