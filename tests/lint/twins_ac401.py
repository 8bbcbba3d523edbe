from lint_twins import Twin
from twin_parts import (
    PRINTS_ALL,
    REPLIES,
    TASKS,
    assistant,
    called,
    from_request,
    growing,
    only_request,
    sent,
    system,
    user,
)

REMINDER = "\n\nOpen files: parser.py, lexer.py. Be brief."


def edit(index, content):
    def change(request):
        request["messages"][index]["content"] = content

    return change


def marked(turns=4):
    """A remark in front of the newest message alone, and gone when it is replayed."""
    requests = growing(turns)
    for request in from_request(requests, 0, lambda request: None):
        yield from from_request(
            [request], 0, lambda r: r["messages"][-1].update(content="(in a hurry) " + r["messages"][-1]["content"])
        )


def shortened(request):
    """Results are cut down two turns later."""
    for message in request["messages"][:-3]:
        if message["role"] == "tool":
            message["content"] = "[cleared]"


def long_results():
    requests = called(4)
    return from_request(
        requests,
        0,
        lambda r: [
            m.update(content="def parse(text): return text.split()\n" * 20)
            for m in r["messages"]
            if m["role"] == "tool"
        ],
    )


def forked(question):
    """The first question is asked anew, in other words, and goes another way."""
    return [
        *growing(3),
        *sent(system(), user(question), assistant("It is in order now, as you asked."), user("Thank you.")),
    ]


def same_prelude(*documents):
    """Each conversation hands over a document, has it acknowledged, and asks the same."""
    chats = [
        sent(
            system(), user(f"Here is the document: {text}"),
            assistant("I have read the document. What would you like to know about it?"), user("Sum it up."),
            assistant(f"It says: {text}"), user("And in one word?"),
        )
        for text in documents
    ]  # fmt: skip
    return [body for bodies in zip(*chats) for body in bodies]


TWINS = [
    Twin(
        "AC401",
        "the first question, in a later turn",
        failing=from_request(growing(), 2, edit(1, "Fix the parser, and be quick about it.")),
        clean=growing(),
        path="messages[1].content",
    ),
    Twin(
        "AC401",
        "a reply is cleaned up",
        failing=from_request(growing(), 2, edit(2, REPLIES[0].replace("It splits", "It now splits"))),
        clean=growing(),
        path="messages[2].content",
    ),
    Twin(
        "AC401",
        "a remark that is gone when it is replayed",
        failing=list(marked()),
        clean=from_request(
            growing(),
            0,
            lambda r: [m.update(content="(in a hurry) " + m["content"]) for m in r["messages"] if m["role"] == "user"],
        ),
    ),
    Twin(
        "AC401",
        "results are cut down later",
        failing=from_request(long_results(), 0, shortened),
        clean=long_results(),
        flags=PRINTS_ALL,
        path="messages[3].content",
    ),
    Twin(
        "AC401",
        "the first question is asked anew",
        failing=from_request(growing(), 3, edit(3, TASKS[1] + " Quickly.")),
        clean=forked("Fix the parser, and its tests."),
    ),
    Twin(
        "AC401",
        "documents with the same words around them",
        failing=only_request(growing(), 3, edit(1, "Fix the parser, please.")),
        clean=same_prelude(
            "Pages hold tokens, and trees hold pages.", "Leases end. Pins lapse, and nothing waits for them."
        ),
    ),
]
