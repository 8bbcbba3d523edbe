"""The clusters that come as examples, as they are: run, asked, hit with a kill, stopped."""

from __future__ import annotations

import os
import signal

import pytest
from gateway import ROOT, SMG
from runner import Run

from bench.cluster_parts.programs import free_port
from examples.cluster.turns import main

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FILES = ROOT / "examples" / "cluster"


@pytest.fixture
def start(tmp_path, model):
    runs: list[Run] = []

    def begin(name: str, *ports: str, **variables: str) -> tuple[Run, dict[str, str]]:
        values = {"model": str(model), **variables, **{port: str(free_port()) for port in ports}}
        changes = [part for variable, value in values.items() for part in ("--set", f"{variable}={value}")]
        run = Run(FILES / f"{name}.toml", tmp_path, *changes, env={"RAY_AUTH_MODE": "disabled"})
        runs.append(run)
        run.wait_for("everything is ready", 300)
        return run, {port: f"http://127.0.0.1:{values[port]}" for port in ports}

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.stop(within_s=120)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


def answered(printed: str) -> set[str]:
    rows = [line.strip("│").split("│") for line in printed.splitlines() if line.startswith("│")]
    return {row[2].strip() for row in rows}


def test_two_servers_with_a_folder(start, capsys):
    run, urls = start("replicas", "port0", "port1")
    asked = [part for url in urls.values() for part in ("--url", url)]
    assert main([*asked, "--agents", "4", "--turns", "3", "--max-tokens", "4"]) == 0
    printed = capsys.readouterr().out
    assert answered(printed) == {"r0", "r1"}
    assert run.stop(within_s=60) == 0


def test_a_gateway_and_a_server_that_dies_and_comes_back(start, capsys):
    assert SMG.exists(), f"{SMG} is missing: `make test-cluster` installs it"
    run, urls = start("gateway", "port", "port0", "port1", "store_port", "metrics_port", smg=str(SMG))
    turns = ["--url", urls["port"], "--agents", "3", "--turns", "3", "--max-tokens", "4"]
    assert main(turns) == 0
    os.kill(int(run.wait_for("r0 is ready, process").split()[-1]), signal.SIGKILL)
    assert main(turns) == 0
    assert main([*turns, "--sessions", "--sessions-at", urls["port1"]]) == 0
    run.wait_for("r0 is ready again", 120)
    assert answered(capsys.readouterr().out) <= {"r0", "r1"}
    assert run.stop(within_s=60) == 0


def test_replicas_on_ray(start, capsys):
    run, urls = start("ray", "port", "store_port")
    turns = ["--url", urls["port"], "--agents", "3", "--turns", "3", "--max-tokens", "4"]
    assert main(turns) == 0
    assert main([*turns, "--sessions"]) == 0
    assert run.stop(within_s=120) == 0
