import copy

from lint_twins import Twin
from twin_parts import PRINTS_ALL, TOOLS, called, from_request, growing, only_request, sent, system, user

WITH_NUMBERS = copy.deepcopy(TOOLS)
WITH_NUMBERS[1]["function"]["parameters"]["properties"]["limit"] = {"type": "number", "minimum": 1, "maximum": 100}


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return value


def sort_keys(request):
    request["tools"] = [reversed_keys(tool) for tool in request["tools"]]


def sort_one(request):
    function = request["tools"][2]["function"]
    function["parameters"] = reversed_keys(function["parameters"])


def as_float(request):
    request["tools"][1]["function"]["parameters"]["properties"]["limit"]["minimum"] = 1.0


def no_limit(request):
    request["tools"][1]["function"]["parameters"]["properties"]["limit"].pop("minimum")


TWINS = [
    Twin(
        "AC201",
        "keys of every schema",
        failing=from_request(growing(tools=TOOLS), 1, sort_keys),
        clean=growing(tools=TOOLS),
        path="tools[0]",
    ),
    Twin(
        "AC201",
        "keys inside one schema",
        failing=only_request(called(), 1, sort_one),
        clean=called(),
        flags=PRINTS_ALL,
        path="tools[2].function.parameters",
    ),
    Twin(
        "AC201",
        "one as a float",
        failing=from_request(called(tools=WITH_NUMBERS), 2, as_float),
        clean=called(tools=WITH_NUMBERS),
        flags=PRINTS_ALL,
        path="tools[1].function.parameters.properties.limit.minimum",
    ),
    Twin(
        "AC201",
        "another agent writes keys in its own order",
        failing=from_request(called(), 1, sort_keys),
        clean=[
            *sent(system("You plan work and write no code."), user("Plan it."), tools=TOOLS),
            *sent(system("You judge names."), user("Judge."), tools=[reversed_keys(tool) for tool in TOOLS]),
        ],
        flags=PRINTS_ALL,
    ),
]
