"""``agentcache lint --live``: what the command makes of a server's answer."""

from __future__ import annotations

import json

import pytest
from lint_commands import run_main

from agentcache.lint.finding import Finding, Location
from agentcache.lint.live.report import LiveReport


def finding_of_a_server(code: str, verdict: str = "waste") -> Finding:
    where = Location(file="http://127.0.0.1:8100", record=7, path="messages[0].content")
    return Finding(
        code=code, name="n", severity="warning", verdict=verdict, location=where, tokens_lost=40, message="m"
    )


@pytest.fixture
def asked(monkeypatch):
    """What ``--live`` asks for, while a server answers with two findings."""
    calls = []

    def answer(url, key):
        calls.append((url, key))
        found = (finding_of_a_server("AC801", "unavoidable"), finding_of_a_server("AC103"))
        pages = {"total": 10, "free": 4, "live": 2, "cached": 3, "pinned": 1}
        return LiveReport(found, 5, 2, 1, 900, 400, 16, pages, {}, {})

    monkeypatch.setattr("agentcache.lint.command.server.live_findings", answer)
    monkeypatch.delenv("AGENTCACHE_API_KEY", raising=False)
    return calls


def test_a_servers_findings_are_sieved_like_those_of_files(capsys, asked):
    flags = ("--live", "http://127.0.0.1:8100", "--output-format", "json")
    code, out, _ = run_main(capsys, *flags)
    assert (code, [finding["code"] for finding in json.loads(out)]) == (1, ["AC801", "AC103"])
    code, out, _ = run_main(capsys, *flags, "--select", "AC8")
    assert (code, [finding["code"] for finding in json.loads(out)]) == (1, ["AC801"])
    assert run_main(capsys, *flags, "--min-tokens-lost", "41")[:2] == (0, "[]\n")
    assert run_main(capsys, *flags, "--exit-zero")[0] == 0
    _, out, err = run_main(capsys, *flags[:2], "--statistics")
    assert "2 findings in 5 requests of 1 session" in out and "10 total, 4 free" in err


def test_a_server_is_no_file_and_its_sessions_may_have_no_names(capsys, asked, monkeypatch):
    flags = ("--live", "http://127.0.0.1:8100")
    _, out, _ = run_main(capsys, *flags, "--output-format", "github")
    assert (
        out.splitlines()[0]
        == "::warning title=agentcache AC801 n::http://127.0.0.1:8100: messages[0].content: m [40 tokens lost]"
    )
    pages = dict.fromkeys(("total", "free", "live", "cached", "pinned"), 1)
    nameless = LiveReport((finding_of_a_server("AC103"),), 5, 2, 0, 900, 400, 16, pages, {}, {})
    monkeypatch.setattr("agentcache.lint.command.server.live_findings", lambda url, key: nameless)
    _, out, _ = run_main(capsys, *flags, "--statistics")
    assert "1 finding in 5 requests" in out and "5 requests, 900 prompt tokens" in out and "session" not in out


@pytest.mark.parametrize("flags", [("--page-size", "8"), ("--tokenizer", "x"), ("--template", "x"), ("--exclude", "x")])
def test_what_is_about_files_is_not_asked_of_a_server(capsys, asked, flags):
    code, _, err = run_main(capsys, "--live", "http://127.0.0.1:8100", *flags)
    assert (code, f"got {flags[0]} beside it" in err, asked) == (2, True, [])


def test_the_key_of_a_server_comes_from_the_flag_or_the_environment(capsys, monkeypatch, asked):
    flags = ("--live", "http://127.0.0.1:8100")
    run_main(capsys, *flags)
    monkeypatch.setenv("AGENTCACHE_API_KEY", "of the environment")
    run_main(capsys, *flags)
    run_main(capsys, *flags, "--api-key", "of the flag")
    assert [key for _, key in asked] == [None, "of the environment", "of the flag"]


@pytest.mark.parametrize("flags", [("a.jsonl",), ("--fix",), ("--diff",), ("--write-baseline", "b.json")])
def test_a_server_is_asked_alone(capsys, asked, flags):
    code, _, err = run_main(capsys, "--live", "http://127.0.0.1:8100", *flags)
    assert (code, "--live asks a server and reads no files" in err, asked) == (2, True, [])


def test_a_server_that_is_not_there_is_an_error(capsys):
    code, _, err = run_main(capsys, "--live", "http://127.0.0.1:9")
    assert (code, err.startswith("error: ")) == (2, True)
