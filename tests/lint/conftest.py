from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from clean_traffic import TEMPLATE
from lint_commands import CLEAN, CLOCK
from lint_workloads import write_jsonl, write_lint_tokenizer

from agentcache.lint.cli import main

Lint = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lint_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def printing_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose template prints all that there is."""
    from tiny_folder import write_tiny_folder

    folder = tmp_path_factory.mktemp("model")
    write_tiny_folder(folder, max_position_embeddings=8192)
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}), "utf-8")
    return folder


@pytest.fixture
def lint(tokenizer_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lint:
    """``lint(requests, *flags)`` -> exit code and findings, through the command line and a file called ``run.jsonl``."""

    def run(requests: Sequence[Any], *flags: str) -> tuple[int, list[dict[str, Any]]]:
        file = write_jsonl(tmp_path / "run.jsonl", requests)
        capsys.readouterr()
        code = main([str(file), "--tokenizer", str(tokenizer_folder), "--output-format", "json", *flags])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    written = {
        "clean": write_jsonl(tmp_path / "clean.jsonl", CLEAN),
        "clock": write_jsonl(tmp_path / "clock.jsonl", CLOCK),
        "single": write_jsonl(tmp_path / "single.jsonl", CLEAN[:1]),
        "empty": write_jsonl(tmp_path / "empty.jsonl", []),
        "broken": tmp_path / "broken.jsonl",
    }
    lines = [json.dumps(body) for body in CLEAN[:2]]
    written["broken"].write_text("\n".join([*lines, '{"messages": [', json.dumps(CLEAN[2])]) + "\n", "utf-8")
    return {name: str(file) for name, file in written.items()}
