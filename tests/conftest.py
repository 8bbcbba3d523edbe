"""Pytest puts the folder of this file on the import path, so that tests share the helpers beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many threads torch, and kernels with it, compute on."""
    import torch  # most tests of the core do without

    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
