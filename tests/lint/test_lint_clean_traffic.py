"""Nothing fires on clean traffic."""

from __future__ import annotations

import copy
from itertools import zip_longest

import pytest
from clean_traffic import SHAPES, TEMPLATE, assistant, call, result, sent, system, tool, user
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.linter import Linter
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.readers.dialects import to_record
from agentcache.lint.rules import RULES, select_rules

OPTIONAL = [rule.code for rule in RULES if rule.optional]


@pytest.fixture(scope="module")
def renderers(tokenizer_folder) -> list[ChatRenderer]:
    """The tokenizer's own template, which prints contents only, and one that prints everything."""
    tokenizer = Tokenizer.from_folder(tokenizer_folder)
    return [ChatRenderer(tokenizer), ChatRenderer(tokenizer, TEMPLATE)]


def found(renderer, requests, page_size: int = 1) -> list:
    """At one token a page every place where sessions part is aligned."""
    linter = Linter(PromptMaker(renderer, page_size), select_rules((), ()), page_size)
    linter.add_all(to_record(copy.deepcopy(body), "run.jsonl", line) for line, body in enumerate(requests, 1))
    return linter.report().findings


@pytest.mark.parametrize("shape", SHAPES)
def test_a_clean_shape_has_no_findings(renderers, shape):
    for renderer in renderers:
        assert found(renderer, SHAPES[shape]()) == []


def test_all_shapes_in_one_file_have_no_findings(renderers):
    bodies = [body for group in zip_longest(*(shape() for shape in SHAPES.values())) for body in group if body]
    for renderer in renderers:
        assert found(renderer, bodies) == []
        assert found(renderer, [body for shape in SHAPES.values() for body in shape()]) == []


def test_one_conversation_is_clean_at_any_page_size(renderers):
    for shape in ("plain", "tool_calls", "parallel_calls", "reasoning", "clock_at_the_tail"):
        assert found(renderers[1], SHAPES[shape](), 16) == []


@pytest.mark.parametrize("shape", ["compaction"])
def test_compaction_is_priced_when_it_is_asked_for(renderers, shape):
    linter = Linter(PromptMaker(renderers[1], 16), select_rules(("AC403",), ()), 16)
    linter.add_all(to_record(body, "run.jsonl", line) for line, body in enumerate(SHAPES[shape](), 1))
    report = linter.report()
    assert [(finding.code, finding.verdict) for finding in report.findings] == [("AC403", "legitimate")]
    assert report.legitimate == {"AC403": report.findings[0].tokens_lost}
    assert report.findings[0].tokens_lost > 0


HEADS = (
    "You are the one who plans. Never write code, only steps, and number them.",
    "Answer in whole sentences. Name the file that you speak of. Keep to the facts.",
    "As a reviewer of patches: list what is wrong; be short; say when nothing is.",
)
words = st.sampled_from(
    ["read", "the", "parser", "and", "say", "why", "its", "tests", "fail", "on", "tabs", "in", "lines"]
)
sentences = st.lists(words, min_size=1, max_size=12).map(" ".join)


@st.composite
def conversations(draw, number: int):
    """A conversation that only ever appends: turns, calls (several at once), reasoning."""
    steps = [system(HEADS[number])]
    for turn in range(draw(st.integers(1, 4))):
        steps.append(user(f"{number}.{turn} {draw(sentences)}"))
        for round_ in range(draw(st.integers(0, 2))):
            ids = [number * 1000 + turn * 100 + round_ * 10 + k for k in range(draw(st.integers(1, 3)))]
            steps.append(assistant(draw(sentences), *(call(i) for i in ids), reasoning=draw(st.none() | sentences)))
            steps.append([result(i, draw(sentences)) for i in ids])
        steps.append(assistant(f"{number}.{turn} {draw(sentences)}", reasoning=draw(st.none() | sentences)))
    steps.append(user("Thanks."))
    return sent(*steps, tools=draw(st.none() | st.just([tool("read_file"), tool("run_tests")])))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_appending_conversations_have_no_findings(renderers, data):
    chats = [data.draw(conversations(number)) for number in range(data.draw(st.integers(1, 3)))]
    bodies = [body for group in zip_longest(*chats) for body in group if body]
    for renderer in renderers:
        assert found(renderer, bodies) == []
