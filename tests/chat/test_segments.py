"""Prompts tokenised piece by piece have the ids of the whole, and what came before is not tokenised again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.chat import segments
from agentcache.chat.segments import SegmentMemory

LONG = "You are an agent.\n\tYou read  files, Zürich 世界 👋, and  answer. " * 20
PROMPT = f"<|im_start|>system\n{LONG}<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n"


class Counting:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self.characters = 0

    def encode_with_offsets(self, text):
        self.characters += len(text)
        return self._tokenizer.encode_with_offsets(text)

    def borders(self, text):
        return self._tokenizer.borders(text)


@pytest.fixture(params=["smol", "sentencepiece", "unigram", "words"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def test_pieces_have_the_ids_of_the_whole(tokenizer):
    memory = SegmentMemory(tokenizer)
    controls = [*tokenizer.control_tokens][:4]
    for text in (PROMPT, LONG, "", " ", *(f" a {c} {LONG} {c}{c}\n{LONG}" for c in controls), "".join(controls) + LONG):
        ids, offsets = tokenizer.encode_with_offsets(text)
        for _ in range(2):
            encoded = memory.encode(b"root", text)
            assert encoded.ids.tolist() == ids
            assert [encoded.start(token) for token in range(len(ids))] == [start for start, _ in offsets]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_mixture_of_text_and_control_tokens(smol, data):
    controls = sorted(smol.control_tokens)
    parts = st.one_of(
        st.sampled_from(controls), st.text(max_size=8), st.sampled_from([" ", "\n", "  \n", "<|im_", "|>", LONG[:600]])
    )
    text = "".join(data.draw(st.lists(parts, max_size=12)))
    memory = SegmentMemory(smol)
    memory.encode(b"root", PROMPT)
    for _ in range(2):
        assert memory.encode(b"root", text).ids.tolist() == smol.encode(text)


def test_a_system_prompt_is_tokenised_once_in_each_namespace(smol):
    counting = Counting(smol)
    memory = SegmentMemory(counting)
    memory.encode(b"a", PROMPT)
    assert counting.characters == len(PROMPT)
    counting.characters = 0
    memory.encode(b"a", PROMPT.replace("Hi", "What else is there?"))
    assert 0 < counting.characters < 200
    for root in (b"b", b"", b""):
        counting.characters = 0
        memory.encode(root, PROMPT)
        assert counting.characters == len(PROMPT)


def test_what_is_remembered_is_bounded_and_the_least_used_goes_first(smol):
    memory = SegmentMemory(smol, max_characters=3 * segments._LONG)
    first, *others = [f"<|im_start|>{i}" + "x" * (segments._LONG - 13) for i in range(6)]
    for other in others:
        memory.encode(b"a", first)
        memory.encode(b"a", other)
    assert len(memory) <= 3
    counting = Counting(smol)
    memory.tokenizer = counting
    memory.encode(b"a", first)
    assert counting.characters == 0
    memory.encode(b"a", others[0])
    assert counting.characters == len(others[0])
    memory.encode(b"a", "<|im_start|>" + "y" * 10 * segments._LONG)
    assert len(memory) <= 3
