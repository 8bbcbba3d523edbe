"""Writing and copying pages touches exactly what it is told to."""

from __future__ import annotations

import pytest
import torch

from agentcache.cache.pages import PageCopy
from agentcache.model.kv_store import KVStore
from agentcache_kernels import PageWrites, copy_pages, write_kv

KV_HEADS, NUM_PAGES, PAGE_SIZE, HEAD_DIM = 3, 5, 4, 8


def pools(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (KV_HEADS, NUM_PAGES, PAGE_SIZE, HEAD_DIM)
    return torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("slots", [[7], [19, 0, 6, 5], [-1, 3, -1, 12], [-1, -1], []])
def test_rows_land_in_their_slots_and_nowhere_else(slots: list[int], dtype: torch.dtype) -> None:
    k_pages, v_pages = pools(dtype)
    # Slices of a fused projection: keys and values do not lie in one piece.
    fused = torch.randn(len(slots), 2 * KV_HEADS, HEAD_DIM)
    k, v = fused.split(KV_HEADS, 1)
    expected = [pages.clone() for pages in (k_pages, v_pages)]
    for row, slot in enumerate(slots):
        if slot >= 0:
            for pages, values in zip(expected, (k, v)):
                pages[:, slot // PAGE_SIZE, slot % PAGE_SIZE] = values[row].to(dtype)
    write_kv(k, v, k_pages, v_pages, PageWrites.of(torch.tensor(slots, dtype=torch.int64)))
    assert torch.equal(k_pages, expected[0])
    assert torch.equal(v_pages, expected[1])


def test_copies_are_made_in_order_and_only_as_far_as_told() -> None:
    k_pages, v_pages = pools()
    before = [pages.clone() for pages in (k_pages, v_pages)]
    copy_pages(k_pages, v_pages, [(0, 1, 3), (1, 2, 4), (4, 0, 0)])
    for now, was in zip((k_pages, v_pages), before):
        assert torch.equal(now[:, 1, :3], was[:, 0, :3])
        assert torch.equal(now[:, 1, 3:], was[:, 1, 3:])
        assert torch.equal(now[:, 2], now[:, 1])
        assert torch.equal(now[:, [0, 3, 4]], was[:, [0, 3, 4]])


def test_the_store_copies_in_every_layer_and_knows_its_size() -> None:
    store = KVStore(2, NUM_PAGES, PAGE_SIZE, KV_HEADS, HEAD_DIM, torch.float32, torch.device("cpu"))
    for pages in (*store.k, *store.v):
        pages.normal_()
    store.copy([])
    store.copy([PageCopy(3, 1, 2), PageCopy(1, 4, 1)])
    for pages in (*store.k, *store.v):
        assert torch.equal(pages[:, 1, :2], pages[:, 3, :2])
        assert torch.equal(pages[:, 4, :1], pages[:, 3, :1])
        assert not torch.equal(pages[:, 1, 2:], pages[:, 3, 2:])
    total = sum(pages.numel() * pages.element_size() for pages in (*store.k, *store.v))
    assert KVStore.bytes_per_page(2, PAGE_SIZE, KV_HEADS, HEAD_DIM, torch.float32) * NUM_PAGES == total
