"""Random traffic of several sessions with one defect in it: it is told once, with its name, its place and its exact loss."""

from __future__ import annotations

import copy
import re

import pytest
from explained import TEMPLATE
from injected_defects import KINDS, Injected, injected

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.linter import Linter
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.readers.dialects import to_record
from agentcache.lint.report import Report
from agentcache.lint.rules import RULES

ALIGNMENT = {"AC501", "AC502", "AC503", "AC403"}


def report(renderer: ChatRenderer, bodies) -> Report:
    linter = Linter(PromptMaker(renderer, 16), [rule for rule in RULES if rule.code not in ALIGNMENT], 16)
    linter.add_all(to_record(copy.deepcopy(body), "run.jsonl", line) for line, body in enumerate(bodies, 1))
    return linter.report()


def wrong(renderer: ChatRenderer, case: Injected) -> list[object]:
    """What is said otherwise than it was put in."""
    found = report(renderer, case.bodies)
    told = [(finding.code, finding.location.record, finding.location.path) for finding in found.findings]
    if [(code, record) for code, record, _ in told] != [(case.code, case.record)]:
        return [told]
    [finding] = found.findings
    lost = finding.tokens_lost or 0
    problems: list[object] = []
    if not re.fullmatch(case.path, finding.location.path or ""):
        problems.append(told)
    if not 0 < lost <= found.prompt_tokens - found.cached_tokens:
        problems.append((lost, found.cached_tokens, found.prompt_tokens))
    if case.sound is not None:
        problems += _wrong_loss(report(renderer, case.sound), found, lost)
    return problems


def _wrong_loss(sound: Report, found: Report, lost: int) -> list[object]:
    """The loss is what the same traffic reuses without the defect and not with it, as far as both have as many tokens."""
    if sound.findings:
        return [sound.findings]
    pairs = list(zip(sound.requests, found.requests, strict=True))
    expected = sum(one.cached_tokens - other.cached_tokens for one, other in pairs)
    slack = sum(abs(one.prompt_tokens - other.prompt_tokens) for one, other in pairs)
    return [] if abs(lost - expected) <= slack + len(pairs) // 8 else [(lost, expected, slack)]


@pytest.fixture(scope="module")
def renderer(tokenizer_folder) -> ChatRenderer:
    return ChatRenderer(Tokenizer.from_folder(tokenizer_folder), TEMPLATE)


def problems(renderer: ChatRenderer, kind: str, seeds: range, most: int | None = None) -> list[object]:
    made = {seed: injected(seed, kind) for seed in seeds}
    cases = [(seed, case) for seed, case in made.items() if case is not None][:most]
    assert cases
    return [(seed, said) for seed, case in cases for said in wrong(renderer, case)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_injected_defect_is_told_once_with_its_place_and_loss(renderer, kind):
    assert problems(renderer, kind, range(60, 110), 2) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_many_more_injected_defects(renderer, kind):
    """Never a wrong name, place or figure; that a defect is told at all needs text again behind it, which chance may deny."""
    seeds = range(100, 160)
    told = problems(renderer, kind, seeds)
    missed = [seed for seed, found in told if found == []]
    assert [problem for problem in told if problem[1] != []] == []
    assert len(missed) <= len(seeds) // 20
