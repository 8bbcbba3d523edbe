import subprocess
import sys

import pytest

from agentcache import __version__
from agentcache.cli import main
from agentcache.settings import REPEATED, Settings


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


def test_a_model_that_is_not_there_is_one_sentence_and_exit_code_1(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "agentcache", "serve", "--model", str(tmp_path / "absent.gguf"), "--home", str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert "absent.gguf" in run.stderr.replace("\n", "")  # a long path is broken at 80 columns
    assert "Traceback" not in run.stderr


def test_models_lists_the_default_one(tmp_path, capsys):
    assert main(["models", "--home", str(tmp_path)]) == 0
    assert "smollm2" in capsys.readouterr().out
