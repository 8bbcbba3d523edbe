from lint_twins import Twin
from twin_parts import PRINTS_ALL, TOOLS, assistant, call, called, from_request, result, sent, system, user


def new_ids(prefix, count=None):
    def change(request):
        renamed = {}
        for message in request["messages"][:count]:
            for made in message.get("tool_calls", ()):
                renamed[made["id"]] = f"{prefix}{made['id']}"
                made["id"] = renamed[made["id"]]
        for message in request["messages"]:
            if message.get("tool_call_id") in renamed:
                message["tool_call_id"] = renamed[message["tool_call_id"]]

    return change


def each_request_its_own(requests):
    return [from_request([request], 0, new_ids(f"r{number}_"))[0] for number, request in enumerate(requests)]


def parallel():
    return sent(
        system(), user("Compare them."),
        assistant("", call(1), call(2, arguments='{"path": "lexer.py"}')), [result(1), result(2, "class Lexer: pass")],
        assistant("", call(3, "run_tests", "{}")), result(3, "all passed"),
        assistant("They are alike."), user("Thanks."), tools=TOOLS,
    )  # fmt: skip


def retried():
    """A call is made again under another id, in another branch."""
    head = [system(), user("Read it.")]
    first = [*head, assistant("", call(1)), result(1)]
    second = [*head, assistant("", call(7)), result(7)]
    return [
        {"messages": messages, "tools": TOOLS}
        for messages in (head, first, second, [*second, assistant("Done."), user("Next.")])
    ]


TWINS = [
    Twin(
        "AC208",
        "new ones for each request",
        failing=each_request_its_own(called(4)),
        clean=called(4),
        flags=PRINTS_ALL,
        path="messages[2].tool_calls[0].id",
    ),
    Twin(
        "AC208",
        "parallel calls",
        failing=from_request(parallel(), 2, new_ids("again_")),
        clean=parallel(),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC208",
        "another branch calls under another id",
        failing=each_request_its_own(parallel()),
        clean=retried(),
        flags=PRINTS_ALL,
    ),
]
