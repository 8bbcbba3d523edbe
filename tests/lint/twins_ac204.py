from lint_twins import Twin
from text_twin_parts import QUESTIONS, RULES, apart, growing, tool, with_tools

LINES = "Read first.\nChange then.\nTest at last.\n" + RULES
REPLY = "The cart was emptied when the page was loaded again.\n\nIt is kept now, and there is a test for it."
TWINS = [
    Twin(
        "AC204",
        "trailing blank of the system text",
        failing=growing(lambda turn: RULES.strip() + " " * (turn % 2)),
        clean=growing(lambda turn: RULES.strip() + " "),
        path="messages[0].content",
    ),
    Twin(
        "AC204",
        "blank at the beginning",
        failing=apart([" " * (n % 2) + RULES for n in range(3)]),
        clean=apart([f" {RULES}"] * 3),
        path="messages[0].content",
    ),
    Twin(
        "AC204",
        "line ends of two editors",
        failing=apart([LINES, LINES.replace("\n", "\r\n"), LINES]),
        clean=apart([LINES] * 3),
        path="messages[0].content",
    ),
    Twin(
        "AC204",
        "tabs for blanks",
        failing=apart([LINES.replace("\n", "\n\t"), LINES.replace("\n", "\n    ")]),
        clean=apart([LINES.replace("\n", "\n\t")] * 2),
        path="messages[0].content",
    ),
    Twin(
        "AC204",
        "replies are stripped when they are stored",
        failing=growing(replied=lambda k, turn: REPLY + ("\n" if k == turn - 1 else ""), turns=4),
        clean=growing(replied=lambda k, turn: f"{REPLY}\n", turns=4),
        path="messages[2].content",
    ),
    Twin(
        "AC204",
        "messages are stripped when they are replayed",
        failing=growing(said=lambda k, turn: QUESTIONS[k] + ("\n\n" if k == turn else ""), session="a"),
        clean=growing(said=lambda k, turn: f"{QUESTIONS[k]}\n\n", session="a"),
        path="messages[1].content",
    ),
    Twin(
        "AC204",
        "messages are stripped in a conversation without a name",
        failing=growing(said=lambda k, turn: QUESTIONS[k] + ("\n\n" if k == turn else ""), turns=2),
        clean=growing(said=lambda k, turn: f"{QUESTIONS[k]}\n\n", turns=2),
        path="messages[1].content",
    ),
    Twin(
        "AC204",
        "trailing blank of a tool",
        failing=with_tools(growing(), lambda turn: [tool(description="Translates a text." + " " * (turn % 2))]),
        clean=with_tools(growing(), lambda turn: [tool(description="Translates a text. ")]),
        path="tools[0].function.description",
    ),
    Twin(
        "AC204",
        "two users who type the same",
        failing=apart([LINES, LINES.replace(". ", ".  ")], [QUESTIONS[0]] * 2),
        clean=apart([LINES, LINES], [QUESTIONS[0], f"{QUESTIONS[0]} "]),
    ),
]
