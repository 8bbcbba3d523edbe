from pathlib import Path

from lint_twins import Twin
from text_twin_parts import MORE_RULES, QUESTIONS, RULES, apart, growing, tool, with_tools

TOOLS_BEHIND_SYSTEM = ("--template", str(Path(__file__).parent / "twin_templates" / "tools_behind_system.jinja"))
NONCES = ("a3f91", "b0c22", "09fee", "77d1a")
NAMES = ("Anna", "Bert", "Chloe", "Dov")


def memory(turn):
    """A block that says how full it is, with a new line each turn."""
    lines = "".join(f"- {fact}\n" for fact in ("likes tea", "has a dog", "lives in Graz", "reads at night")[: turn + 1])
    return f"MEMORY [{49 + turn}% - {1085 + 37 * turn:,}/2,200 chars]\n{lines}\n{RULES}"


TWINS = [
    Twin(
        "AC103",
        "a nonce of five digits",
        failing=apart([f"[{nonce}] {RULES}" for nonce in NONCES]),
        clean=apart([f"[{NONCES[0]}] {RULES}" for _ in NONCES]),
        path="messages[0].content",
    ),
    Twin(
        "AC103",
        "usage counter",
        failing=growing(lambda turn: f"You have used {7 + 5 * turn} of 40 tool calls. {RULES}"),
        clean=growing(lambda turn: f"You have at most 40 tool calls. {RULES}"),
        path="messages[0].content",
    ),
    Twin(
        "AC103",
        "two counters in a line are one slot",
        failing=growing(lambda turn: f"Used: {7 + 5 * turn} calls, {100 - turn}% left. {RULES}"),
        clean=growing(lambda turn: f"Used: 7 calls, 100% left. {RULES}"),
    ),
    Twin(
        "AC103",
        "money spent",
        failing=growing(lambda turn: f"Budget: ${0.0123 * turn:.4f} of $2.00 are spent. {RULES}"),
        clean=growing(lambda turn: f"Budget: $2.00. {RULES}"),
    ),
    Twin(
        "AC103",
        "memory that counts its characters",
        failing=growing(memory),
        clean=growing(lambda turn: memory(0)),
        path="messages[0].content",
    ),
    Twin(
        "AC103",
        "name of the user at the beginning",
        failing=apart([f"You help {name}. {RULES}" for name in NAMES]),
        clean=apart([f"{RULES}You help {name}." for name in NAMES]),
        path="messages[0].content",
    ),
    Twin(
        "AC103",
        "mode of a conversation",
        failing=growing(lambda turn: f"{RULES}Mode: {('plan', 'act', 'plan')[turn]}. {MORE_RULES}"),
        clean=growing(lambda turn: f"{RULES}Modes: plan, act. {MORE_RULES}"),
        path="messages[0].content",
    ),
    Twin(
        "AC103",
        "nonce in a tool",
        failing=with_tools(growing(), lambda turn: [tool(description=f"Translates a text ({NONCES[turn]}).")]),
        clean=with_tools(growing(), lambda turn: [tool(description=f"Translates a text ({NONCES[0]}).")]),
        path="tools[0].function.description",
    ),
    Twin(
        "AC103",
        "a name at the end of the system text, and tools behind it",
        failing=with_tools(
            apart([f"You help {name}." for name in NAMES]),
            lambda i: [tool("translate", RULES), tool("sum", MORE_RULES)],
        ),
        clean=with_tools(
            apart(["You help whoever asks." for _ in NAMES]),
            lambda i: [tool("translate", RULES), tool("sum", MORE_RULES)],
        ),
        flags=TOOLS_BEHIND_SYSTEM,
    ),
    Twin(
        "AC103",
        "counter of the newest message alone",
        failing=growing(
            said=lambda k, turn: QUESTIONS[k] + (f"\n[tokens left: {9000 - 700 * k}]" if k == turn else ""), session="a"
        ),
        clean=growing(said=lambda k, turn: f"{QUESTIONS[k]}\n[tokens left: {9000 - 700 * k}]", session="a"),
        path="messages[1].content",
    ),
    Twin(
        "AC103",
        "a version that was bumped between two deployments",
        failing=growing(lambda turn: f"Call {turn + 1} of agent v1.4.2. {RULES}"),
        clean=apart([f"Agent v1.4.{2 + n // 2}. {RULES}" for n in range(4)]),
    ),
    Twin(
        "AC103",
        "two agents that share a preamble",
        failing=apart([f"You work for Acme as agent no. {n}. {RULES}" for n in range(1, 4)]),
        clean=apart(
            [
                f"You work for Acme. {RULES}Plan the work of others, and never write code yourself. Ask what is not clear.",
                f"You work for Acme. {RULES}Write what was planned, one small step after another, with a test for each.",
            ]
        ),
    ),
    Twin(
        "AC103",
        "a sentence that was edited between two deployments",
        failing=apart([f"Region: {region}. {RULES}" for region in ("EU-1", "EU-2", "US-1")]),
        clean=apart([f"{RULES}{extra}{MORE_RULES}" for extra in ("", "Never use tabs. ", "Never use tabs. ")]),
    ),
    Twin(
        "AC103",
        "words behind a label",
        failing=apart([f'{{"lang": "{lang}", "rules": "{RULES}"}}' for lang in ("de", "fr", "it")]),
        clean=apart([f'{{"rules": "{RULES}", "lang": "{lang}"}}' for lang in ("de", "fr", "it")]),
    ),
    Twin(
        "AC103",
        "a word that was edited between two deployments",
        failing=apart([f"Shop: {name}. {RULES}" for name in ("Graz", "Linz")]),
        clean=apart([f"{RULES}{word} use tabs. {MORE_RULES}" for word in ("Never", "Always", "Rarely")]),
    ),
    Twin(
        "AC103",
        "the same question of two users",
        failing=apart([f"You help {name}. {RULES}" for name in NAMES], [QUESTIONS[0]] * 4),
        clean=apart([f"{RULES}You help {name}." for name in NAMES], [QUESTIONS[0]] * 4),
    ),
]
