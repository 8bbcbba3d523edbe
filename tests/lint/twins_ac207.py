import json

from clean_traffic import assistant, call, result, sent, system, user
from lint_twins import Twin
from twin_parts import PRINTS_ALL, TOOLS, called, from_request


def rewritten(newest=2, **options):
    """The calls of earlier turns, parsed and written anew; those of the ``newest`` messages stay."""

    def change(request):
        for message in request["messages"][: len(request["messages"]) - newest]:
            for made in message.get("tool_calls", ()):
                value = json.loads(made["function"]["arguments"])
                if options.get("sort_keys"):
                    value = dict(sorted(value.items()))
                made["function"]["arguments"] = json.dumps(value, **options)

    return change


def float_limit(request):
    for message in request["messages"][:-2]:
        for made in message.get("tool_calls", ()):
            made["function"]["arguments"] = made["function"]["arguments"].replace("10}", "10.0}")


def as_objects(request):
    for message in request["messages"]:
        for made in message.get("tool_calls", ()):
            made["function"]["arguments"] = json.loads(made["function"]["arguments"])


def escaped():
    text = '{"path": "Übersicht.md", "limit": 3}'
    return sent(
        system(), user("Read it."), assistant("", call(1, arguments=text)), result(1), assistant("It is a plan."),
        user("Again."), assistant("", call(2, arguments=text)), result(2), tools=TOOLS,
    )  # fmt: skip


def regenerated(arguments):
    """Two branches behind the same question, the second one longer."""
    head = [system(), user("Read it.")]
    first = [*head, assistant("", call(1, arguments='{"path": "a.py", "limit": 3}')), result(1)]
    second = [*head, assistant("", call(1, arguments=arguments)), result(1)]
    more = [*second, assistant("It is short."), user("Mend it.")]
    return [{"messages": messages, "tools": TOOLS} for messages in (head, first, second, more)]


def as_anthropic(*sorted_from):
    """Turns of one conversation as Anthropic's messages; the inputs of calls have sorted keys from these turns on."""
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in (each["function"] for each in TOOLS)
    ]
    requests = []
    for turns in range(1, 5):
        messages = [{"role": "user", "content": "Read it."}]
        for turn in range(turns - 1):
            value = {"path": f"src/file{turn}.py", "limit": 10}
            if any(turns >= first for first in sorted_from):
                value = dict(sorted(value.items()))
            called = {"type": "tool_use", "id": f"toolu_{turn}", "name": "read_file", "input": value}
            told = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": result(turn)["content"]}
            messages += [{"role": "assistant", "content": [called]}, {"role": "user", "content": [told]}]
        body = {"model": "m", "max_tokens": 100, "system": system()["content"], "tools": tools, "messages": messages}
        requests.append(body)
    return requests


TWINS = [
    Twin(
        "AC207",
        "keys of an input change places",
        failing=as_anthropic(3),
        clean=as_anthropic(),
        path="messages[1].content[0].input",
    ),
    Twin(
        "AC207",
        "keys of an input change places, and all is printed",
        failing=as_anthropic(4),
        clean=as_anthropic(1),
        flags=PRINTS_ALL,
        path="messages[1].content[0].input",
    ),
    Twin(
        "AC207",
        "other blanks",
        failing=from_request(called(4), 2, rewritten(separators=(",", ":"))),
        clean=called(4),
        path="messages[2].tool_calls[0].function.arguments",
    ),
    Twin(
        "AC207",
        "other order of keys",
        failing=from_request(called(4), 2, rewritten(sort_keys=True)),
        clean=called(4),
        path="messages[2].tool_calls[0].function.arguments",
    ),
    Twin(
        "AC207",
        "the template writes blanks its own way",
        failing=from_request(called(4), 2, rewritten(sort_keys=True)),
        clean=from_request(called(4), 2, rewritten(separators=(",", ":"))),
        flags=PRINTS_ALL,
    ),
    Twin("AC207", "ten as a float", failing=from_request(called(4), 2, float_limit), clean=called(4), flags=PRINTS_ALL),
    Twin("AC207", "other escapes", failing=from_request(escaped(), 2, rewritten(ensure_ascii=True)), clean=escaped()),
    Twin(
        "AC207",
        "text or object",
        failing=from_request(from_request(called(4), 0, rewritten(0, separators=(",", ":"))), 2, as_objects),
        clean=from_request(called(4), 0, as_objects),
    ),
    Twin(
        "AC207",
        "another branch writes the call otherwise",
        failing=from_request(called(3), 2, rewritten(separators=(",", ":"))),
        clean=regenerated('{"path":"a.py","limit":3}'),
    ),
]
