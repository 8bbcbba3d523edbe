"""Padding: the static part ends with a page, whatever template and tokenizer, or nothing is done and the reason said."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from static_kitchen import KEEPING, REFUSING, TOOL, Kitchen, small_tokenizers, smollm2_tokenizer

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache_sdk import Padding
from agentcache_sdk._padding import PaddingMemory, padded

SYSTEM = "You are a careful agent. Read the file, run the tests, and say what is wrong with the parser."
USERS = ("Fix the bug.", "What does it do?", "9 tests fail, why?", "zebra", "(why) not?")
KINDS = ("byte level", "bytes alone", "sentencepiece", "tekken", "unigram", "smollm2")
MAKERS = sorted(Path(os.environ.get("AGENTCACHE_TEMPLATES", os.devnull)).glob("*.jinja"))
TEMPLATES = {**KEEPING, **{path.stem: path.read_text("utf-8") for path in MAKERS}}
"""Also those of model makers, where a folder of them is given."""
Messages = Sequence[Mapping[str, Any]]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return small_tokenizers(tmp_path_factory.mktemp("tokenizers")) | {"smollm2": smollm2_tokenizer()}


def pad(kitchen: Kitchen, system: str, tools: Messages = ()) -> Padding:
    return kitchen.drive(padded([{"role": "system", "content": system}], tools, None, PaddingMemory()))


def common(*prompts: Sequence[Any]) -> int:
    return next(
        (i for i, tokens in enumerate(zip(*prompts, strict=False)) if len(set(tokens)) > 1), min(map(len, prompts))
    )


def static(kitchen: Kitchen, head: Messages, tools: Messages) -> int:
    """By other users' texts than the SDK's own."""
    return common(*(kitchen.ids([*head, {"role": "user", "content": text}], tools or None) for text in USERS))


def check(kitchen: Kitchen, padding: Padding, system: str, tools: Messages) -> None:
    """The static part is whole pages, and the text is the old one with the filler behind the system text."""
    assert padding.page_size == kitchen.page_size
    before = [{"role": "system", "content": system}]
    assert padding.static_before == static(kitchen, before, tools)
    if padding.text == "":
        assert padding.reason is not None and padding.head == tuple(before) and padding.tokens == 0
        # In pages of a few tokens a single token may be missing that no filler comes to; that is said.
        none = kitchen.page_size < 16 and padding.reason.startswith("no filler came to exactly")
        assert none or padding.static_before % kitchen.page_size == 0, padding
        return
    assert padding.reason is None
    assert padding.head == ({"role": "system", "content": system + padding.text},)
    assert padding.static_after == static(kitchen, padding.head, tools) == padding.static_before + padding.tokens
    assert padding.static_after % kitchen.page_size == 0
    assert padding.tokens <= 2 * kitchen.page_size
    user = {"role": "user", "content": USERS[0]}
    old, new = (kitchen.renderer.render_text([*head, user], tools=tools).text for head in (before, padding.head))
    assert new.endswith(old[common(old, new) :]), "one piece was put in, and nothing else is new"
    assert padding.text.strip().casefold() in new.casefold()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_static_part_ends_with_a_page(tokenizers: dict[str, Tokenizer], kind: str, template: str) -> None:
    renderer = ChatRenderer(tokenizers[kind], TEMPLATES[template])
    for page_size in (16, 48):
        for tools in ((), (TOOL,)):
            kitchen = Kitchen(renderer, page_size)
            padding = pad(kitchen, SYSTEM, tools)
            assert len(kitchen.calls) <= 40
            if template in KEEPING or padding.tokens:
                check(kitchen, padding, SYSTEM, tools)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_system_text_and_tools_are_padded_exactly(tokenizers: dict[str, Tokenizer], data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    template = data.draw(st.sampled_from(sorted(KEEPING)))
    words = st.text("aé 世.\n-7(\t", max_size=12) | st.sampled_from(
        ["agent", " tests", "the parser. ", "\n\n", ".", " ."]
    )
    # A text that is nothing but white space is no text to a template that trims it.
    system = "x" + "".join(data.draw(st.lists(words, max_size=12)))
    named = {**TOOL, "function": {**TOOL["function"], "description": data.draw(st.text("ab. \"{'", max_size=20))}}
    tools = data.draw(st.sampled_from([(), (named,)]))
    kitchen = Kitchen(ChatRenderer(tokenizers[kind], KEEPING[template]), data.draw(st.sampled_from([1, 2, 7, 16, 64])))
    padding = pad(kitchen, system, tools)
    if kind == "unigram" and padding.tokens == 0 and padding.static_before is not None:
        return  # what its small alphabet lacks is one unknown token, however long
    check(kitchen, padding, system, tools)


@pytest.mark.parametrize("template", REFUSING)
def test_a_template_without_a_place_for_it_is_left_alone_and_told_of(
    tokenizers: dict[str, Tokenizer], template: str
) -> None:
    source, reason = REFUSING[template]
    kitchen = Kitchen(ChatRenderer(tokenizers["smollm2"], source), 16)
    padding = pad(kitchen, SYSTEM)
    assert len(kitchen.calls) <= 60
    assert (padding.text, padding.tokens, padding.static_after) == ("", 0, padding.static_before)
    assert padding.head == ({"role": "system", "content": SYSTEM},)
    assert reason in (padding.reason or ""), padding.reason
    assert str(padding) == f"padding: nothing was done: {padding.reason}"


def test_the_same_system_text_gets_the_same_filler_and_one_client_searches_once(
    tokenizers: dict[str, Tokenizer],
) -> None:
    renderer = ChatRenderer(tokenizers["smollm2"], KEEPING["chatml"])
    first, second = Kitchen(renderer, 48), Kitchen(renderer, 48)
    assert pad(first, SYSTEM) == pad(second, SYSTEM)
    assert [call.body for call in first.calls] == [call.body for call in second.calls]
    memory, head = PaddingMemory(), [{"role": "system", "content": SYSTEM}]
    once = first.drive(padded(head, [TOOL], None, memory))
    first.calls.clear()
    again = first.drive(padded([*head, {"role": "user", "content": "Hi"}], [TOOL], None, memory))
    assert again.text == once.text and again.head == (*once.head, {"role": "user", "content": "Hi"})
    assert [call.path for call in first.calls] == ["/v1/models"]
    other = first.drive(padded(head, [], None, memory))
    assert other.static_before != once.static_before
    assert first.drive(padded(head, [TOOL], None, memory)) == once
    smaller = Kitchen(renderer, 16).drive(padded(head, [TOOL], None, memory))
    assert smaller.page_size == 16, "pages of another size are another padding"


def test_without_a_system_text_there_is_nothing_to_pad_and_nothing_is_asked(tokenizers: dict[str, Tokenizer]) -> None:
    kitchen = Kitchen(ChatRenderer(tokenizers["smollm2"], KEEPING["chatml"]), 16)
    for head in ([], [{"role": "user", "content": "Hi"}], [{"role": "system", "content": ""}]):
        padding = kitchen.drive(padded(head, [TOOL], None, PaddingMemory()))
        assert padding.reason == "there is no system text to pad" and padding.head == tuple(head)
    assert kitchen.calls == []


def test_a_server_that_does_not_tell_its_page_size_is_left_alone(tokenizers: dict[str, Tokenizer]) -> None:
    kitchen = Kitchen(ChatRenderer(tokenizers["smollm2"], KEEPING["chatml"]), None)
    assert "how large its pages are" in (pad(kitchen, SYSTEM).reason or "")


def test_a_system_text_in_parts_is_padded_in_its_last_part(tokenizers: dict[str, Tokenizer]) -> None:
    kitchen = Kitchen(ChatRenderer(tokenizers["smollm2"], KEEPING["chatml"]), 48)
    parts = [{"type": "text", "text": "You are a careful agent. "}, {"type": "text", "text": "Read the file."}]
    head = [{"role": "system", "content": parts}]
    padding = kitchen.drive(padded(head, [], None, PaddingMemory()))
    assert padding.head[0]["content"] == [parts[0], {"type": "text", "text": "Read the file." + padding.text}]
    assert static(kitchen, padding.head, ()) % 48 == 0 and padding.tokens
    assert parts[1]["text"] == "Read the file.", "the caller's own list is left as it was"
