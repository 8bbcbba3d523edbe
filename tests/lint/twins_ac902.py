"""AC902: suppressions that count for nothing."""

from __future__ import annotations

from lint_twins import Twin
from lint_workloads import INSTRUCTIONS, STAMPS, chat

_CLOCK = f'''import datetime

SYSTEM = "{INSTRUCTIONS}"


def ask(client, question):
    now = "today"  # COMMENT
    messages = [{{"role": "system", "content": SYSTEM}}, {{"role": "user", "content": f"{{question}} {{now}}"}}]
    return client.chat.completions.create(model="m", messages=messages)
'''
_PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def _python(comment: str) -> dict[str, str]:
    return {"agent.py": _CLOCK.replace("# COMMENT", comment)}


def _asking(ignored):
    stamped = chat(lambda turn: f"It is {STAMPS['second'][turn]}. {INSTRUCTIONS}")
    return [{**body, "agentcache_lint": {"ignore": ignored}} for body in stamped]


TWINS = [
    Twin(
        "AC902",
        "a code that no rule has",
        _python("# agentcache: ignore[AC110] one digit off"),
        _python("# agentcache: nothing to ignore here"),
    ),
    Twin("AC902", "no code", _python("# agentcache: ignore everything"), _python("# ignore everything")),
    Twin("AC902", "no reason", _python("# agentcache: ignore[AC101]"), _python("# AC101 is no matter here")),
    Twin(
        "AC902",
        "a template's comment without a reason",
        {"chat.jinja": "{# agentcache: ignore[AC701] #}\n" + _PLAIN},
        {"chat.jinja": "{# AC701 is no matter here #}\n" + _PLAIN},
    ),
    Twin(
        "AC902",
        "a code of another tool in a record",
        _asking({"AC101": "recorded with a clock on purpose", "E501": "lines are long"}),
        _asking({"AC101": "recorded with a clock on purpose"}),
        path="agentcache_lint.ignore",
    ),
]
