from lint_twins import Twin
from twin_parts import PRINTS_ALL, called, growing, sent, system, user


def with_options(requests, *options):
    return [{**body, "chat_template_kwargs": given} if given else dict(body) for body, given in zip(requests, options)]


HIGH, LOW = {"reasoning_effort": "high"}, {"reasoning_effort": "low"}

TWINS = [
    Twin(
        "AC604",
        "a level of reasoning for one turn",
        failing=with_options(growing(), HIGH, HIGH, LOW, HIGH),
        clean=with_options(growing(), HIGH, HIGH, HIGH, HIGH),
        flags=PRINTS_ALL,
        path="chat_template_kwargs.reasoning_effort",
    ),
    Twin(
        "AC604",
        "given from the second turn on",
        failing=with_options(called(), None, HIGH, HIGH, HIGH),
        clean=with_options(called(), HIGH, HIGH, HIGH, HIGH),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC604",
        "an option that only opens the reply",
        failing=with_options(growing(3), HIGH, HIGH, LOW),
        clean=with_options(growing(), {"unknown": 1}, {"unknown": 2}, {"unknown": 3}, {"closed_thinking": True}),
        flags=PRINTS_ALL,
    ),
    Twin(
        "AC604",
        "another conversation thinks less",
        failing=with_options(growing(3), LOW, HIGH, HIGH),
        clean=[
            *with_options(growing(3), HIGH, HIGH, HIGH),
            *with_options(sent(system(), user("Name this conversation.")), LOW),
        ],
        flags=PRINTS_ALL,
    ),
]
