from lint_twins import Twin
from twin_parts import PRINTS_ALL, TOOLS, called, from_request, growing, only_request, sent, system, tool, user

MANY = [tool(f"{verb}_{noun}") for verb in ("read", "write") for noun in ("file", "mail", "page", "plan")]


def add_tool(request):
    request["tools"] = [*request["tools"], tool("deploy", "Brings it to the servers.")]


def add_first(request):
    request["tools"] = [tool("deploy", "Brings it to the servers."), *request["tools"]]


def leave_one_out(request):
    request["tools"] = request["tools"][:1] + request["tools"][2:]


def leave_out(request):
    request.pop("tools")


def forbid(request):
    request["tool_choice"] = "none"


def one_shot(*lists):
    return [
        body
        for task, tools in zip(("Fix the parser.", "Write the docs.", "Answer the mail."), lists)
        for body in sent(system(), user(task), tools=tools)
    ]


TWINS = [
    Twin(
        "AC301",
        "a tool is added for good",
        failing=from_request(called(), 1, add_tool),
        clean=called(),
        flags=PRINTS_ALL,
        path="tools",
    ),
    Twin(
        "AC301",
        "a tool is added in front",
        failing=from_request(growing(tools=TOOLS), 2, add_first),
        clean=growing(tools=TOOLS),
    ),
    Twin(
        "AC301",
        "a tool is left out for a turn",
        failing=only_request(called(4), 2, leave_one_out),
        clean=called(4),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC301",
        "all are left out so that the model answers",
        failing=only_request(called(), 3, leave_out),
        clean=only_request(called(), 3, forbid),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC301",
        "a selection for each conversation",
        failing=one_shot(MANY[:7], MANY[1:]),
        clean=one_shot(MANY[:7], MANY),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC301",
        "planner and coder with one system text",
        failing=from_request(called(), 1, add_first),
        clean=[
            *sent(system(), user("Plan it."), tools=TOOLS[:1]),
            *sent(system(), user("Plan it."), tools=TOOLS[1:]),
            *sent(system(), user("Do it."), tools=MANY),
        ],
        flags=PRINTS_ALL,
    ),
]
