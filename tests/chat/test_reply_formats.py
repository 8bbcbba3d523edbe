"""Which format a chat template writes, down to its white space."""

from __future__ import annotations

import pytest

from agentcache.chat.replies.formats import (
    HermesFormat,
    JsonFormat,
    LlamaFormat,
    MistralFormat,
    ToolFormat,
    choose_format,
)
from agentcache.chat.tool_text import with_calls


def template(calls: str) -> str:
    """Jinja that writes messages with their calls, and the tools."""
    return (
        "{{ tools | tojson }}\n{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.tool_calls %}"
        + calls
        + "{% endif %}\n{% endfor %}"
    )


def each(call: str) -> str:
    return "{% for call in m.tool_calls %}" + call + "{% endfor %}"


BODY = '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
LLAMA_BODY = BODY.replace('arguments":', 'parameters":')
NAMED = "[TOOL_CALLS]{{ call.function.name }}%s[ARGS]{{ call.function.arguments | tojson }}"
BREAK = '{{ "\\n" }}'
NINE = "{% if call.id | length != 9 %}{{ raise_exception('an id of nine letters') }}{% endif %}"
TEXT_ARGUMENTS = "{% if call.function.arguments is not string %}{{ raise_exception('text') }}{% endif %}"

TEMPLATES: dict[str, tuple[str, ToolFormat]] = {
    "hermes": (template(each(BREAK + "<tool_call>\n" + BODY + "\n</tool_call>")), HermesFormat("\n", "\n", "\n")),
    "hermes without line breaks": (template(each("<tool_call>" + BODY + "</tool_call>")), HermesFormat("", "", "")),
    "hermes, arguments as text": (
        template(each(TEXT_ARGUMENTS + BREAK + "<tool_call>\n" + BODY.replace(" | tojson", "") + "\n</tool_call>")),
        HermesFormat("\n", "\n", "\n"),
    ),
    "a list between markers of its own": (
        template("<TOOLCALL>[" + each(BODY + "{% if not loop.last %}, {% endif %}") + "]</TOOLCALL>"),
        HermesFormat("", "", "\n", ("<TOOLCALL>", "</TOOLCALL>"), listed=True),
    ),
    "llama, one call": (
        template("{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}" + each(LLAMA_BODY)),
        LlamaFormat(None),
    ),
    "llama": (template(each("{% if not loop.first %}; {% endif %}" + LLAMA_BODY)), LlamaFormat("; ")),
    "mistral, a list": (
        template("[TOOL_CALLS] [" + each(BODY + "{% if not loop.last %}, {% endif %}") + "]"),
        MistralFormat(gap=" "),
    ),
    "mistral, by name": (template(each(NAMED % "")), MistralFormat(by_name=True)),
    "mistral, with ids": (
        template(each(NINE + NAMED % "[CALL_ID]{{ call.id }}")),
        MistralFormat(by_name=True, with_id=True),
    ),
    "another format": (
        template(each("<tool_call><function={{ call.function.name }}></function></tool_call>")),
        JsonFormat(),
    ),
    "knows no tools": ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", HermesFormat()),
    "refuses everything": ("{{ raise_exception('no') }}", HermesFormat()),
    "is no template": ("{% for", HermesFormat()),
    "does not exist": ("", HermesFormat()),
}


@pytest.mark.parametrize("name", list(TEMPLATES))
def test_the_format_is_what_the_template_writes(name: str) -> None:
    source, expected = TEMPLATES[name]
    assert choose_format(source) == expected


def test_a_format_can_be_named_whatever_the_template_writes() -> None:
    source, _ = TEMPLATES["hermes"]
    assert choose_format(source, "llama") == LlamaFormat()
    assert choose_format(source, "mistral") == MistralFormat()
    assert choose_format(source, "json") == JsonFormat()
    assert choose_format(None, "hermes") == HermesFormat()


def test_the_text_for_models_without_tools_is_written_as_their_format_reads_it() -> None:
    format = choose_format("")
    calls = [{"function": {"name": name, "arguments": {"a": 1}}} for name in ("look", "wait")]
    found = format.parser([]).push(with_calls("So:", calls))
    assert [getattr(piece, "name", None) for piece in found if hasattr(piece, "name")] == ["look", "wait"]


@pytest.mark.parametrize("name", ["hermes", "llama", "json"])
def test_ids_are_long_and_differ(name: str) -> None:
    format = choose_format("", name)
    ids = {format.make_id(seed, index) for seed in ("a", "b", "a1") for index in range(20)}
    assert len(ids) == 60
    assert all(call_id.startswith("call_") and len(call_id) == 29 for call_id in ids)


def test_ids_for_mistral_have_nine_letters_and_digits() -> None:
    format = choose_format("", "mistral")
    ids = {format.make_id(seed, index) for seed in ("a", "b", "a1") for index in range(20)}
    assert len(ids) == 60
    assert all(len(call_id) == 9 and call_id.isalnum() and call_id.isascii() for call_id in ids)
