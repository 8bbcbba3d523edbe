import json

from lint_twins import Twin
from text_twin_parts import RULES, apart, growing, system, tool, user, with_tools

CITY = {"city": "Zürich", "street": "Am Überlandweg", "note": "the second door on the left, behind the bakery"}


def written(escaped, value=CITY):
    return json.dumps(value, ensure_ascii=bool(escaped))


def called(turns, result, arguments=lambda k, turn: "{}"):
    """Requests of a conversation with a call a turn, and what came of it."""
    requests = []
    for turn in range(1, turns + 1):
        messages = [system(RULES), user("Where does she live?")]
        for k in range(turn):
            function = {"name": "find", "arguments": arguments(k, turn)}
            call = {"id": f"call_{k}", "type": "function", "function": function}
            messages += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"call_{k}", "content": result(k, turn)},
            ]
        requests.append({"messages": messages})
    return requests


TWINS = [
    Twin(
        "AC206",
        "JSON in the system text",
        failing=growing(lambda turn: f"Shop: {written(turn % 2)}\n{RULES}"),
        clean=growing(lambda turn: f"Shop: {written(True)}\n{RULES}"),
        path="messages[0].content",
    ),
    Twin(
        "AC206",
        "two services that write the same",
        failing=apart([f"{written(n == 1)}\n{RULES}" for n in range(3)]),
        clean=apart([f"{written(False)}\n{RULES}" for n in range(3)]),
        path="messages[0].content",
    ),
    Twin(
        "AC206",
        "results are escaped when they are stored",
        failing=called(3, lambda k, turn: written(k < turn - 1, {**CITY, "house": k})),
        clean=called(3, lambda k, turn: written(True, {**CITY, "house": k})),
        path="messages[3].content",
    ),
    Twin(
        "AC206",
        "slashes",
        failing=apart([f'{{"page": "{page}"}}\n{RULES}' for page in ("a/b/c", r"a\/b\/c")]),
        clean=apart([f'{{"page": "a/b/c"}}\n{RULES}'] * 2),
    ),
    Twin(
        "AC206",
        "letters outside the first plane",
        failing=apart([f"{written(n, ['🙂 is a smile', '𝒜 is a letter'])}\n{RULES}" for n in range(2)]),
        clean=apart([f"{written(1, ['🙂 is a smile', '𝒜 is a letter'])}\n{RULES}"] * 2),
    ),
    Twin(
        "AC206",
        "an example in a tool's text",
        failing=with_tools(growing(), lambda turn: [tool(description=f"Like {written(turn % 2)}. Translates.")]),
        clean=with_tools(growing(), lambda turn: [tool(description=f"Like {written(False)}. Translates.")]),
        path="tools[0].function.description",
    ),
    Twin(
        "AC206",
        "newest messages",
        failing=apart([f"{written(n)}\n{RULES}" for n in range(2)]),
        clean=apart([RULES] * 2, [written(n) for n in range(2)]),
    ),
]
