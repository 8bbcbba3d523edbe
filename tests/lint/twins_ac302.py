from lint_twins import Twin
from twin_parts import PRINTS_ALL, TOOLS, called, from_request, growing, only_request, sent, system, tool, user

TABS = ("mail, calendar", "mail, calendar, the build's log", "the build's log")


def new_words(request):
    request["tools"][0]["function"]["description"] = "Gives the text between two lines of it, both included."


def new_parameter(request):
    request["tools"][1]["function"]["parameters"]["properties"]["deep"] = {"type": "boolean"}


def no_parameter(request):
    del request["tools"][1]["function"]["parameters"]["properties"]["limit"]


def allowed(request, values):
    request["tools"][2]["function"]["parameters"]["properties"]["path"]["enum"] = values


def with_tabs(tabs):
    requests = growing(len(tabs), tools=[*TOOLS, tool("open_tab")])
    for request, open_now in zip(requests, tabs):
        request["tools"] = [
            *TOOLS,
            tool("open_tab", f"Opens a tab of the browser. Open now: {open_now}. Says what it shows."),
        ]
    return requests


TWINS = [
    Twin(
        "AC302",
        "the description follows the state",
        failing=with_tabs(TABS),
        clean=with_tabs(TABS[:1] * 3),
        path="tools[3].function.description",
    ),
    Twin(
        "AC302",
        "a description in other words",
        failing=from_request(called(), 2, new_words),
        clean=called(),
        flags=PRINTS_ALL,
        path="tools[0].function.description",
    ),
    Twin(
        "AC302",
        "a parameter more",
        failing=only_request(called(), 2, new_parameter),
        clean=called(),
        flags=PRINTS_ALL,
        path="tools[1].function.parameters.properties.deep",
    ),
    Twin(
        "AC302",
        "a parameter less",
        failing=only_request(growing(tools=TOOLS), 2, no_parameter),
        clean=growing(tools=TOOLS),
    ),
    Twin(
        "AC302",
        "values that are allowed now",
        failing=from_request(
            from_request(called(), 0, lambda r: allowed(r, ["a.py"])), 2, lambda r: allowed(r, ["a.py", "b.py"])
        ),
        clean=from_request(called(), 0, lambda r: allowed(r, ["a.py"])),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC302",
        "agents that share a name of a tool",
        failing=from_request(growing(tools=TOOLS), 1, new_words),
        clean=[
            *sent(system("You plan work."), user("Plan it."), tools=[tool("search", "Finds files.")]),
            *sent(system("You answer mail."), user("Answer it."), tools=[tool("search", "Finds letters by sender.")]),
        ],
        flags=PRINTS_ALL,
    ),
]
