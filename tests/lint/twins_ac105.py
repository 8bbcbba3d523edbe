from lint_twins import Twin
from text_twin_parts import MORE_RULES, QUESTIONS, RULES, apart, growing, system, user

TASKS = (
    "Find out why the cart is empty after a reload, and say which commit did it.",
    "Write the pages about names: how long they may be, and which letters they may have.",
    "Read all tests of the parser, and list what none of them covers.",
)
PROFILES = (
    "Name: Anna Moser\nPlan: gold since 2019\nLanguage: German\nNotes: she asks for short answers, and likes examples.",
    "Name: Bert Oduya\nPlan: free\nLanguage: English\nNotes: new to the shop; he wants each step to be explained at length.",
    "Name: Chloe Martin\nPlan: silver since 2023\nLanguage: French\nNotes: calls from a phone, so no tables and no long lines.",
)
CHILD = RULES + MORE_RULES


def children(text):
    """First messages of sub-agents that have one system text."""
    return [{"messages": [system("You are a sub-agent."), user(text.format(task))]} for task in TASKS]


TWINS = [
    Twin(
        "AC105",
        "task first in the prompt of each child",
        failing=apart([f"Your task: {task}\n\n{CHILD}" for task in TASKS], ["Begin."] * 3),
        clean=apart([f"{CHILD}\n\nYour task: {task}" for task in TASKS], ["Begin."] * 3),
        path="messages[0].content",
    ),
    Twin(
        "AC105",
        "task first in the first message of each child",
        failing=children("Task: {}\n\n" + CHILD),
        clean=children(CHILD + "\n\nTask: {}"),
        path="messages[1].content",
    ),
    Twin(
        "AC105",
        "profile of the user before the instructions",
        failing=apart([f"## User\n{profile}\n\n## Instructions\n{CHILD}" for profile in PROFILES]),
        clean=apart([f"## Instructions\n{CHILD}\n\n## User\n{profile}" for profile in PROFILES]),
        path="messages[0].content",
    ),
    Twin(
        "AC105",
        "profile in the middle, under its heading",
        failing=apart([f"{CHILD}\n## User profile\n{profile}\n\n{CHILD}" for profile in PROFILES]),
        clean=apart([f"{CHILD}\n## User profile\nSee the first message.\n\n{CHILD}"] * 3, PROFILES),
        path="messages[0].content",
    ),
    Twin(
        "AC105",
        "conversations of two users in turns",
        failing=[
            body
            for pair in zip(
                growing(lambda turn: f"{PROFILES[0]}\n\n{CHILD}", session="anna"),
                growing(
                    lambda turn: f"{PROFILES[1]}\n\n{CHILD}", session="bert", said=lambda k, turn: QUESTIONS[-1 - k]
                ),
            )
            for body in pair
        ],
        clean=[
            body
            for pair in zip(
                growing(lambda turn: f"{CHILD}\n\n{PROFILES[0]}", session="anna"),
                growing(
                    lambda turn: f"{CHILD}\n\n{PROFILES[1]}", session="bert", said=lambda k, turn: QUESTIONS[-1 - k]
                ),
            )
            for body in pair
        ],
        path="messages[0].content",
    ),
    Twin(
        "AC105",
        "two agents that share their last sentence",
        failing=apart([f"Goal: {task}\n{CHILD}" for task in TASKS]),
        clean=apart(
            [
                f"You plan. {TASKS[0]} {PROFILES[0]} Answer in whole sentences.",
                f"You write code. {TASKS[1]} {PROFILES[1]} Answer in whole sentences.",
            ]
        ),
    ),
    Twin(
        "AC105",
        "questions about one thing",
        failing=children("{}\n\n" + CHILD),
        clean=[{"messages": [system(CHILD), user(f"{task} Answer in one sentence, please.")]} for task in TASKS],
    ),
    Twin(
        "AC105",
        "a placeholder in a prompt file",
        failing={"agent.prompt": f"Your task: {{task}}\n\n{CHILD}"},
        clean={"agent.prompt": f"{CHILD}\n\nYour task: {{task}}"},
    ),
]
