from lint_twins import Twin
from text_twin_parts import MORE_RULES, QUESTIONS, RULES, apart, growing

MACHINES = (("ann", "linux", "main"), ("bert", "darwin", "fix-cart"), ("chloe", "win32", "main"))


def env(name, platform, branch):
    """The block of a coding agent."""
    return (
        f"Here is where you run:\n<env>\nWorking directory: /home/{name}/shop\nIs directory a git repo: Yes\n"
        f"Platform: {platform}\nBranch: {branch}\nToday's date: 2026-11-29\n</env>\n"
    )


def facts(name, platform, branch):
    return f"You are an agent.\ncwd: /home/{name}/shop\nos: {platform}\ngit branch: {branch}\nshell: zsh\n\n{RULES}"


COMMITS = ("8f3a1c2d Keep the cart\n77aa01bc Add a test", "0a9b8c7d Allow long names\n8f3a1c2d Keep the cart")
TWINS = [
    Twin(
        "AC104",
        "env block of a coding agent",
        failing=apart([env(*machine) + RULES for machine in MACHINES]),
        clean=apart([RULES + env(*machine) for machine in MACHINES]),
        path="messages[0].content",
    ),
    Twin(
        "AC104",
        "lines without a tag",
        failing=apart([facts(*machine) for machine in MACHINES]),
        clean=apart([facts(*MACHINES[0]) for _ in MACHINES]),
        path="messages[0].content",
    ),
    Twin(
        "AC104",
        "status that changes from turn to turn",
        failing=growing(lambda turn: f"{RULES}\nGit status:\n" + " M a.py\n" * (turn + 1) + f"\n{MORE_RULES}"),
        clean=growing(lambda turn: f"{RULES}\nGit status:\n M a.py\n\n{MORE_RULES}"),
        path="messages[0].content",
    ),
    Twin(
        "AC104",
        "recent commits",
        failing=apart([f"Branch: main\nRecent commits:\n{commits}\n\n{RULES}" for commits in COMMITS]),
        clean=apart([f"Branch: main\nRecent commits:\n{COMMITS[0]}\n\n{RULES}" for _ in COMMITS]),
        path="messages[0].content",
    ),
    Twin(
        "AC104",
        "open files of an editor",
        failing=growing(
            lambda turn: (
                "<environment_details>\nOpen tabs:\n"
                + "a.py\nb.py\nc.py\n"[: 5 * turn + 5]
                + f"</environment_details>\n{RULES}"
            )
        ),
        clean=growing(
            said=lambda k, turn: f"<environment_details>\nOpen tabs:\na{k}.py\n</environment_details>\n{QUESTIONS[k]}"
        ),
        path="messages[0].content",
    ),
    Twin(
        "AC104",
        "a single request",
        failing=apart([env(*MACHINES[0]).replace("Today's date: 2026-11-29\n", "") + RULES]),
        clean=apart([RULES + env(*MACHINES[0]).replace("Today's date: 2026-11-29\n", "")]),
        path="messages[0].content",
    ),
    Twin(
        "AC104",
        "facts in the first user message",
        failing=apart([f"Platform: {machine[1]}\n{RULES}" for machine in MACHINES]),
        clean=apart([RULES] * 3, [env(*machine) + QUESTIONS[0] for machine in MACHINES]),
    ),
    Twin(
        "AC104",
        "a placeholder in a prompt file",
        failing={"agent.prompt": f"Folder: {{cwd}}\n{RULES}"},
        clean={"agent.prompt": f"{RULES}\nFolder: {{cwd}}\n"},
    ),
]
