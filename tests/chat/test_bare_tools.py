"""Tools without what clients may leave out, for templates that do without and for those that do not."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_tokenizer import write_tokenizer

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer

PICKY = "{% for tool in tools or [] %}{{ tool.function.name + ': ' + tool.function.description }} {% endfor %}"
PRINTING = (
    "{% for tool in tools or [] %}{{ tool.function.name }} {{ tool.function.parameters | tojson }}"
    "{% for name in tool.function.parameters.properties %}{{ name }}{% endfor %} {% endfor %}"
)
EASY = "{% for tool in tools or [] %}{{ tool.function | tojson }} {% endfor %}"
MESSAGES = "{% for message in messages %}{{ message.content }}{% endfor %}"
FULL = {
    "name": "look",
    "description": "d",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), ["look at it"], 300))


def text(tokenizer: Tokenizer, template: str, function: dict[str, Any]) -> str:
    tools = [{"type": "function", "function": function}]
    return ChatRenderer(tokenizer, template + MESSAGES).render([{"role": "user", "content": "hi"}], tools=tools).text


@pytest.mark.parametrize("left_out", [(), ("description",), ("parameters",), ("description", "parameters")])
@pytest.mark.parametrize("null", [True, False], ids=["null", "absent"])
@pytest.mark.parametrize("template", [PICKY, PRINTING], ids=["description", "parameters"])
def test_a_template_that_needs_more_than_a_name_gets_it(
    tokenizer: Tokenizer, template: str, null: bool, left_out: tuple[str, ...]
) -> None:
    function = {key: None if key in left_out else value for key, value in FULL.items()}
    if not null:
        function = {key: value for key, value in function.items() if value is not None}
    shown = text(tokenizer, template, function)
    assert shown.startswith("look") and shown.endswith("hi") and "None" not in shown
    if not left_out:
        assert shown == text(tokenizer, template, FULL)


def test_a_template_that_needs_no_more_is_told_no_more(tokenizer: Tokenizer) -> None:
    assert text(tokenizer, EASY, {"name": "look"}) == '{"name": "look"} hi'
