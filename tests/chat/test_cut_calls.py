"""Calls that were cut inside their arguments, sent back to templates that go through arguments one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tiny_tokenizer import write_tokenizer

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer

ONE_BY_ONE = "{% for key, value in call.function.arguments.items() %}<{{ key }}>{{ value }}{% endfor %}"
AS_THEY_ARE = "{{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}"
WRITTEN_ANEW = "{{ call.function.arguments | tojson }}"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), ["look at it"], 300))


def text(tokenizer: Tokenizer, arguments: Any, written: str) -> str:
    template = (
        "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
        "{% for message in messages %}{{ message.content or '' }}"
        "{% for call in message.tool_calls %}[{{ call.function.name }}" + written + "]{% endfor %}{% endfor %}"
    )
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "look", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "done"},
    ]
    return ChatRenderer(tokenizer, template).render(messages).text


@pytest.mark.parametrize("cut", ['{"path": "a', "{", "[1]", '"text"', "no JSON"])
def test_arguments_that_are_no_object_become_one_where_the_template_goes_through_them(
    tokenizer: Tokenizer, cut: str
) -> None:
    assert f"[look<arguments>{cut}]" in text(tokenizer, cut, ONE_BY_ONE)
    assert f"[look{cut}]" in text(tokenizer, cut, AS_THEY_ARE)
    assert f"[look{json.dumps(cut)}]" in text(tokenizer, cut, WRITTEN_ANEW)


@pytest.mark.parametrize("arguments", ['{"path": "a"}', {"path": "a"}])
def test_whole_arguments_are_what_they_were(tokenizer: Tokenizer, arguments: Any) -> None:
    assert "[look<path>a]" in text(tokenizer, arguments, ONE_BY_ONE)
    assert '[look{"path": "a"}]' in text(tokenizer, arguments, WRITTEN_ANEW)


@pytest.mark.parametrize("nothing", ["", " ", "{}", None])
def test_no_arguments_are_an_empty_object(tokenizer: Tokenizer, nothing: str | None) -> None:
    assert "[look]" in text(tokenizer, nothing, ONE_BY_ONE)
