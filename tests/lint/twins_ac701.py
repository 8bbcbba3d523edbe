from lint_twins import Twin

CHATML = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

DATED = """\
<|im_start|>system
Today is {{ strftime_now("%d %B %Y") }}.<|im_end|>
"""
FROM_OUTSIDE = """\
{%- if date_string is defined %}<|im_start|>system
Today is {{ date_string }}.<|im_end|>
{% endif %}"""
MACRO = """\
{%- macro header() %}<|im_start|>system
It is {{ strftime_now("%H:%M") }}.<|im_end|>
{% endmacro %}
{{- header() }}"""
DEFAULT_DATE = """\
{%- if date_string is not defined %}{% set date_string = strftime_now("%Y-%m-%d") %}{% endif %}<|im_start|>system
Today is {{ date_string }}.<|im_end|>
"""
AT_THE_END = """\
{%- if show_time is defined %}<|im_start|>system
It is {{ strftime_now("%H:%M:%S") }}.<|im_end|>
{% endif %}"""

TWINS = [
    Twin("AC701", "a date before everything", failing={"chat.jinja": DATED + CHATML}, clean={"chat.jinja": CHATML}),
    Twin(
        "AC701",
        "a date that can be set",
        failing={"chat.jinja": DEFAULT_DATE + CHATML},
        clean={"chat.jinja": FROM_OUTSIDE + CHATML},
    ),
    Twin(
        "AC701",
        "a time in a macro",
        failing={"chat.jinja": MACRO + CHATML},
        clean={"chat.jinja": MACRO.partition("{{- header")[0] + CHATML},
    ),
    Twin(
        "AC701",
        "a time that nobody asked for",
        failing={"chat.jinja": DATED.replace("%d %B %Y", "%c") + CHATML},
        clean={"chat.jinja": AT_THE_END + CHATML},
    ),
]
