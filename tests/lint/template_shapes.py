"""Small chat templates, each with one habit that real ones have."""

from __future__ import annotations

HEAD = """\
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}"""

CALLS = """\
{%- for call in message.tool_calls or [] %}
<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>
{%- endfor %}<|im_end|>
"""

OPENING = """\
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

LAST_USER = """\
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{% if message.role == "user" %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
"""

PLAIN = (
    HEAD
    + """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}"""
    + CALLS
    + "{%- endfor %}"
    + OPENING
)
"""Knows nothing of reasoning, and keeps everything."""


def thinking(condition: str = "true", opening: str = "<think>\n", *, options: str = "") -> str:
    """A template that writes the reasoning of replies where ``condition`` holds, and begins replies with ``opening``."""
    return (
        LAST_USER
        + HEAD
        + """\
{%- for message in messages %}{{ "<|im_start|>" + message.role + "\\n" }}
"""
        + f"""\
{{%- if message.role == "assistant" and message.reasoning_content and ({condition}) %}}
{{{{- "<think>\\n" }}}}
{{{{- message.reasoning_content }}}}
{{{{- "\\n</think>\\n" }}}}
{{%- endif %}}
{{{{- message.content }}}}"""
        + CALLS
        + "{%- endfor %}"
        + f"""\
{{%- if add_generation_prompt %}}<|im_start|>assistant
{options}{opening}{{% endif %}}"""
    )


SHAPES = {
    "plain": PLAIN,
    "keeps reasoning": thinking(),
    "reasoning of the last question": thinking("loop.index0 > ns.last"),
    "an option keeps it": thinking("keep_reasoning or loop.index0 > ns.last"),
    "closes thinking": thinking(
        opening="", options="{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    ),
}
