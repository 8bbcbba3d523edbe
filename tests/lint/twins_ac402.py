from lint_twins import Twin
from twin_parts import REPLIES, assistant, called, growing, sent, steps, system, user


def window(size, turns=5):
    """The system text and the last messages."""
    requests = growing(turns, session="s")
    for request in requests:
        head, rest = request["messages"][:1], request["messages"][1:]
        request["messages"] = head + rest[-size:]
    return requests


def window_of_exchanges():
    """Calls and their results leave together."""
    requests = called(4)
    for request in requests:
        head, rest = request["messages"][:2], request["messages"][2:]
        request["messages"] = head + rest[-4:]
    return requests


def rolling_summary():
    """Two messages are kept, and what was before them is summed up anew for every turn."""
    requests = growing(5)
    for number, request in enumerate(requests):
        head, rest = request["messages"][:1], request["messages"][1:]
        if number > 2:
            summary = user(f"Summary of the conversation: {number - 1} things were mended, the parser first of all.")
            request["messages"] = [*head, summary, *rest[-5:]]
    return requests


def marked():
    """What is left out is said to be."""
    requests = growing(5)
    for request in requests:
        head, rest = request["messages"][:1], request["messages"][1:]
        if len(rest) > 5:
            request["messages"] = [*head, user("[earlier messages omitted]"), *rest[-5:]]
    return requests


def rewound():
    """Back to the first reply, twice, with other questions."""
    said = steps(4)
    return [
        *growing(4),
        {"messages": [*said[:3], user("No, leave it. What is a lexer?")]},
        {"messages": [*said[:3], user("No, leave it. What is a lexer?"), assistant("It cuts text."), user("Thanks.")]},
    ]


def compacted():
    short = [
        system(),
        user("Summary of what was done: parser, lexer and printer are mended. Now the tests of all three."),
        assistant(REPLIES[3]),
        user("Thanks."),
    ]
    return [*growing(4), *sent(*short)]


TWINS = [
    Twin("AC402", "a window of three messages", failing=window(3), clean=growing(5), path="messages[1]"),
    Twin("AC402", "a window of five messages", failing=window(5), clean=compacted()),
    Twin("AC402", "exchanges leave together", failing=window_of_exchanges(), clean=called(4)),
    Twin("AC402", "what is gone is marked", failing=marked(), clean=rewound()),
]
