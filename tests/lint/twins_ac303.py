from lint_twins import Twin
from twin_parts import PRINTS_ALL, TOOLS, called, growing

FORMAT = {"type": "json_object"}


def each(requests, name, *values):
    return [{**body, name: value} if value is not None else dict(body) for body, value in zip(requests, values)]


def printed(requests, *values):
    return each(requests, "chat_template_kwargs", *({"response_format": value} if value else None for value in values))


TWINS = [
    Twin(
        "AC303",
        "printed for the last turn",
        failing=printed(growing(), None, None, None, FORMAT),
        clean=printed(growing(), FORMAT, FORMAT, FORMAT, FORMAT),
        flags=PRINTS_ALL,
        path="chat_template_kwargs.response_format",
    ),
    Twin(
        "AC303",
        "printed for a turn in the middle",
        failing=printed(called(), FORMAT, None, FORMAT, FORMAT),
        clean=each(called(), "response_format", FORMAT, None, FORMAT, FORMAT),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC303",
        "another schema is printed",
        failing=printed(
            growing(3), FORMAT, FORMAT, {"type": "json_schema", "json_schema": {"name": "step", "schema": {}}}
        ),
        clean=each(growing(3), "response_format", None, None, FORMAT),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC303",
        "a choice of tools that is not printed",
        failing=printed(growing(3, tools=TOOLS), FORMAT, None, None),
        clean=each(growing(tools=TOOLS), "tool_choice", "auto", "required", "auto", "none"),
        flags=PRINTS_ALL,
    ),
]
