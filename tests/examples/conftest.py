"""One tiny random model for the examples that need no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_folder import write_tiny_folder

from examples.agents.common import ROOT


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its vocabulary knows the words of the examples, so that their prompts are not much longer than with a real model."""
    sources = sorted((ROOT / "examples" / "agents").glob("*.py"))
    corpus = "".join(source.read_text("utf-8") for source in sources).splitlines(keepends=True)
    folder = tmp_path_factory.mktemp("examples") / "tiny"
    write_tiny_folder(folder, corpus=corpus, vocab_size=1000, max_position_embeddings=8192)
    return folder
