"""What a GPU's runner decides on the host: sizes of graphs, page tables, how many pages fit, numbers in one transfer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agentcache.errors import SettingsError
from agentcache.model.gpu.decode import TableRows
from agentcache.model.gpu.graphs import Rerun, at_least, batch_sizes, split_counts
from agentcache.model.gpu.memory import DeviceMemory, pages_that_fit
from agentcache.model.gpu.packed import Field, Packed
from agentcache.model.gpu.pinned import PinnedPages
from agentcache.model.gpu.side import AtOnce, side_of

GIB = 2**30


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 64, 65, 100, 256, 300, 4096])
def test_every_batch_has_a_graph_that_is_little_larger(most: int) -> None:
    sizes = batch_sizes(most)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == min(most, 256)
    for batch in range(1, sizes[-1] + 1):
        chosen = at_least(sizes, batch)
        assert chosen is not None and batch <= chosen < max(2 * batch, batch + 16)
    assert at_least(sizes, sizes[-1] + 1) is None


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (4, [4]), (5, [4, 5]), (32, [4, 8, 16, 32]), (0, [1])])
def test_contexts_have_graphs_that_are_at_most_twice_as_long(most: int, counts: list[int]) -> None:
    assert split_counts(most) == counts


def test_a_page_table_is_written_where_it_changed_and_nowhere_else() -> None:
    table = np.zeros((2, 6), dtype=np.int32)
    rows = TableRows(table)
    pages = [5, 6, 7]
    rows.put(0, pages, settled=2, needed=3)
    assert table[0].tolist() == [5, 6, 7, 0, 0, 0]
    table[0, :2] = 99  # pages that are full never change, so they are not written again
    pages[2] = 8
    pages.append(9)
    rows.put(0, pages, settled=3, needed=4)
    assert table[0].tolist() == [99, 99, 8, 9, 0, 0]
    rows.put(0, [1, 2], settled=1, needed=2)  # somebody else's
    assert table[0, :2].tolist() == [1, 2]
    rows.put(0, pages, settled=3, needed=4)
    assert table[0, :4].tolist() == [5, 6, 8, 9]
    assert not table[1].any()


def test_a_page_that_was_open_when_a_row_was_last_seen_is_written_again() -> None:
    """Another graph ran the steps between, in which the page was replaced and filled."""
    table = np.zeros((1, 6), dtype=np.int32)
    rows, pages = TableRows(table), [5, 6]
    rows.put(0, pages, settled=1, needed=2)
    pages[1] = 7
    pages.append(8)
    rows.put(0, pages, settled=2, needed=3)
    assert table[0, :3].tolist() == [5, 7, 8]


def test_numbers_of_several_types_travel_together_and_are_aligned() -> None:
    fields = [Field("a", (3,), torch.int64), Field("b", (2, 5), torch.int32), Field("c", (0, 3), torch.int32)]
    packed = Packed([*fields, Field("d", (1,), torch.float32)], torch.device("cpu"))
    packed.host["a"][:] = [1, -1, 2**62]
    packed.host["b"][:] = np.arange(10).reshape(2, 5)
    packed.host["d"][:] = 0.5
    assert not packed.device["a"].any()
    packed.upload()
    assert packed.device["a"].tolist() == [1, -1, 2**62]
    assert packed.device["b"].tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert packed.device["c"].shape == (0, 3)
    assert packed.device["d"].tolist() == [0.5]
    first = packed.device["a"].data_ptr()
    assert all((tensor.data_ptr() - first) % 16 == 0 for tensor in packed.device.values() if tensor.numel())


def test_pages_fill_what_the_model_and_a_step_leave() -> None:
    memory = DeviceMemory(free=60 * GIB, total=80 * GIB)
    assert pages_that_fit(memory, 6 * GIB, 2 * 2**20) == 50 * 512
    assert pages_that_fit(memory, 56 * GIB - 10, 10) == 1
    with pytest.raises(SettingsError, match=r"60\.00 GiB free .* takes 56\.00 GiB: no page of 10 bytes fits"):
        pages_that_fit(memory, 56 * GIB - 9, 10)


def test_host_memory_of_a_page_is_used_again_when_nobody_holds_it_and_not_before() -> None:
    rooms = PinnedPages(24, pinned=False)
    held = [rooms.room() for _ in range(64)]
    for number, room in enumerate(held):
        room[:] = bytes([number]) * 24
    assert rooms.taken == 64
    assert [bytes(room) for room in held] == [bytes([number]) * 24 for number in range(64)]
    view = np.frombuffer(held[7], dtype=np.uint8)
    reader = torch.frombuffer(held[8], dtype=torch.uint8)
    del held[5:9], room
    again = [rooms.room() for _ in range(2)]
    assert sorted(bytes(each)[0] for each in again) == [5, 6]
    assert rooms.taken == 64
    assert (view == 7).all() and (reader == 8).all()
    rooms.room()
    assert rooms.taken == 128
    del view, reader
    assert len([rooms.room() for _ in range(65)]) == 65
    assert rooms.taken == 128


def test_without_a_device_work_is_done_at_once() -> None:
    done: list[int] = []
    side = side_of(torch.device("cpu"))
    assert isinstance(side, AtOnce)
    side.submit(lambda: done.append(1))
    side.waiter()()
    assert done == [1]
    Rerun().record(lambda: done.append(2))()
    assert done == [1, 2, 2]
