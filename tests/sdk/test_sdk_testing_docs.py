"""The page about testing is a test suite; it passes as printed."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "sdk" / "testing.md"


def test_the_files_of_the_page_are_a_suite_that_passes(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    files = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(files) == page.count("```python") >= 10
    for name, content in files:
        (tmp_path / name).write_text(content, "utf-8")
    settings = re.search(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert settings is not None
    # The page's own setting is in force for all of it, except where a test says otherwise.
    (tmp_path / "pyproject.toml").write_text(settings.group(1), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{page.count(chr(10) + 'def test_')} passed" in done.stdout


@pytest.mark.parametrize("name", ["", ".engine", ".replies", ".transport", "._tokens"])
def test_the_examples_of_docstrings_run_as_printed(name: str) -> None:
    done = doctest.testmod(importlib.import_module(f"agentcache_sdk.testing{name}"))
    assert done.failed == 0
    assert done.attempted > 0
