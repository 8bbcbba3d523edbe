import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcache.cache.hashing import namespace_root, pack_tokens, page_key
from agentcache.cache.tokens import PagedTokens

ingredient = st.one_of(st.none(), st.text(max_size=4), st.binary(max_size=4))


def test_ingredients_do_not_run_into_each_other():
    spellings = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("abc", None),
        ("abc", ""),
        (None, "abc"),
        (b"abc",),
        ("α\x00",),
        ("α", "\x00"),
    ]
    roots = [namespace_root(*spelling) for spelling in spellings]
    assert len(set(roots)) == len(spellings)


@given(st.lists(ingredient, max_size=4), st.lists(ingredient, max_size=4))
def test_roots_are_equal_only_for_equal_ingredients(a, b):
    assert (namespace_root(*a) == namespace_root(*b)) == (a == b)


def test_a_salt_with_a_lone_surrogate_is_a_salt():
    assert namespace_root("\ud800") != namespace_root("\ud801")


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(1, 8), st.lists(st.integers(1, 7), max_size=5))
def test_keys_do_not_depend_on_how_the_tokens_arrived(ids, size, cuts):
    whole = PagedTokens(ids, size, b"root")
    grown = PagedTokens([], size, b"root")
    rest = list(ids)
    for cut in itertools.cycle(cuts or [1]):
        if not rest:
            break
        grown.extend(rest[:cut])
        rest = rest[cut:]
        grown.keys(grown.num_full_pages)
    expected, parent = [], b"root"
    for page in range(len(ids) // size):
        parent = page_key(parent, pack_tokens(ids[page * size : (page + 1) * size]))
        expected.append(parent)
    assert whole.keys(len(ids) // size) == grown.keys(len(ids) // size) == expected
    assert whole.packed() == pack_tokens(ids)


def test_a_copy_grows_on_its_own():
    first = PagedTokens([1, 2], 2, b"r")
    first.keys(1)
    second = first.copy()
    second.extend([3, 4])
    assert len(first) == 2 and len(second) == 4 and second.keys(2)[0] == first.keys(1)[0]


def test_a_page_that_is_not_full_has_no_key():
    with pytest.raises(IndexError, match="only 1 pages are full"):
        PagedTokens([1, 2, 3], 2, b"r").keys(2)


@pytest.mark.parametrize("bad", [-1, 2**32])
def test_ids_outside_four_bytes_are_refused(bad):
    with pytest.raises(OverflowError):
        pack_tokens([bad])
