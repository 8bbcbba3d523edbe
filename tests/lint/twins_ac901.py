"""AC901: suppressions that suppress nothing."""

from __future__ import annotations

from lint_twins import Twin
from lint_workloads import INSTRUCTIONS, STAMPS, chat

_SEND = """
def ask(client, question):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    return client.chat.completions.create(model="m", messages=messages)
"""
_MENDED = f'SYSTEM = "{INSTRUCTIONS}"  # agentcache: ignore[AC101] the date is wanted\n{_SEND}'
_NEEDED = f'import datetime\n\nSYSTEM = "{INSTRUCTIONS}"\n' + _SEND.replace(
    '"content": SYSTEM}', '"content": f"{datetime.datetime.now()} {SYSTEM}"}'
)
_PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def _asking(system, ignored):
    return [{**body, "agentcache_lint": {"ignore": ignored}} for body in chat(system)]


TWINS = [
    Twin(
        "AC901",
        "a comment behind a line that was mended",
        {"agent.py": _MENDED},
        {"agent.py": _MENDED.replace("  # agentcache: ignore[AC101] the date is wanted", "")},
    ),
    Twin(
        "AC901",
        "a comment above the wrong line",
        {"agent.py": "# agentcache: ignore-file[AC204] blanks are as the customer wants them\n" + _SEND.lstrip()},
        {
            "agent.py": _NEEDED.replace(
                "    messages = [", "    # agentcache: ignore[AC101] this agent runs once a day\n    messages = ["
            )
        },
    ),
    Twin(
        "AC901",
        "a comment of a template",
        {"chat.jinja": "{# agentcache: ignore[AC701] the server has no clock #}\n" + _PLAIN},
        {"chat.jinja": "{# agentcache: the server has no clock #}\n" + _PLAIN},
    ),
    Twin(
        "AC901",
        "records without what they are to be spared",
        _asking(lambda turn: INSTRUCTIONS, {"AC101": "recorded with a clock on purpose"}),
        _asking(
            lambda turn: f"It is {STAMPS['second'][turn]}. {INSTRUCTIONS}",
            {"AC101": "recorded with a clock on purpose"},
        ),
        path="agentcache_lint.ignore",
    ),
    Twin(
        "AC901",
        "a rule that did not run is not judged",
        {"agent.py": _MENDED.replace("AC101", "AC204")},
        {"agent.py": _MENDED},
        flags=("--ignore", "AC101"),
    ),
]
