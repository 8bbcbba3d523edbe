"""Pages as values: what was packed comes back, and nothing else is ever taken for a page."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentcache.cache.tiers import StoredPage
from agentcache.store.codec import Refusal, StoreKeys, pack_page, unpack_page

PRINT = "revision auto float32 30x2x16x3x64"
PAGE = StoredPage(b"k" * 16, b"p" * 16, bytes(range(64)), bytes(range(256)) * 3)

pages = st.builds(
    StoredPage,
    key=st.binary(max_size=40),
    parent=st.binary(max_size=40),
    tokens=st.binary(max_size=200),
    data=st.binary(max_size=500),
)


def unpacked(value: bytes, page: StoredPage = PAGE, fingerprint: str = PRINT) -> StoredPage | Refusal:
    return unpack_page(value, page.key, page.parent, page.tokens, fingerprint)


@given(page=pages)
def test_a_packed_page_comes_back(page: StoredPage) -> None:
    back = unpacked(pack_page(page, PRINT), page)
    assert isinstance(back, StoredPage)
    assert (back.key, back.parent, back.tokens, bytes(back.data)) == page[:4]


def test_the_data_lies_in_the_value_at_a_multiple_of_64() -> None:
    value = pack_page(PAGE, PRINT)
    back = unpacked(value)
    assert isinstance(back, StoredPage)
    assert isinstance(back.data, memoryview) and back.data.obj is value
    assert value.index(PAGE.data) % 64 == 0


def test_a_page_is_packed_only_after_all_of_it_arrived() -> None:
    data = bytearray(8)

    def arrive() -> None:
        data[:] = b"arrived!"

    page = PAGE._replace(data=data, whole=arrive)
    back = unpacked(pack_page(page, PRINT), page)
    assert isinstance(back, StoredPage) and bytes(back.data) == b"arrived!"


@given(value=st.binary(max_size=400))
@example(b"")
@example(b"ACPG")
@example(b"ACPG" + bytes(500))
@example(b"ACPG" + b"\1\0" + bytes([255] * 500))
def test_no_other_bytes_are_a_page(value: bytes) -> None:
    assert isinstance(unpacked(value), Refusal)


@given(value=st.binary(max_size=300), fields=st.binary(min_size=54, max_size=54))
def test_bytes_that_begin_like_a_page_are_none(value: bytes, fields: bytes) -> None:
    assert isinstance(unpacked(b"ACPG\1\0" + fields + value), Refusal)


def test_a_changed_byte_anywhere_is_found() -> None:
    value = bytearray(pack_page(PAGE, PRINT))
    for at in range(len(value)):
        value[at] ^= 0x10
        assert isinstance(unpacked(bytes(value)), Refusal), f"byte {at} was changed"
        value[at] ^= 0x10


@given(size=st.integers(0, len(pack_page(PAGE, PRINT)) - 1))
def test_the_beginning_of_a_page_is_short(size: int) -> None:
    assert unpacked(pack_page(PAGE, PRINT)[:size]) is Refusal.SHORT


def test_each_reason_is_told() -> None:
    value = pack_page(PAGE, PRINT)
    data_at = value.index(PAGE.data)
    altered = value[:data_at] + b"x" + value[data_at + 1 :]
    assert unpacked(altered) is Refusal.DAMAGED
    assert unpacked(value + b"x") is Refusal.DAMAGED
    assert unpacked(value[:4] + b"\2\0" + value[6:]) is Refusal.VERSION
    assert unpacked(b"somebody else's value") is Refusal.FOREIGN
    assert unpacked(value, fingerprint=PRINT + "x") is Refusal.FOREIGN
    assert unpacked(value, PAGE._replace(key=b"l" * 16)) is Refusal.FOREIGN
    assert unpacked(value, PAGE._replace(tokens=bytes(64))) is Refusal.TOKENS
    assert unpacked(value, PAGE._replace(parent=b"q" * 16)) is Refusal.TOKENS
    # The same bytes divided at another place.
    assert unpacked(value, PAGE._replace(parent=b"p" * 15, tokens=b"p" + PAGE.tokens)) is Refusal.TOKENS


def test_a_key_that_is_too_long_is_not_packed() -> None:
    with pytest.raises(ValueError, match="got keys of 256 and 16 bytes"):
        pack_page(PAGE._replace(key=bytes(256)), PRINT)
    with pytest.raises(ValueError, match="bytes of tokens"):
        pack_page(PAGE._replace(tokens=bytes(2**16)), PRINT)


def test_pages_of_another_model_type_size_or_shard_have_other_names() -> None:
    keys = StoreKeys(PRINT, "float32", 16)
    others = [
        StoreKeys(PRINT + "x", "float32", 16),
        StoreKeys(PRINT, "bfloat16", 16),
        StoreKeys(PRINT, "float32", 32),
        StoreKeys(PRINT, "float32", 16, "1/2"),
    ]
    names = {each.key(PAGE.key) for each in (keys, *others)} | {keys.key(PAGE.parent)}
    assert len(names) == 6
    assert keys.key(b"\xab" * 16) == keys.prefix + b"ab" * 16
    assert keys.prefix.startswith(b"agentcache:kv1:") and keys.prefix.endswith(b":float32:16:0/1:")
