from lint_twins import Twin
from text_twin_parts import RULES, apart, growing, tool, with_tools

LANGUAGES = ["English", "German", "French", "Dutch", "Czech"]
FILES = ["src/cart.py", "src/names.py", "src/orders.py", "tests/test_cart.py"]


def turned(items, by):
    return [*items[by:], *items[:by]]


def schema(**fields):
    return {"properties": {"to": {"type": "string", **fields}, "text": {"type": "string"}}}


TWINS = [
    *(
        Twin(
            "AC203",
            f"{name} in the system text",
            failing=growing(lambda turn, write=write, items=items: f"{write(turned(items, turn))}\n{RULES}"),
            clean=growing(lambda turn, write=write, items=items: f"{write(sorted(turned(items, turn)))}\n{RULES}"),
            path="messages[0].content",
        )
        for name, write, items in (
            ("comma list", lambda items: f"Languages: {', '.join(items)}.", LANGUAGES),
            ("list in a sentence", lambda items: f"You speak {', '.join(items)}, and nothing else.", LANGUAGES),
            ("printed set", lambda items: f"Allowed: {{{', '.join(map(repr, items))}}}", LANGUAGES),
            ("lines", lambda items: "Files:\n" + "\n".join(f"- {item}" for item in items), FILES),
            ("numbered lines", lambda items: "\n".join(f"{n}. {item}" for n, item in enumerate(items, 1)), FILES),
        )
    ),
    Twin(
        "AC203",
        "from process to process",
        failing=apart([f"Tags: {', '.join(turned(LANGUAGES, n))}\n{RULES}" for n in range(4)]),
        clean=apart([f"{RULES}\nTags: {', '.join(turned(LANGUAGES, n))}" for n in range(4)]),
        path="messages[0].content",
    ),
    Twin(
        "AC203",
        "allowed values of a schema",
        failing=with_tools(growing(), lambda turn: [tool(**schema(enum=turned(LANGUAGES, turn)))]),
        clean=with_tools(growing(), lambda turn: [tool(**schema(enum=LANGUAGES))]),
        path="tools[0].function.parameters.properties.to.enum",
    ),
    Twin(
        "AC203",
        "required fields of a schema",
        failing=with_tools(growing(), lambda turn: [tool(required=turned(["to", "text"], turn % 2))]),
        clean=with_tools(growing(), lambda turn: [tool(required=["to", "text"])]),
        path="tools[0].function.parameters.required",
    ),
    Twin(
        "AC203",
        "several lists of a schema at once",
        failing=with_tools(
            growing(),
            lambda turn: [tool(required=turned(["to", "text"], turn % 2), **schema(enum=turned(LANGUAGES, turn)))],
        ),
        clean=with_tools(growing(), lambda turn: [tool(required=["to", "text"], **schema(enum=LANGUAGES))]),
    ),
    Twin(
        "AC203",
        "list in a tool's description",
        failing=with_tools(
            growing(), lambda turn: [tool(description=f'Says "no" to all but: {", ".join(turned(LANGUAGES, turn))}.')]
        ),
        clean=with_tools(growing(), lambda turn: [tool(description=f'Says "no" to all but: {", ".join(LANGUAGES)}.')]),
        path="tools[0].function.description",
    ),
    Twin(
        "AC203",
        "few-shot examples that are chosen anew in the newest message",
        failing=apart([f"Examples: {'; '.join(turned(FILES, n))}.\n{RULES}" for n in range(3)]),
        clean=apart([RULES] * 3, [f"Examples: {'; '.join(turned(FILES, n))}.\nGo on." for n in range(3)]),
    ),
]
