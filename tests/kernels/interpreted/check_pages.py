"""Pages that leave for host memory and come back: whole before they are used, and never overwritten on their way."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from agentcache.cache.pages import PageCopy, PageLoad
from agentcache.model.gpu.pages import DevicePages
from agentcache.model.gpu.side import Side, side_of
from agentcache.model.kv_store import KVStore

PAGES, SIZE = 40, 4


class Late:
    """A side that does everything as late as it may: when somebody waits for it."""

    def __init__(self) -> None:
        self.owed: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        self.owed.append(work)

    def main_waits(self) -> None:
        owed, self.owed = self.owed, []
        for work in owed:
            work()

    def waiter(self) -> Callable[[], None]:
        return self.main_waits


def make(device: torch.device, side: Side) -> tuple[KVStore, DevicePages]:
    kv = KVStore(2, PAGES, SIZE, 2, 8, torch.bfloat16, device, compiled=False)
    random = torch.Generator().manual_seed(0)
    for pages in (*kv.k, *kv.v):
        pages.copy_(torch.randn(pages.shape, generator=random))
    return kv, DevicePages(kv, side)


def content(kv: KVStore, page: int) -> Tensor:
    return torch.stack([pages[:, page] for pages in (*kv.k, *kv.v)]).clone()


@pytest.fixture(params=["late", "own"])
def side(request: pytest.FixtureRequest, device: torch.device) -> Side:
    return Late() if request.param == "late" else side_of(device)


def test_a_page_leaves_before_the_next_step_writes_it(side: Side, device: torch.device) -> None:
    kv, pages = make(device, side)
    before = content(kv, 7)
    data = pages.read_page(7)
    pages.copy([PageCopy(3, 7, SIZE)])  # the next step takes the page for something else
    pages.when_read()()
    assert bytes(data) == before.cpu().view(torch.uint8).numpy().tobytes()
    assert torch.equal(content(kv, 7), content(kv, 3))


def test_a_page_may_come_back_before_anybody_waited_for_it_to_leave(side: Side, device: torch.device) -> None:
    kv, pages = make(device, side)
    before = content(kv, 7)
    data = pages.read_page(7)
    pages.copy([PageLoad(9, data)])
    assert torch.equal(content(kv, 9), before)


def test_loads_and_copies_are_as_if_made_in_order(side: Side, device: torch.device) -> None:
    kv, pages = make(device, side)
    first, second = content(kv, 1), content(kv, 2)
    stored = [pages.read_page(1), pages.read_page(2)]
    pages.copy(
        [
            PageLoad(5, stored[0]),
            PageCopy(5, 6, SIZE),
            PageLoad(5, stored[1]),
            PageCopy(5, 8, 2),
            PageLoad(5, stored[0]),
            PageLoad(5, stored[1]),
        ]
    )
    assert torch.equal(content(kv, 6), first)
    assert torch.equal(content(kv, 5), second)
    assert torch.equal(content(kv, 8)[:, :, :2], second[:, :, :2])
    assert not torch.equal(content(kv, 8)[:, :, 2:], second[:, :, 2:])


def test_more_pages_than_are_staged_at_once_come_back_from_any_kind_of_memory(side: Side, device: torch.device) -> None:
    kv, pages = make(device, side)
    before = [content(kv, page) for page in range(PAGES)]
    stored = [pages.read_page(page) for page in range(PAGES)]
    pages.when_read()()
    held = [data if page % 2 else bytes(data) for page, data in enumerate(stored)]
    for tensor in (*kv.k, *kv.v):
        tensor.fill_(math.nan)
    pages.copy([PageLoad(PAGES - 1 - page, data) for page, data in enumerate(held)])
    for page in range(PAGES):
        assert torch.equal(content(kv, PAGES - 1 - page), before[page])


def test_the_store_of_processors_reads_and_writes_the_same_bytes(device: torch.device) -> None:
    """Files on disk outlive the device."""
    kv, pages = make(device, Late())
    data = pages.read_page(5)
    pages.when_read()()
    assert bytes(data) == bytes(kv.read_page(5))
    pages.write_page(6, bytes(kv.read_page(4)))
    assert torch.equal(content(kv, 6), content(kv, 4))
    with pytest.raises(ValueError, match="got 3 bytes for page 5, expected 512"):
        pages.copy([PageLoad(5, b"abc")])
