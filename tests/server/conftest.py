from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from findings_calls import KEYS, Tenant
from live import live_server
from tiny_folder import greedy, write_tiny_folder


@dataclass(frozen=True)
class TinyModel:
    folder: Path
    reference: Any

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """What Hugging Face generates, without any cache of ours."""
        return greedy(self.reference, [prompt], count)[0]

    def greedy_each(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """The same for several prompts of one length."""
        return greedy(self.reference, prompts, count)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> TinyModel:
    folder = tmp_path_factory.mktemp("tiny")
    return TinyModel(folder, write_tiny_folder(folder))


@pytest.fixture(scope="module")
def server(tiny):
    """One server with room for everything, shared by a module's tests."""
    with live_server(tiny.folder, page_size=16, num_pages=256) as running:
        yield running


@pytest.fixture(scope="module")
def keys():
    """API keys of a server that knows ``KEYS``; the first is the operator's."""
    return iter(KEYS[1:])


@pytest.fixture
def tenant(server, keys) -> Tenant:
    """A key whose namespace nobody has used."""
    return Tenant(server, next(keys))
