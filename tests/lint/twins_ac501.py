from lint_twins import Twin

PADDED = "You review changes to a parser written in Python, and you answer in one short sentence. "


def sessions(system: str, *tasks: str) -> list[dict]:
    return [{"messages": [{"role": "system", "content": system}, {"role": "user", "content": task}]} for task in tasks]


TWINS = [
    Twin(
        "AC501",
        "two sessions that share a system text",
        failing=sessions(PADDED, "Is the lexer right?", "Why is it slow?"),
        clean=sessions(PADDED, "Is the lexer right?"),
        flags=("--select", "AC501", "--page-size", "8"),
        path="messages[0].content",
    ),
]
