"""A tiny model that knows the words of the tests here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_folder import write_tiny_folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "tiny"
    write_tiny_folder(folder, max_position_embeddings=8192)
    return folder
