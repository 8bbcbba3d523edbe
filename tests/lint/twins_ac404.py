from lint_twins import Twin
from twin_parts import TASKS, assistant, called, from_request, growing, sent, steps, user

NOTE = "Reminder: files that are generated are never edited by hand."


def note_at(place, role="user"):
    return lambda request: request["messages"].insert(place, {"role": role, "content": NOTE})


def reminder_moves(requests):
    """It stands before the newest message of every request, and only there."""
    return [from_request([request], 0, lambda r: note_at(len(r["messages"]) - 1)(r))[0] for request in requests]


TWINS = [
    Twin(
        "AC404",
        "behind the system text",
        failing=from_request(growing(), 2, note_at(1, "system")),
        clean=from_request(growing(), 0, note_at(1, "system")),
        path="messages[1]",
    ),
    Twin(
        "AC404",
        "for one request",
        failing=[*growing(4)[:2], *from_request(growing(4)[2:3], 0, note_at(3)), *growing(4)[3:]],
        clean=growing(),
    ),
    Twin(
        "AC404",
        "in front of calls",
        failing=from_request(called(), 2, note_at(2)),
        clean=[*called(), *from_request(called()[-1:], 0, lambda r: r["messages"].append(user(NOTE)))],
    ),
    Twin(
        "AC404",
        "a reminder goes along with the newest message",
        failing=reminder_moves(growing()),
        clean=sent(*steps(3), user(NOTE), assistant("I know."), user(TASKS[3])),
    ),
]
