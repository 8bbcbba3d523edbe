import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agentcache import __version__
from agentcache.cli import main
from agentcache.settings import REPEATED, Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_keys_around(monkeypatch):
    for variable in ("AGENTCACHE_API_KEYS", "AGENTCACHE_ADMIN_KEYS"):
        monkeypatch.delenv(variable, raising=False)


def test_the_version_is_the_distributions(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"agentcache {__version__}"


@pytest.mark.usefixtures("no_keys_around")
@pytest.mark.parametrize(
    "argv",
    [[], ["fly"], ["serve", "--nope"], ["serve", "--page-size", "0"], ["serve", "--num-pages", "1", "--kv-memory", "1GiB"],
     ["serve", "--device", "tpu"], ["serve", "--host", "0.0.0.0"], ["serve", "--cors-origin", "*"],
     ["serve", "--config", "/nonexistent/agentcache.toml"], ["lint", "--nope"]],
)  # fmt: skip
def test_a_bad_command_line_exits_with_2_and_says_why(argv, capsys):
    assert main(argv) == 2
    assert capsys.readouterr().err.strip()


def test_every_setting_is_a_flag(capsys):
    main(["serve", "--help"])
    text = capsys.readouterr().out
    for name in Settings.model_fields:
        flag = "--" + (name.removesuffix("s") if name in REPEATED else name).replace("_", "-")
        assert flag in text


def test_sizes_are_told_with_their_units(capsys):
    main(["serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: 32MiB)" in text and "(default: 8GiB)" in text


@pytest.mark.usefixtures("no_keys_around")
def test_an_address_that_is_taken_is_told_before_a_model_is_looked_for(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--model", str(tmp_path / "absent.gguf"), "--port", port]) == 2
    assert f"--port {port}: " in capsys.readouterr().err


def test_nobody_is_told_to_install_somebody_elses_package():
    """On PyPI another project has this name: what is installed must be a folder or a file."""
    told = re.compile(r"\b(?:pip|pipx|uv pip)\b[^`\n]{0,20} install (?:-\S+ )*['\"]?agentcache\b(?!-\d)")
    assert told.search("pip install 'agentcache[serve]'") and not told.search("pip install '.[serve]'")
    folders = ("agentcache", "sdk", "kernels", "docs", "examples", "bench")
    texts = [path for folder in folders for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    for path in [*texts, ROOT / "README.md"]:
        assert not told.search(path.read_text("utf-8")), path


def test_a_model_that_is_not_there_is_one_sentence_and_exit_code_1(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "agentcache", "serve", "--model", str(tmp_path / "absent.gguf"), "--home", str(tmp_path),
         "--port", "0"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert str(tmp_path / "absent.gguf") in run.stderr  # also where it is longer than a line
    assert "Traceback" not in run.stderr


def test_models_lists_the_default_one(tmp_path, capsys):
    assert main(["models", "--home", str(tmp_path)]) == 0
    assert "smollm2" in capsys.readouterr().out
