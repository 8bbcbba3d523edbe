"""Reasoning is told from the reply, in every cut."""

from __future__ import annotations

import pytest
from reply_fixtures import THINK, cuts, message, read, reader

from agentcache.chat.replies.formats import choose_format
from agentcache.chat.replies.reasoning import reasoning_tags, starts_open

BRACKETS = ("[THINK]", "[/THINK]")

# tags, whether the prompt opened them, reply, reasoning, content
CASES = [
    (THINK, False, "<think>\nso …\n</think>\n\nHello \n", "so …", "Hello \n"),
    (THINK, False, "\n <think>so</think>Hello", "so", "Hello"),
    (THINK, False, "<think>\n\n</think>\n\nHello", "", "Hello"),
    (THINK, False, "<think></think>", "", ""),
    (THINK, False, "No thoughts.", "", "No thoughts."),
    (THINK, False, " \n", "", " \n"),
    (THINK, False, "  <thin, that is text", "", "  <thin, that is text"),
    (THINK, False, "<thi", "", "<thi"),
    (THINK, False, "text <think>in the middle</think>", "", "text <think>in the middle</think>"),
    (THINK, False, "<think>a </thinker> b</think>c", "a </thinker> b", "c"),
    (THINK, False, "<think>never closed, \n cut \n", "never closed, \n cut \n", ""),
    (THINK, False, "<think>half </thi", "half </thi", ""),
    (THINK, False, "<think>a</think>b</think>c", "a", "b</think>c"),
    (THINK, True, "so …\n</think>\n\nHello", "so …", "Hello"),
    (THINK, True, "\nsays it again: <think></think>Hello", "says it again: <think>", "Hello"),
    (THINK, True, "<think>\nagain</think>Hello", "again", "Hello"),
    (THINK, True, "</think>Hello", "", "Hello"),
    (THINK, True, "cut", "cut", ""),
    (THINK, True, "<thi", "<thi", ""),
    (THINK, True, " \n", "", ""),
    (BRACKETS, False, "[THINK]so[/THINK]Hello", "so", "Hello"),
    (BRACKETS, False, "[THIN]so[/THINK]Hello", "", "[THIN]so[/THINK]Hello"),
]


@pytest.mark.parametrize(("tags", "opened", "reply", "reasoning", "content"), CASES)
@pytest.mark.parametrize("name", ["hermes", None])
def test_reasoning_comes_to_the_same_however_it_is_cut(
    name: str | None, tags: tuple[str, str], opened: bool, reply: str, reasoning: str, content: str
) -> None:
    format = None if name is None else choose_format("", "hermes")
    whole = read(reader(format, tags, starts_open=opened), [reply])
    found = message(whole)
    assert (found.reasoning, found.content) == (reasoning, content)
    for parts in cuts(reply):
        assert read(reader(format, tags, starts_open=opened), parts) == whole, parts


def test_reasoning_goes_out_as_it_comes() -> None:
    given = reader(None, THINK)
    given.push("<think>\n")
    assert message(given.push("so far")).reasoning == "so far"


def test_a_model_without_tags_keeps_what_looks_like_them() -> None:
    assert reader(None).read("<think>a</think>b").content == "<think>a</think>b"


@pytest.mark.parametrize(
    ("template", "tags"),
    [
        ("{% if content.split('</think>') %}{{ '<think>\\n' }}{% endif %}", THINK),
        ("{{ '[THINK]' + block['thinking'] + '[/THINK]' }}", BRACKETS),
        ("{{ '<think>' }}", None),
        ("{{ messages }}", None),
    ],
)
def test_tags_are_those_that_the_template_names(template: str, tags: tuple[str, str] | None) -> None:
    assert reasoning_tags(template) == tags


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|assistant|><think>\n", True),
        ("<|assistant|><think>", True),
        ("<|assistant|>\n<think>\n\n</think>\n\n", False),
        ("<|user|>what is <think>?<|assistant|>", False),
    ],
)
def test_a_prompt_that_ends_in_the_opening_tag_has_opened_it(prompt: str, opened: bool) -> None:
    assert starts_open(prompt, THINK) is opened
