"""One catalogue of codes: complete, in the linter's words, and with advice for each."""

from __future__ import annotations

import re

import pytest

from agentcache.lint.rules import RULES
from agentcache_sdk._codes import CODES, code_of_miss, sentence_of_miss
from agentcache_sdk.cache_warnings import CacheWarning, category

GROUPS = {1: 6, 2: 8, 3: 3, 4: 5, 5: 3, 6: 4, 7: 5, 8: 4, 9: 4}


def test_the_catalogue_has_every_code_of_every_group_in_order() -> None:
    assert list(CODES) == [f"AC{group}{n:02}" for group, count in GROUPS.items() for n in range(1, count + 1)]
    assert all(key == code.code for key, code in CODES.items())


def test_names_are_the_linters_where_it_has_the_rule() -> None:
    assert {rule.code: rule.name for rule in RULES} == {rule.code: CODES[rule.code].name for rule in RULES}


def test_names_are_stable_words_and_advice_is_one_sentence() -> None:
    assert len({code.name for code in CODES.values()}) == len(CODES)
    for code in CODES.values():
        assert re.fullmatch(r"[a-z]+(-[a-z]+){0,3}", code.name), code
        assert len(code.fix) > 20
        assert not code.fix.endswith(".")
        assert ". " not in code.fix
        assert code.fix[0].islower()


@pytest.mark.parametrize(
    ("miss", "code"),
    [
        ("evicted", "AC801"),
        ("expired", "AC802"),
        ("cold", "AC803"),
        ("diverged", "AC401"),
        ("salt", "AC602"),
        ("model", "AC601"),
        ("template", "AC702"),
        ("in_flight", None),
        ("below_page", None),
        ("disabled", None),
        ("something new", None),
    ],
)
def test_each_miss_that_can_be_helped_has_a_code_and_a_sentence(miss: str, code: str | None) -> None:
    assert code_of_miss(miss) == code
    assert (sentence_of_miss(miss) is None) == (code is None)


def test_every_code_of_a_prompt_has_a_warning_class_of_its_own() -> None:
    assert all((category(code) is CacheWarning) == (code[2] == "9") for code in CODES)
