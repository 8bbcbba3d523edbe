from lint_twins import Twin


def sessions(system: str, *tasks: str) -> list[dict]:
    return [{"messages": [{"role": "system", "content": system}, {"role": "user", "content": task}]} for task in tasks]


TASKS = ("Count the words of this text: one two three.", "Why does the lexer split at blanks only?")

TWINS = [
    Twin(
        "AC502",
        "two sessions share less than a page",
        failing=sessions("Be brief.", *TASKS),
        clean=sessions("Be brief.", *TASKS[:1]),
        flags=("--select", "AC502", "--page-size", "64"),
        path="messages[0].content",
    ),
    Twin(
        "AC502",
        "the same with pages that are small enough",
        failing=sessions("Be brief.", *TASKS),
        clean=sessions("Be brief. " * 40, *TASKS),
        flags=("--select", "AC502", "--page-size", "64"),
    ),
]
