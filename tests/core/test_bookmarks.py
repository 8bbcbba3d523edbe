"""What one request knew of a conversation's tokens is what the next one goes on from."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcache.cache.hashing import namespace_root
from agentcache.cache.public import PublicPrefixes
from agentcache.cache.tokens import PagedTokens, common_pages

ROOT, PUBLIC = namespace_root("own"), namespace_root("public")


@given(st.lists(st.integers(0, 1), max_size=40), st.lists(st.integers(0, 1), max_size=40), st.integers(1, 5))
def test_common_pages_are_those_that_both_begin_with(a, b, size):
    expected = 0
    while (expected + 1) * size <= min(len(a), len(b)) and a[: (expected + 1) * size] == b[: (expected + 1) * size]:
        expected += 1
    assert common_pages(array("I", a), array("I", b), size) == expected


@given(st.lists(st.integers(0, 1), max_size=40), st.lists(st.integers(0, 1), max_size=40), st.integers(1, 5))
def test_continued_tokens_have_the_keys_of_fresh_ones(known, ids, size):
    before = PagedTokens(known, size, ROOT)
    before.keys(before.num_full_pages)
    after = before.continued(array("I", ids))
    assert after.num_known == common_pages(array("I", known), array("I", ids), size) * size
    assert after.keys(after.num_full_pages) == PagedTokens(ids, size, ROOT).keys(len(ids) // size)


def test_tokens_are_public_as_far_as_they_begin_like_any_of_the_prefixes():
    prefixes = PublicPrefixes(PUBLIC, 4, [range(10), [0, 1, 2, 3, 9, 9, 9, 9, 8, 8, 8, 8]])
    assert prefixes.part_of(array("I", range(20))) == (PUBLIC, 2)
    assert prefixes.part_of(array("I", [0, 1, 2, 3, 9, 9, 9, 9, 8, 8, 8, 8])) == (PUBLIC, 3)
    assert prefixes.part_of(array("I", [0, 1, 2, 3])) == (PUBLIC, 1)
    assert prefixes.part_of(array("I", [5, 1, 2, 3])) is None
    assert prefixes.part_of(array("I", [0, 1, 2])) is None


def test_what_is_known_is_used_only_in_its_own_namespace_and_with_the_same_public_part():
    prefixes = PublicPrefixes(PUBLIC, 4, [range(8)])
    known = prefixes.paged(range(8), ROOT)
    known.keys(2)
    assert prefixes.paged(range(16), ROOT, known).num_known == 8
    assert prefixes.paged(range(16), namespace_root("other"), known).num_known == 0
    assert prefixes.paged([0, 1, 2, 3, 9, 9, 9, 9], ROOT, known).num_known == 0  # less of it is public


def test_ids_that_are_none_are_refused():
    with pytest.raises(OverflowError):
        PublicPrefixes(PUBLIC, 4).paged([1, -1], ROOT)
