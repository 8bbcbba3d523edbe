from __future__ import annotations

from pathlib import Path

import pytest
from chat_fixtures import save_sentencepiece, save_smollm2, save_unigram, save_with_bos, save_words
from tokenizers import Tokenizer as Backend

from agentcache.chat.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def smol_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_smollm2(tmp_path_factory.mktemp("smollm2"))


@pytest.fixture(scope="session")
def smol(smol_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(smol_folder)


@pytest.fixture(scope="session")
def smol_backend(smol_folder: Path) -> Backend:
    """The library's own tokenizer, to compare with."""
    return Backend.from_file(str(smol_folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def bos_folder(smol_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_bos(tmp_path_factory.mktemp("bos"), smol_folder)


@pytest.fixture(scope="session")
def sentencepiece_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_sentencepiece(tmp_path_factory.mktemp("sentencepiece"))


@pytest.fixture(scope="session")
def sentencepiece(sentencepiece_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(sentencepiece_folder)


@pytest.fixture(scope="session")
def unigram(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(save_unigram(tmp_path_factory.mktemp("unigram")))


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(save_words(tmp_path_factory.mktemp("words")))
