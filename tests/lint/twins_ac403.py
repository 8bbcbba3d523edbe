from lint_twins import Twin
from twin_parts import TASKS, assistant, growing, sent, steps, system, user

DONE = "Summary of what was done: the parser, the lexer and the printer are mended, and their tests pass."


LAST = "Nothing more is to be done about the pages."


def kept(*, asked_again):
    """A summary in place of most of what was said, and the newest messages behind it."""
    said = steps(5)
    short = [system(), user(DONE), *said[-2:]]
    return [
        *growing(5),
        *([{"messages": short}] if asked_again else []),
        *sent(*short, assistant(LAST), user("Thanks."))[-1:],
    ]


def with_a_system_text():
    """The summary stands in the system text."""
    said = steps(5)
    short = [system(said[0]["content"] + DONE), *said[-2:], assistant(LAST), user("Thanks.")]
    return [*growing(5), {"messages": short}]


TWINS = [
    Twin(
        "AC403",
        "all of it",
        failing=[*growing(4), *sent(system(), user(DONE), assistant("Go on."), user(TASKS[4]))],
        clean=growing(5),
    ),
    Twin("AC403", "all but the newest messages", failing=kept(asked_again=False), clean=growing(4)),
    Twin("AC403", "the newest question is asked again", failing=kept(asked_again=True), clean=growing(4)),
    Twin("AC403", "into the system text", failing=with_a_system_text(), clean=growing(4)),
    Twin(
        "AC403",
        "a new question about a summary",
        failing=[*growing(5), *sent(system(), user(DONE + " Go on."))],
        clean=[*growing(4), *sent(system(), user("Write a summary of the parser for the manual."))],
    ),
]
