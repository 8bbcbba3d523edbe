"""Which line of a template wrote which character."""

from __future__ import annotations

import datetime

import pytest

from agentcache.lint.templates.tracing import TracedTemplate

SOURCE = """\
{%- macro shout(text) -%}
{{ text | upper }}!
{%- endmacro -%}
{%- for message in messages %}
{%- if message.role == "user" %}
<user>
{{- message.content -}}
</user>
{% elif loop.last %}
{{- "<last>\\n" }}
{{- shout(message.content) }}
{%- else %}
<other>
second line of other
{% endif %}
{%- endfor %}
{%- generation %}end{% endgeneration %}"""


@pytest.fixture
def template() -> TracedTemplate:
    return TracedTemplate(SOURCE, datetime.datetime.now)


def line_of(template: TracedTemplate, word: str, *roles: str) -> int:
    messages = [{"role": role, "content": f"said by {role}"} for role in roles]
    traced = template.trace({"messages": messages})
    assert traced.text == template.render({"messages": messages})
    return traced.line_at(traced.text.index(word))


@pytest.mark.parametrize(
    "word, line",
    [
        ("<user>", 6),
        ("said by user", 7),
        ("</user>", 8),
        ("<other>", 13),
        ("second line", 14),
        ("<last>", 10),
        ("end", 17),
    ],
)
def test_text_constants_and_expressions_have_their_own_line(template, word, line):
    assert line_of(template, word, "user", "tool", "assistant") == line


def test_what_a_macro_writes_belongs_to_its_call(template):
    assert line_of(template, "SAID BY ASSISTANT!", "user", "assistant") == 11


def test_the_place_behind_the_text_has_the_last_line(template):
    traced = template.trace({"messages": []})
    assert (traced.text, traced.line_at(len(traced.text) + 5)) == ("end", 17)


def test_a_template_that_writes_nothing_has_a_line(template):
    assert TracedTemplate("{% if messages %}x{% endif %}", datetime.datetime.now).trace({}).line_at(0) == 1


def test_the_condition_that_decides_between_two_lines_is_found(template):
    assert template.condition_of(7, 13) == 5
    assert template.condition_of(10, 14) == 9
    assert template.condition_of(13, 14) is None
    assert template.condition_of(17, 7) is None


def test_calls_are_found_wherever_they_stand():
    source = "{% set day = now('%d') if now is defined else '' %}\n{% macro m() %}\n{{ now('%H') }}{% endmacro %}{{ later() }}"
    assert TracedTemplate(source, datetime.datetime.now).lines_that_call("now") == [1, 3]
