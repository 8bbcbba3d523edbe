"""What can go wrong around ``agentcache lint``: streams, disks, interrupts, terminals, names of files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lint_commands import CLOCK, run_main
from lint_workloads import write_jsonl


def test_a_reader_that_has_seen_enough_changes_no_exit_code(files, tokenizer_folder):
    run = f"{sys.executable} -m agentcache lint {files['clock']} --tokenizer {tokenizer_folder} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", run], capture_output=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == (b"1\n", b"")


@pytest.mark.parametrize("flags", [(), ("--output-file", "/dev/full")])
def test_a_full_disk_is_an_error_in_one_line(files, tokenizer_folder, flags):
    run = [sys.executable, "-m", "agentcache", "lint", files["clock"], "--tokenizer", str(tokenizer_folder), *flags]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and b"No space left" in done.stderr


@pytest.mark.parametrize("flag", ["--output-file", "--write-baseline"])
def test_standard_output_can_be_named_when_it_is_a_file_that_others_write_to(tmp_path, files, tokenizer_folder, flag):
    out = tmp_path / "out.txt"
    run = f"{sys.executable} -m agentcache lint {files['clock']} --tokenizer {tokenizer_folder} -q {flag} /dev/stdout"
    done = subprocess.run(
        ["bash", "-c", f"(echo first; {run}; echo last) > {out}"], capture_output=True, timeout=120, check=False
    )
    lines = out.read_text("utf-8").splitlines()
    assert (done.stderr, lines[0], lines[-1]) == (b"", "first", "last")
    assert any("AC101" in line for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("out")) == ["out.txt"]


def test_an_interrupt_is_one_line_and_130(tmp_path, tokenizer_folder):
    pipe = tmp_path / "requests.jsonl"
    os.mkfifo(pipe)
    run = [sys.executable, "-m", "agentcache", "lint", str(pipe), "--tokenizer", str(tokenizer_folder)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process, pipe.open("wb"):
        process.send_signal(signal.SIGINT)  # the pipe could be opened, so it is being read
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"interrupted\n")


def test_a_fault_of_the_linter_is_2_in_one_line(capsys, monkeypatch, files, tokenizer_folder):
    def broken(*_):
        raise IndexError("index\nout of range")

    monkeypatch.setattr("agentcache.lint.command.run.write", broken)
    flags = (files["clock"], "--tokenizer", str(tokenizer_folder))
    code, out, err = run_main(capsys, *flags)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("error: this is a fault of the linter: IndexError: index") and "--traceback" in err
    code, out, err = run_main(capsys, *flags, "--traceback")
    assert (code, out, "in broken" in err) == (2, "", True)


def test_an_interrupt_while_the_linter_is_imported_is_told_like_any_other(files):
    program = (
        "import sys\nfrom agentcache.cli import main\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('agentcache.lint.command'):\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        f"sys.exit(main(['lint', {files['clock']!r}]))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, b"", b"interrupted\n")


def test_the_module_of_the_command_line_can_be_run():
    run = [sys.executable, "-m", "agentcache.cli", "lint", "rule", "AC101"]
    done = subprocess.run(run, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout[:5]) == (0, b"AC101")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_streams_are_no_traceback(tokenizer_folder, tmp_path, closed):
    run = f"{sys.executable} -m agentcache lint - --tokenizer {tokenizer_folder} </dev/null 2>{tmp_path}/err {closed}"
    done = subprocess.run(["bash", "-c", run], capture_output=True, timeout=120, check=False)
    assert done.returncode == (0 if closed == "2>&-" else 2)
    assert b"Traceback" not in done.stdout + done.stderr + (tmp_path / "err").read_bytes()


@pytest.mark.parametrize("arguments", [("rule", "--output-format", "markdown"), ("FILE",)])
def test_a_terminal_without_unicode_gets_escapes(files, tokenizer_folder, arguments):
    arguments = tuple(files["clock"] if word == "FILE" else word for word in arguments)
    flags = ("--tokenizer", str(tokenizer_folder)) if arguments[0] != "rule" else ()
    run = [sys.executable, "-m", "agentcache", "lint", *arguments, *flags]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(run, capture_output=True, timeout=120, check=False, env=environment)
    assert (done.returncode, done.stderr) == (1 if flags else 0, b"")
    done.stdout.decode("ascii")


@pytest.mark.parametrize("style", ["full", "concise", "json", "jsonl", "sarif", "github", "junit"])
def test_names_of_files_can_be_odd(capsys, tmp_path, tokenizer_folder, style):
    for name in ("a\x1b[2J.jsonl", "ü.jsonl", "a b.jsonl", "\udcff.jsonl"):
        file = write_jsonl(tmp_path / name, CLOCK)
        code, out, err = run_main(capsys, str(file), "--tokenizer", str(tokenizer_folder), "--output-format", style)
        assert (code, err) == (1, "")
        assert "\x1b" not in out and "AC101" in out
        out.encode("utf-8")
