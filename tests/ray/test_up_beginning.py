"""What `agentcache up` sees to before there is a cluster.  Without Ray."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from real_ray import command, environment

from agentcache.cli import main
from agentcache.errors import SettingsError
from agentcache.ray.app import checked_for_cluster
from agentcache.ray.joining import _left, ended_by_us_alone
from agentcache.ray.places import own_settings
from agentcache.ray.settings import ClusterSettings
from agentcache.ray.up import _banner, _check_outside, _drain, _Stop, _watch
from agentcache.settings import Settings

# -- ports --------------------------------------------------------------------------------------------------------------


def endpoints(events: str | None, replay: str | None, rank: int) -> tuple[str | None, str | None]:
    mine = own_settings(Settings(kv_events=events, kv_events_replay=replay), "abc", rank)
    return mine.kv_events, mine.kv_events_replay


@pytest.mark.parametrize("distance", [1, 2, 3, 7, 100, -1, -6])
def test_no_two_endpoints_of_replicas_on_a_machine_meet(distance):
    found = [given for rank in range(9) for given in endpoints("tcp://*:5557", f"tcp://*:{5557 + distance}", rank)]
    assert len(set(found)) == 18


@pytest.mark.parametrize(
    "events, replay, second",
    [
        ("tcp://*:5557", None, ("tcp://*:5558", None)),
        ("tcp://*:5557", "tcp://*:5558", ("tcp://*:5559", "tcp://*:5560")),
        ("@tcp://10.0.0.5:5557", "tcp://10.0.0.5:5558", ("@tcp://10.0.0.5:5559", "tcp://10.0.0.5:5560")),
        ("tcp://[::]:5557", None, ("tcp://[::]:5558", None)),
        ("tcp://router:5557", "tcp://*:5600", ("tcp://router:5557", "tcp://*:5601")),
        (">ipc:///run/router", None, (">ipc:///run/router", None)),
        ("ipc:///run/events", "ipc:///run/replay", ("ipc:///run/events-1", "ipc:///run/replay-1")),
        ("tcp://*:*", "tcp://*:5600", ("tcp://*:*", "tcp://*:5601")),
    ],
)
def test_what_is_listened_at_is_counted_up_and_what_is_connected_to_is_not(events, replay, second):
    assert endpoints(events, replay, 0) == (events, replay)
    assert endpoints(events, replay, 1) == second


def test_ports_that_there_are_not_are_told_before_anything_starts():
    settings = Settings(kv_events="tcp://*:65534", kv_events_replay="tcp://*:65535")
    checked_for_cluster(settings, ClusterSettings())
    with pytest.raises(
        SettingsError, match="--kv-events tcp://\\*:65534: 2 replicas would listen at ports up to 65536"
    ):
        checked_for_cluster(settings, ClusterSettings(replicas=2))
    with pytest.raises(SettingsError, match="--kv-events: got 'nonsense'"):
        checked_for_cluster(Settings(kv_events="nonsense"), ClusterSettings())


# -- what is outside ----------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where nobody answers."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def test_a_store_that_does_not_answer_is_told_before_the_model_and_ray(nobody, tmp_path):
    asked = command(
        "up", "--model", str(tmp_path / "absent.gguf"), "--port", "0", "--store", f"redis://127.0.0.1:{nobody}/0"
    )
    ended = subprocess.run(
        asked, check=False, env=environment(), capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert ended.returncode == 2
    assert "error: --store: " in ended.stderr and "--store-optional serves without it" in ended.stderr


def test_an_endpoint_that_cannot_be_used_is_told_for_every_replica(nobody):
    two = ClusterSettings(replicas=2)
    with pytest.raises(SettingsError, match="nobody answers"):
        _check_outside(Settings(kv_events=f"tcp://127.0.0.1:{nobody}"), two)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        above = taken.getsockname()[1]
        below = Settings(kv_events=f"tcp://*:{above - 1}")
        with pytest.raises(SettingsError, match=f"--kv-events tcp://\\*:{above}"):
            _check_outside(below, two)
        _check_outside(below.model_copy(update={"store_optional": True}), two)


def test_what_may_be_missing_is_no_reason_not_to_start(nobody):
    settings = Settings(
        store=f"redis://127.0.0.1:{nobody}/0", kv_events=f"tcp://127.0.0.1:{nobody}", store_optional=True
    )
    _check_outside(settings, ClusterSettings(replicas=2))


# -- words --------------------------------------------------------------------------------------------------------------


def test_a_name_for_all_replicas_is_refused_in_our_words(capsys):
    assert main(["up", "--replica", "r0"]) == 2
    assert "--replica r0: replicas of a cluster get their names from it" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["serve", "--page-siz", "16"], ["up", "--replic", "2"], ["models", "--hom", "x"]])
def test_no_flag_stands_for_a_longer_one(argv, capsys):
    assert main(argv) == 2
    assert f"unrecognized arguments: {argv[1]}" in capsys.readouterr().err


class Ingresses:
    """Handles of ingresses that have so many requests."""

    def __init__(self, left: int) -> None:
        self._left = left

    def broadcast(self, method: str) -> Ingresses:
        return self

    def results(self, timeout_s: float) -> list[int]:
        return [self._left]


@pytest.mark.parametrize("left, said", [(1, "1 request is being"), (2, "2 requests are being")])
def test_how_many_requests_are_left_is_said_in_good_english(left, said, caplog):
    stop = _Stop()
    stop.asked = 2
    _drain(Ingresses(left), 60, stop)
    assert f"{said} answered; Ctrl-C again cuts them" in caplog.text


# -- the end ------------------------------------------------------------------------------------------------------------


class HalfGone:
    """The part of Ray that knows which of its processes have ended, and must not be asked more."""

    def __init__(self) -> None:
        self.killed = False

    def dead_processes(self) -> list[tuple[str, None]]:
        return [("log_monitor", None), ("raylet", None)]

    def kill_all_processes(self, **how: bool) -> None:
        self.killed = True


def test_a_ray_that_is_half_gone_is_told_and_not_waited_for(monkeypatch):
    node = HalfGone()
    monkeypatch.setattr("ray._private.worker._global_node", node)
    monkeypatch.setattr("psutil.Process.children", lambda *_, **__: [])
    at_exit: list[Any] = []
    monkeypatch.setattr("atexit.register", lambda *what: at_exit.append(what))
    assert _watch(_Stop()) == "Ray's raylet has ended, and nothing can be served without it"
    _left()
    assert node.killed and at_exit == [(os._exit, 1)]


_BLOCKED = "import signal; print(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


def test_who_ends_all_processes_ends_none_that_only_we_should_end():
    def blocked() -> str:
        return subprocess.run(
            [sys.executable, "-c", _BLOCKED], capture_output=True, text=True, check=True
        ).stdout.strip()

    with ended_by_us_alone():
        assert blocked() == "True"
    assert blocked() == "False"


def test_the_banner_says_who_may_come_in_and_what_replicas_share(capsys):
    settings = Settings(model="stub", api_keys=("one",), store="redis://me:hush@127.0.0.1:6390/0", port=8123)
    _banner(settings, ClusterSettings(min_replicas=1, max_replicas=3))
    out = capsys.readouterr().out
    facts = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (facts["replicas"], facts["store"], facts["sessions"], facts["address"]) == (
        "1 to 3",
        "redis://***@127.0.0.1:6390/0",
        "in the store",
        "http://127.0.0.1:8123",
    )
    assert facts["keys"].startswith("1 of clients") and "hush" not in out
