"""Which tokens a text is made of does not depend on how it came; reasoning is counted in the tokens it took."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizer import write_tokenizer

from agentcache.chat.detokenizer import TextStream
from agentcache.chat.replies.formats import choose_format
from agentcache.chat.replies.pieces import Content
from agentcache.chat.replies.reader import ReplyReader
from agentcache.chat.tokenizer import Tokenizer
from agentcache.request import FinishReason, TokenLogprob
from agentcache.server.generation import Delta
from agentcache.server.replies.reading import reasoning_tokens
from agentcache.server.responses.attribution import TokenPieces

TAGS = ("<think>", "</think>")
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "read", "arguments": {}}</tool_call>'
REPLY = f"<think>naïve 🙂</think>Löok <tool_care 🙂 {CALL}"
HERMES = choose_format("<tool_call>", "hermes")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return Tokenizer.from_folder(write_tokenizer(tmp_path_factory.mktemp("words"), ["think tool call name"] * 3, 512))


def attributed(tokenizer, cuts, late: int):
    """Text of the content, and the tokens told with it; ``late`` deltas come one character behind their tokens."""
    ids = tokenizer.encode(REPLY)
    pieces = TokenPieces(ReplyReader(HERMES, [TOOL], TAGS, False, "seed"), tokenizer, frozenset())
    places = [0, *sorted(cut % len(ids) for cut in cuts), len(ids)]
    text, tokens, sent = "", [], 0
    for count, (start, end) in enumerate(pairwise(places)):
        last = end == len(ids) and count == len(places) - 2
        spelled = tokenizer.decode(ids[:end]).rstrip("\ufffd") if not last else REPLY
        upto = max(sent, len(spelled) - (late if not last else 0))
        delta = Delta(0, [REPLY[sent:upto]], ids[start:end], [TokenLogprob(token, -1.0) for token in ids[start:end]])
        delta.finish_reason = FinishReason.STOP if last else None
        sent = upto
        for piece, told in pieces.take(delta):
            if isinstance(piece, Content):
                text += piece.text
                tokens += [entry.token for entry in told]
    return text, tokens


def test_the_tokens_of_content_spell_it(tokenizer):
    text, tokens = attributed(tokenizer, (), 0)
    assert text.strip() == "Löok <tool_care 🙂"
    assert tokenizer.decode(tokens).strip() == text.strip()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=20), st.integers(0, 3))
def test_tokens_belong_to_the_same_text_however_they_came(tokenizer, cuts, late):
    assert attributed(tokenizer, cuts, late) == attributed(tokenizer, (), 0)


def test_reasoning_is_counted_up_to_its_closing_tag(tokenizer):
    ids = tokenizer.encode(REPLY)
    count = reasoning_tokens(REPLY, ids, TAGS, TextStream(tokenizer))
    before, after = tokenizer.decode(ids[: count - 1]), tokenizer.decode(ids[:count])
    assert "</think>" in after
    assert "</think>" not in before
    cut = ids[: count - 1]
    assert reasoning_tokens(tokenizer.decode(cut), cut, TAGS, TextStream(tokenizer)) == len(cut)
