from lint_twins import Twin

HEAD = [
    {"role": "system", "content": "You review changes to a parser, and you answer in one short sentence."},
    {"role": "user", "content": "Here is the parser: def parse(text): return text.split()"},
    {"role": "assistant", "content": "I have read it."},
]


def branches(*questions: str) -> list[dict]:
    first = {"messages": HEAD[:2]}
    return [first, *({"messages": [*HEAD, {"role": "user", "content": question}]} for question in questions)]


QUESTIONS = ("Review its names.", "Is it fast enough for long lines?", "Which tests are missing?")

TWINS = [
    Twin(
        "AC503",
        "three branches of one conversation",
        failing=branches(*QUESTIONS),
        clean=branches(QUESTIONS[0]),
        flags=("--page-size", "16"),
    ),
]
