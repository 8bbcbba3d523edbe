"""``examples/cluster/turns.py`` against two servers."""

from __future__ import annotations

import re

import pytest
from live import live_server

from examples.cluster.turns import Client, TurnFailedError, main


@pytest.fixture(scope="module")
def urls(model):
    with live_server(model, replica="r0") as first, live_server(model, replica="r1") as second:
        yield first.url, second.url


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def rows(printed: str) -> list[list[str]]:
    """Cells of the table's lines."""
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_each_turn_says_who_answered_and_what_was_cached(urls, capsys):
    asked = [part for url in urls for part in ("--url", url)]
    assert main([*asked, "--agents", "2", "--turns", "3", "--max-tokens", "4"]) == 0
    printed = capsys.readouterr().out
    found = rows(printed)
    assert max(map(len, printed.splitlines())) <= 80
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


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "127.0.0.1:9", "nonsense"])
def test_an_address_where_nobody_is_is_named(url, capsys):
    assert main(["--url", url]) == 1
    assert f"error: {url}/v1/models: " in capsys.readouterr().err


def test_sessions_at_an_address_that_makes_none_say_where_to_make_them(urls, capsys):
    other = f"{urls[0]}/elsewhere"
    assert main(["--url", urls[1], "--agents", "1", "--turns", "1", "--sessions", "--sessions-at", other]) == 1
    error = capsys.readouterr().err
    assert f"no sessions are made at {other}" in error and "--sessions-at http://" in error


def test_a_line_comes_as_its_turn_ends_and_fits_a_narrow_terminal(urls, capsys, monkeypatch):
    printed = []

    def turn(client, url, agent, text):
        printed.append(capsys.readouterr().out)
        if len(printed) == 3:
            raise TurnFailedError("no more")
        tiers = {"device": 1024, "host": 0, "disk": 0, "store": 224}
        return "r7f3k2", {"prompt_tokens": 11_234, "cached_tokens": 1248, "computed_tokens": 9986, "tiers": tiers}

    monkeypatch.setattr(Client, "turn", turn)
    assert main(["--url", urls[0], "--agents", "1", "--turns", "3"]) == 1
    assert [len(rows(text)) for text in printed] == [0, 1, 1]
    (row,) = rows(printed[1])
    assert row[:5] == ["0", "0", "r7f3k2", "11,234", "1,248"] and row[-1] == "device 1,024, store 224"
    assert {len(line) <= 80 for text in printed for line in text.splitlines()} == {True}
