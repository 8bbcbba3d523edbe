from lint_twins import Twin
from twin_parts import INSTRUCTIONS, PRINTS_ALL, TOOLS, called, from_request, growing, only_request, sent, system, user


def reordered(request):
    request["tools"] = request["tools"][::-1]


def one_shot(*orders):
    """Requests of one agent to different tasks."""
    tasks = ("Fix the parser.", "Write the docs.", "Answer the mail.")
    return [
        {"messages": [system(), user(task)], "tools": [TOOLS[i] for i in order]} for task, order in zip(tasks, orders)
    ]


def named_users(*orders):
    """The same of an agent that is told at the end of its instructions whom it helps."""
    requests = one_shot(*orders)
    for request, name in zip(requests, ("Anna", "Bert", "Chloe")):
        request["messages"][0] = system(f"{INSTRUCTIONS}You help {name}.")
    return requests


TWINS = [
    Twin(
        "AC202",
        "from the second turn on",
        failing=from_request(growing(tools=TOOLS), 1, reordered),
        clean=growing(tools=TOOLS),
        path="tools[0]",
    ),
    Twin(
        "AC202",
        "for one turn",
        failing=only_request(called(), 2, reordered),
        clean=called(),
        flags=PRINTS_ALL,
        path="tools[0]",
    ),
    Twin(
        "AC202",
        "the last two change places",
        failing=one_shot((0, 1, 2), (0, 2, 1), (0, 1, 2)),
        clean=one_shot((0, 1, 2), (0, 1, 2), (0, 1, 2)),
        flags=PRINTS_ALL,
        path="tools[1]",
    ),
    Twin(
        "AC202",
        "an agent that names its user",
        failing=named_users((0, 1, 2), (2, 1, 0)),
        clean=named_users((0, 1, 2), (0, 1, 2)),
        flags=PRINTS_ALL,
        path="tools[0]",
    ),
    Twin(
        "AC202",
        "two agents have their own order",
        failing=one_shot((0, 1, 2), (2, 1, 0)),
        clean=[
            *sent(system("You plan work and write no code."), user("Plan it."), tools=TOOLS),
            *sent(system("You review code for its names alone."), user("Review it."), tools=TOOLS[::-1]),
        ],
        flags=PRINTS_ALL,
    ),
]
