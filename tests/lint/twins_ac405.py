from lint_twins import Twin
from twin_parts import PRINTS_ALL, TOOLS, assistant, call, from_request, result, sent, system, user

THOUGHTS = (
    "The build fails since a morning, so I read the parser before the log, which is long.",
    "It splits at blanks. A tab is white space as well, so the tests with tabs must fail; I run them.",
    "As I thought. The smallest change is to split without an argument.",
)


def thinking(inline=False):
    said = [system(), user("Why does the build fail?")]
    for number, thought in enumerate(THOUGHTS, 1):
        content = f"<think>{thought}</think>Let me look." if inline else "Let me look."
        said += [assistant(content, call(number), reasoning=None if inline else thought), result(number)]
    return sent(*said, tools=TOOLS)


def strip(request):
    """Of all replies but the last."""
    for message in request["messages"][:-2]:
        message.pop("reasoning_content", None)


def strip_inline(request):
    for message in request["messages"][:-2]:
        if message["role"] == "assistant":
            message["content"] = message["content"].partition("</think>")[2] or message["content"]


def never(requests):
    return from_request(requests, 0, lambda request: [m.pop("reasoning_content", None) for m in request["messages"]])


def renamed(request):
    for message in request["messages"]:
        if "reasoning_content" in message:
            message["reasoning"] = message.pop("reasoning_content")


TWINS = [
    Twin(
        "AC405",
        "of every turn but the last",
        failing=from_request(thinking(), 2, strip),
        clean=thinking(),
        flags=PRINTS_ALL,
        path="messages[2].content",
    ),
    Twin(
        "AC405",
        "written into the text",
        failing=from_request(thinking(inline=True), 2, strip_inline),
        clean=thinking(inline=True),
        path="messages[2].content",
    ),
    Twin(
        "AC405",
        "never sent at all",
        failing=from_request(thinking(), 3, strip),
        clean=never(thinking()),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC405",
        "under another name",
        failing=from_request(
            from_request(thinking(), 0, renamed), 3, lambda r: [m.pop("reasoning", None) for m in r["messages"][:-2]]
        ),
        clean=from_request(thinking(), 2, renamed),
        flags=PRINTS_ALL,
    ),
]
