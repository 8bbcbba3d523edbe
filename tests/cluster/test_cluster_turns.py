"""``examples/cluster/turns.py`` against two servers."""

from __future__ import annotations

import re

import pytest
from live import live_server

from examples.cluster.turns import main


@pytest.fixture(scope="module")
def urls(model):
    with live_server(model, replica="r0") as first, live_server(model, replica="r1") as second:
        yield first.url, second.url


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def rows(printed: str) -> list[list[str]]:
    """Cells of the table's lines."""
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_each_turn_says_who_answered_and_what_was_cached(urls, capsys):
    asked = [part for url in urls for part in ("--url", url)]
    assert main([*asked, "--agents", "2", "--turns", "3", "--max-tokens", "4"]) == 0
    printed = capsys.readouterr().out
    found = rows(printed)
    assert [row[:3] for row in found] == [
        ["0", "0", "r0"], ["1", "0", "r1"], ["0", "1", "r1"], ["1", "1", "r0"], ["0", "2", "r0"], ["1", "2", "r1"],
    ]  # fmt: skip
    cached = [int(row[4].replace(",", "")) for row in found]
    assert cached[:2] == [0, 0] and min(cached[4:]) > 300  # back where it has been
    assert re.search(r"\d+\.\d% of [\d,]+ prompt tokens were cached", printed)


def test_turns_of_sessions_go_where_they_were_made(urls, capsys):
    assert main(["--url", urls[0], "--agents", "1", "--turns", "3", "--max-tokens", "4", "--sessions"]) == 0
    cached = [int(row[4].replace(",", "")) for row in rows(capsys.readouterr().out)]
    assert cached == sorted(cached) and cached[1] > 300


def test_what_is_refused_is_told_with_its_status(urls, capsys):
    assert main(["--url", urls[0], "--model", "another"]) == 1
    assert f"{urls[0]}/v1/chat/completions: 404" in capsys.readouterr().err
    assert main(["--url", "http://127.0.0.1:9"]) == 1
