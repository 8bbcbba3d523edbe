"""Traffic of several sessions in which nothing is wrong, and what stands ready to put a defect into it."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twin_parts import Body, assistant, call, result, sent, system, user

HEADS = (
    "You are a careful engineer of the shop's café team. Read a file before you change it, and run the tests after each "
    "change.\n\nRules:\n- never touch generated code\n- name every file that you speak of\n- say plainly what you did\n\n{}"
    "Ask before you delete anything, and answer in whole sentences that a newcomer can follow without any help.\n",
    "As a reviewer of patches you list what is wrong, the worst first, and nothing else.\n\nSteps:\n1. read the patch\n"
    "2. read what it calls\n3. think about errors\n\n{}Be short. Where nothing is wrong, say so in one line, and stop there.\n",
)
"""System texts of two agents, with room for a slot in the middle."""
WORDS = [
    "read",
    "parser",
    "tests",
    "page",
    "cart",
    "name",
    "order",
    "lexer",
    "blank",
    "tab",
    "number",
    "line",
    "token",
    "value",
    "cache",
    "error",
    "reload",
    "commit",
]
Change = Callable[[Body], None]


def tools_of(agent: int) -> list[Body]:
    names = (("read_file", "run_tests", "list_files"), ("read_patch", "find_calls", "comment"))[agent]
    properties = {
        "path": {"type": "string", "description": "Where it is, from the root of the tree."},
        "limit": {"type": "integer", "minimum": 1},
        "mode": {"type": "string", "enum": ["all", "new", "old"]},
    }
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    return [
        {
            "type": "function",
            "function": {"name": name, "description": f"Does {name} for you.", "parameters": copy.deepcopy(schema)},
        }
        for name in names
    ]


@dataclass
class Sent:
    """One request of the traffic."""

    agent: int
    session: int
    turn: int
    body: Body

    @property
    def messages(self) -> list[Body]:
        return self.body["messages"]


class Traffic:
    """Sessions of one or two agents, whose requests come in turns."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.named = self.random.random() < 0.5
        self.with_tools = [self.random.random() < 0.7 for _ in HEADS]
        agents = self.random.choice((1, 1, 2))
        chats = [
            self.chat(number % agents, number, self.random.randrange(2, 5))
            for number in range(self.random.randrange(2, 6))
        ]
        self.requests: list[Sent] = []
        while any(chats):
            self.requests.append(self.random.choice([chat for chat in chats if chat]).pop(0))

    def sentence(self) -> str:
        self.count += 1
        said = [self.random.choice(WORDS) for _ in range(self.random.randrange(4, 14))]
        said.insert(self.random.randrange(3), f"no. {self.count}")
        return " ".join(said).capitalize() + "."

    def chat(self, agent: int, number: int, turns: int) -> list[Sent]:
        steps: list[Any] = [system(HEADS[agent].format("")), user(self.sentence())]
        tools = tools_of(agent) if self.with_tools[agent] else None
        for turn in range(1, turns):
            thought = self.random.choice([None, self.sentence()])
            if tools and self.random.random() < 0.6:
                numbers = [number * 100 + turn * 10 + k for k in range(self.random.randrange(1, 3))]
                made = [
                    call(n, tools[k]["function"]["name"], json.dumps({"path": f"src/{n}.py", "limit": n}))
                    for k, n in enumerate(numbers)
                ]
                steps += [assistant(self.random.choice(["", self.sentence()]), *made, reasoning=thought)]
                steps += [[result(n, self.sentence() + "\n  é = 1\n") for n in numbers]]
            else:
                steps += [assistant(self.sentence(), reasoning=thought), user(self.sentence())]
        more = {"session": f"s{number}"} if self.named else {}
        return [Sent(agent, number, turn, copy.deepcopy(b)) for turn, b in enumerate(sent(*steps, tools=tools, **more))]


@dataclass
class Injected:
    """
    Attributes:
        bodies: with the defect.
        sound: without it, but with as many characters wherever that can be; ``None`` when there is nothing to compare with.
        record: the first request that shows it, from 1.
        path: a pattern.
        name: what was done, for people.
    """

    code: str
    name: str
    bodies: list[Body]
    sound: list[Body] | None
    record: int
    path: str


class Injector:
    """Puts a defect into the requests of one of the agents."""

    def __init__(self, traffic: Traffic, seed: int) -> None:
        self.traffic = traffic
        self.random = random.Random(seed)
        agents = sorted({r.agent for r in traffic.requests})
        self.agent = self.random.choice(agents)

    @property
    def mine(self) -> list[int]:
        return [i for i, r in enumerate(self.traffic.requests) if r.agent == self.agent]

    def copies(self) -> list[Body]:
        return [copy.deepcopy(r.body) for r in self.traffic.requests]

    def earlier_of_session(self, index: int) -> list[int]:
        r = self.traffic.requests
        return [i for i in range(index) if r[i].session == r[index].session]

    def needs_tools(self) -> bool:
        return self.traffic.with_tools[self.agent]

    def later_turns(self) -> list[tuple[int, int]]:
        """Request and the one before it in its session."""
        return [(i, self.earlier_of_session(i)[-1]) for i in self.mine if self.earlier_of_session(i)]

    def some_session(self, least=2) -> list[int] | None:
        r = self.traffic.requests
        sessions = [s for s in sorted({r[i].session for i in self.mine}) if sum(q.session == s for q in r) >= least]
        if not sessions:
            return None
        s = self.random.choice(sessions)
        return [i for i, q in enumerate(r) if q.session == s]
