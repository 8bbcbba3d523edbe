import base64

from lint_twins import Twin
from twin_parts import TASKS, assistant, from_request, sent, system, user


def picture(number):
    return "data:image/png;base64," + base64.b64encode(f"picture {number}".encode() * 9).decode()


def chat_part(number):
    return {"type": "image_url", "image_url": {"url": picture(number), "detail": "low"}}


def link(signature):
    return {"type": "image_url", "image_url": {"url": f"https://pictures.invalid/plan.png?signature={signature}"}}


def looked_at(part, *, second=None):
    """A question about a picture, and what is asked after it."""
    said = [
        system(), user([{"type": "text", "text": "What does the plan show?"}, part]), assistant("Three rooms and a stair."),
        user(TASKS[0]), assistant("The parser is the second room."),
        user([second, {"type": "text", "text": "And this one?"}] if second else "Is there a door?"),
        assistant("Two doors."), user("Thanks."),
    ]  # fmt: skip
    return sent(*said)


def in_place(part, place=1):
    return lambda request: request["messages"][1]["content"].__setitem__(place, part)


def anthropic(number, **source):
    part = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": picture(number)[22:], **source},
    }
    return [
        {"model": "m", "max_tokens": 9, "system": "You read plans.", "messages": request["messages"][1:]}
        for request in looked_at(part)
    ]


def screenshots():
    """Each message has a picture of its own."""
    said = [system()]
    for number in range(4):
        said += [user([chat_part(number), {"type": "text", "text": "What now?"}]), assistant(f"Press button {number}.")]
    return sent(*said[:-1])


TWINS = [
    Twin(
        "AC704",
        "encoded anew from the third turn on",
        failing=from_request(looked_at(chat_part(1)), 2, in_place(chat_part(2))),
        clean=looked_at(chat_part(1)),
        path="messages[1].content[1]",
    ),
    Twin(
        "AC704",
        "an address that is signed anew",
        failing=[from_request([body], 0, in_place(link(n)))[0] for n, body in enumerate(looked_at(link(0)))],
        clean=looked_at(link(0)),
    ),
    Twin("AC704", "in a block of Anthropic's", failing=[*anthropic(1)[:2], *anthropic(2)[2:]], clean=anthropic(1)),
    Twin(
        "AC704",
        "a new picture in a new message",
        failing=from_request(looked_at(chat_part(1), second=chat_part(3)), 3, in_place(chat_part(2))),
        clean=screenshots(),
    ),
    Twin(
        "AC704",
        "another conversation has another picture",
        failing=from_request(looked_at(chat_part(1)), 3, in_place(chat_part(2))),
        clean=[*looked_at(chat_part(1)), *looked_at(chat_part(2))],
    ),
]
