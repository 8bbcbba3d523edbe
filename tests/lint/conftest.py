from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from lint_workloads import write_jsonl, write_lint_tokenizer

from agentcache.lint.cli import main

Lint = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lint_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def lint(tokenizer_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lint:
    """``lint(requests, *flags)`` -> exit code and findings, through the command line and a file called ``run.jsonl``."""

    def run(requests: Sequence[Any], *flags: str) -> tuple[int, list[dict[str, Any]]]:
        file = write_jsonl(tmp_path / "run.jsonl", requests)
        capsys.readouterr()
        code = main([str(file), "--tokenizer", str(tokenizer_folder), "--output-format", "json", *flags])
        return code, json.loads(capsys.readouterr().out)

    return run
