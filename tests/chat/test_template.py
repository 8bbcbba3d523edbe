from __future__ import annotations

import datetime
import json

import pytest

from agentcache.chat.template import ChatTemplate
from agentcache.errors import ChatTemplateError


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source).render(variables)


def test_what_templates_use_is_there() -> None:
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert render("  {% if true %}\n  a\n  {% endif %}\n") == "  a\n"
    assert (
        render("{% set ns = namespace(n=0) %}{% generation %}{% set ns.n = 2 %}x{% endgeneration %}{{ ns.n }}") == "x2"
    )
    assert render("{{ {'b': 'é<&>', 'a': 1} | tojson }}") == '{"b": "é<&>", "a": 1}'
    assert render("{{ x | tojson(indent=2) }}", x={"b": [1]}) == json.dumps({"b": [1]}, indent=2)


def test_the_clock_is_passed_in() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime.datetime(2024, 7, 26))
    assert template.render({}) == "26 Jul 2024"


def test_a_template_that_refuses_is_quoted() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        render("{{ raise_exception('Conversation roles must alternate') }}")
    assert str(caught.value) == "Conversation roles must alternate" and caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ missing.attribute }}",
        "{{ 'a' + 1 }}",
        "{{ 1 / 0 }}",
        "{{ messages[0]['content'] + 'x' }}",
        "{{ ''.__class__.__mro__ }}",
        "{% set _ = messages.append(1) %}",
        "{{ undefined_function() }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{{ x | tojson }}",
    ],
)
def test_a_template_that_fails_gives_a_sentence(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="the chat template cannot render these messages: ") as caught:
        render(source, messages=[{"role": "user", "content": None}])
    assert "Traceback" not in str(caught.value) and "Error" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "source",
    [
        "{{ n * 'ab' }}",
        "{{ 'ab' * n }}",
        "{{ [1] * n }}",
        "{{ 10 ** n }}",
        "{% for i in range(n) %}x{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(9999) %}xxxxxxxxxx{% endfor %}{% endfor %}",
    ],
)
def test_a_template_cannot_write_or_count_without_end(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="chat template"):
        ChatTemplate(source, max_output=10_000).render({"n": 10**9})


def test_missing_values_are_printed_as_nothing() -> None:
    assert render("[{{ x }}|{{ m.name }}|{{ none }}]", x=None, m={"name": None}) == "[||]"
    assert render("{{ {'default': x} | tojson }}", x=None) == '{"default": null}'


def test_a_source_that_is_no_template_names_the_line() -> None:
    with pytest.raises(ChatTemplateError, match="the chat template, line 2: "):
        ChatTemplate("a\n{% if %}")


def test_the_names_a_template_reads_are_known() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}developer{% endif %}")
    assert template.variables == {"messages", "tools"}
    assert template.mentions("developer") and not template.mentions("assistant")
