from pathlib import Path

from lint_twins import Twin
from twin_parts import TOOLS, assistant, call, result, sent, system, user
from twins_ac701 import CHATML

TEMPLATES = Path(__file__).parent / "twin_templates"
DROPS = ("--template", str(TEMPLATES / "drops_reasoning.jinja"))
MOVES = ("--template", str(TEMPLATES / "moves_tools.jinja"))
KEEPING = {"chat_template_kwargs": {"keep_reasoning": True}}
THOUGHT = "The build fails since a morning, so the parser comes before the log, which is long and says little."

LAST_TOOL = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}
{%- if message.role == "tool" and loop.last %} (the newest result: read it with care and act on it){% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
ALL_TOOLS = LAST_TOOL.replace(" and loop.last", "")
LATE_SYSTEM = """\
{%- set ns = namespace(system="") %}
{%- for message in messages %}
{%- if message.role == "system" %}{% set ns.system = ns.system + message.content %}{% endif %}
{%- endfor %}
{%- if ns.system %}<|im_start|>system
{{ ns.system }}<|im_end|>
{% endif %}
{%- for message in messages %}{% if message.role != "system" %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LAST_QUESTION = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""


def asked_again(*, thinking=True, **fields):
    """Two questions; the first takes two rounds of tools."""
    thought = THOUGHT if thinking else None
    return sent(
        system(), user("Why does the build fail?"),
        assistant("", call(1), reasoning=thought), result(1),
        assistant("", call(2), reasoning=thought), result(2),
        assistant("The parser keeps tabs.", reasoning=thought), user("Then mend it."),
        tools=TOOLS, **fields,
    )  # fmt: skip


def talk(**fields):
    return sent(system(), user("Fix the parser."), assistant("Which file?"), user("parser.py"), assistant("Done."), user("Ok."),
                tools=TOOLS, **fields)  # fmt: skip


def one_question(requests):
    """Those before the second question: nothing is dropped yet."""
    return requests[:-1]


TWINS = [
    Twin(
        "AC702",
        "reasoning left out when a user speaks again",
        failing=asked_again(),
        clean=asked_again(**KEEPING),
        flags=DROPS,
        path="messages[2]",
    ),
    Twin(
        "AC702",
        "no reasoning to leave out",
        failing=asked_again(),
        clean=asked_again(thinking=False),
        flags=DROPS,
        path="messages[2]",
    ),
    Twin(
        "AC702",
        "one question only",
        failing=asked_again(),
        clean=one_question(asked_again()),
        flags=DROPS,
        path="messages[2]",
    ),
    Twin(
        "AC702",
        "tools in front of the last question",
        failing=talk(),
        clean=[{**request, "tools": []} for request in talk()],
        flags=MOVES,
        path="messages[1]",
    ),
    Twin("AC702", "the last result", failing={"chat.jinja": LAST_TOOL}, clean={"chat.jinja": ALL_TOOLS}),
    Twin(
        "AC702", "late system text goes to the head", failing={"chat.jinja": LATE_SYSTEM}, clean={"chat.jinja": CHATML}
    ),
    Twin(
        "AC702",
        "the opening is not replayed",
        failing={"chat.jinja": LAST_QUESTION},
        clean={"chat.jinja": LAST_QUESTION.replace("<think>\n", "")},
    ),
]
