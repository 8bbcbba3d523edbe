"""What is told while something loads, to people who see no terminal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentcache.startup import shown


def test_what_is_loading_is_said_before_it_loads_and_then_what_it_reports(capsys):
    def work(progress):
        assert capsys.readouterr().err == "loading [a] model\n"
        progress("half [way]")
        return 7

    assert shown(work, True, "loading [a] model") == 7
    assert capsys.readouterr().err == "half [way]\n"


@pytest.mark.parametrize("progress", [False, None, lambda text: None])
def test_nothing_is_said_where_nobody_asked_for_it_on_standard_error(capsys, progress):
    shown(lambda report: report and report("half way"), progress, "loading")
    shown(lambda report: report and report("half way"), True)
    assert capsys.readouterr().err == "half way\n"


def test_serve_says_what_it_loads_where_there_is_no_terminal(tmp_path):
    command = [sys.executable, "-m", "agentcache", "serve", "--model", str(tmp_path), "--port", "0", "--device", "cpu"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[0] == f"loading {tmp_path}" and "error:" in ran.stderr.splitlines()[1]
