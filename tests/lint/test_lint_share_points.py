"""AC501 and AC502: where sessions stop being equal."""

from __future__ import annotations

import pytest
from lint_workloads import INSTRUCTIONS, chat, ids_of

from agentcache.chat.text import common_length

PAGE = 16
TASKS = ("Fix the parser.", "Write the docs.", "Answer the mail.")


def sessions(system: str, tasks=TASKS[:2], turns: int = 2):
    return [request for task in tasks for request in chat(lambda turn: system, turns=turns, task=task)]


def shared_tokens(folder, system: str) -> int:
    """Tokens up to where the user's text begins, the same for every task."""
    first, second = ids_of(folder, [chat(lambda turn: system, turns=1, task=task)[0] for task in ("A", "B")])
    return next(i for i, (a, b) in enumerate(zip(first, second)) if a != b)


def parting_token(folder, *requests) -> int:
    return next(i for i, (a, b) in enumerate(zip(*ids_of(folder, requests))) if a != b)


def padded(folder, tail: int, at_least: int = 3 * PAGE, base: str = INSTRUCTIONS) -> str:
    """A system text whose shared beginning ends ``tail`` tokens behind a page boundary."""
    for count in range(64):
        text = base + "!? " * count
        tokens = shared_tokens(folder, text)
        if tokens % PAGE == tail and tokens >= at_least:
            return text
    raise AssertionError(f"no padding gives a tail of {tail}")


@pytest.mark.parametrize("tail", [1, 7, 15])
def test_a_share_point_inside_a_page_says_how_much_would_align_it(lint, tokenizer_folder, tail):
    system = padded(tokenizer_folder, tail)
    code, [finding] = lint(sessions(system))
    assert code == 1
    assert (finding["code"], finding["severity"]) == ("AC501", "info")
    tokens = shared_tokens(tokenizer_folder, system)
    where = finding["location"]
    assert (where["token"], where["page"], where["record"]) == (tokens, tokens // PAGE, 3)
    assert (where["path"], where["char"]) == ("messages[0].content", len(system.rstrip()))
    assert (finding["tokens_lost"], finding["tokens_lost_kind"], finding["shared_by"]) == (tail, "upper_bound", 2)
    assert f"{tail} more than whole pages of {PAGE}" in finding["message"]
    assert f"{PAGE - tail} more tokens" in finding["help"]


def test_an_aligned_share_point_is_clean(lint, tokenizer_folder):
    assert lint(sessions(padded(tokenizer_folder, 0))) == (0, [])


def test_one_session_alone_shares_nothing(lint, tokenizer_folder):
    assert lint(chat(lambda turn: padded(tokenizer_folder, 7))) == (0, [])


def test_three_sessions_share_one_point_and_each_after_the_first_loses(lint, tokenizer_folder):
    _, findings = lint(sessions(padded(tokenizer_folder, 7), TASKS))
    assert [(f["code"], f["shared_by"], f["tokens_lost"]) for f in findings] == [("AC501", 3, 14)]


def test_first_words_that_happen_to_be_equal_are_no_share_point(lint, tokenizer_folder):
    tasks = ("Fix the parser.", "Fix the lexer.", "Fix the docs.")
    assert lint(sessions(padded(tokenizer_folder, 0), tasks)) == (0, [])


def test_sessions_that_join_a_longer_share_point_later_count_at_the_shorter_one(lint, tokenizer_folder):
    team = padded(tokenizer_folder, 7)
    project = padded(tokenizer_folder, 5, base=team + "This project is written in Python and has no tests yet. ")
    other = padded(tokenizer_folder, 3, base=team + "That project is a manual in four languages, kept as text. ")
    first, second, third = sessions(project, TASKS[:2], turns=1) + sessions(other, TASKS[2:], turns=1)
    inside = common_length(project, other)
    _, findings = lint([first, second, third], "--page-size", "7")
    assert {(f["location"]["token"], f["location"]["char"], f["shared_by"]) for f in findings} == {
        (parting_token(tokenizer_folder, first, second), len(project.rstrip()), 2),
        (parting_token(tokenizer_folder, first, third), inside, 3),
    }


def test_the_page_size_decides(lint, tokenizer_folder):
    system = padded(tokenizer_folder, 8)
    assert lint(sessions(system), "--page-size", "8") == (0, [])
    code, [finding] = lint(sessions(system), "--page-size", "16")
    assert (code, finding["code"]) == (1, "AC501")


def test_a_shared_beginning_below_a_page_is_reported(lint, tokenizer_folder):
    tokens = shared_tokens(tokenizer_folder, "Be brief.")
    page = str(tokens + 1)
    code, [finding] = lint(sessions("Be brief."), "--page-size", page)
    assert (code, finding["code"], finding["severity"]) == (1, "AC502", "info")
    assert finding["location"]["token"] == tokens
    assert finding["location"]["path"] == "messages[0].content"
    assert (finding["tokens_lost"], finding["shared_by"]) == (tokens, 2)
    assert f"first {tokens} tokens, less than a page of {page}" in finding["message"]


def test_a_shared_beginning_of_exactly_a_page_is_clean(lint, tokenizer_folder):
    tokens = shared_tokens(tokenizer_folder, "Be brief.")
    assert lint(sessions("Be brief."), "--page-size", str(tokens)) == (0, [])


def test_sessions_that_share_only_what_the_template_prints_are_clean(lint):
    requests = [{"messages": [{"role": "user", "content": task}]} for task in TASKS]
    assert lint(requests) == (0, [])
    assert lint(sessions("Be brief.", TASKS[:1]) + sessions("Talk at length.", TASKS[1:2])) == (0, [])


def test_a_clock_hides_the_share_point_behind_it(lint):
    requests = []
    for stamp, task in zip(("10:30:05", "10:31:47"), TASKS):
        requests += chat(lambda turn, stamp=stamp: f"It is {stamp}. {INSTRUCTIONS}", task=task)
    _, findings = lint(requests)
    assert [f["code"] for f in findings] == ["AC101"]


@pytest.mark.parametrize(
    ("a", "b", "common"), [("", "", 0), ("abc", "abd", 2), ("abc", "abc", 3), ("abc", "abcd", 3), ("x" * 999, "y", 0)]
)
def test_common_length(a, b, common):
    assert common_length(a, b) == common_length(b, a) == common
