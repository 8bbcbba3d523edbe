"""The parts of the linter on their own: times in text, sessions, where strings are rendered to."""

from __future__ import annotations

import pytest
from lint_workloads import INSTRUCTIONS, STAMPS, chat
from tiny_tokenizer import CHATML

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.leaves import locate, offset_in, replace_at
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.readers.dialects import to_record
from agentcache.lint.records import Record
from agentcache.lint.sessions import SessionBook
from agentcache.lint.times import find_times, mask_times

PAGE = 16


@pytest.mark.parametrize(
    ("text", "found", "granularity"),
    [
        ("It is 2026-11-29T15:02:37Z now", "2026-11-29T15:02:37Z", "SECOND"),
        ("at 2026-11-29 15:02:37.123456+00:00,", "2026-11-29 15:02:37.123456+00:00", "FRACTION"),
        ("Sun Nov 29 15:02:37 UTC 2026", "Sun Nov 29 15:02:37 UTC 2026", "SECOND"),
        ("Sun, 29 Nov 2026 15:02:37 GMT", "Sun, 29 Nov 2026 15:02:37 GMT", "SECOND"),
        ("on November 29, 2026 3:02 PM.", "November 29, 2026 3:02 PM", "MINUTE"),
        ("10:30:05, Nov 29, 2026", "10:30:05, Nov 29, 2026", "SECOND"),
        ("Today is Sunday, 29 November 2026.", "Sunday, 29 November 2026", "DAY"),
        ("11/29/2026", "11/29/2026", "DAY"),
        ("29.11.2026", "29.11.2026", "DAY"),
        ("now=1764428557", "1764428557", "SECOND"),
        ("now=1764428557123", "1764428557123", "FRACTION"),
        ("run-20261129T150237Z", "20261129T150237Z", "SECOND"),
        ("[10:32] hi", "10:32", "MINUTE"),
        ("around 3 PM", "3 PM", "HOUR"),
        ("It is Tuesday", "Tuesday", "DAY"),
    ],
)
def test_times_are_found_whole(text, found, granularity):
    [time] = find_times(text)
    assert (text[time.start : time.end], time.granularity.name) == (found, granularity)


@pytest.mark.parametrize(
    "text",
    [
        "version 1.2.3",
        "127.0.0.1:8080",
        "parser.py:10:30",
        "2026-13-29",
        "25:61",
        "0x1764428557",
        "1234567890abc",
        "may",
    ],
)
def test_what_is_no_time(text):
    assert list(find_times(text)) == []
    assert mask_times(text) == text


def test_texts_that_differ_by_a_time_are_equal_when_masked():
    first, second = (f"[{stamp}] Hello" for stamp in STAMPS["second"][:2])
    assert mask_times(first) == mask_times(second) != "Hello"


# -- sessions -----------------------------------------------------------------------------------------------------


def numbers(bodies) -> list[int]:
    book = SessionBook()
    records = [to_record(body, "x", line) for line, body in enumerate(bodies, 1)]
    assert all(isinstance(record, Record) for record in records)
    return [book.assign(record).number for record in records]


def test_growing_chats_are_told_apart_even_when_their_turns_alternate():
    first, second = chat(lambda turn: INSTRUCTIONS), chat(lambda turn: INSTRUCTIONS, task="Write the docs.")
    assert numbers([body for pair in zip(first, second) for body in pair]) == [0, 1, 0, 1, 0, 1]


def test_a_slot_in_the_system_text_does_not_end_a_session():
    assert numbers(chat(lambda turn: f"id {turn * 7919} {INSTRUCTIONS}")) == [0, 0, 0]


def test_two_agents_with_one_task_are_two_sessions():
    planner, coder = chat(lambda turn: INSTRUCTIONS), chat(lambda turn: "Answer in one word. No explanations at all.")
    assert numbers([body for pair in zip(planner, coder) for body in pair]) == [0, 1, 0, 1, 0, 1]


def test_named_sessions_go_by_their_name():
    hello = [{"role": "user", "content": "Hello"}]
    bye = [{"role": "user", "content": "Bye"}]
    assert numbers([{"session": "a", "messages": hello}, {"session": "b", "messages": hello}]) == [0, 1]
    assert numbers([{"session": "a", "messages": hello}, {"session": "a", "messages": bye}]) == [0, 0]
    assert numbers([{"user": "a", "messages": hello}, {"user": "b", "messages": hello}]) == [0, 1]
    assert numbers([{"prompt_cache_key": "k", "messages": hello}, {"prompt_cache_key": "k", "messages": bye}]) == [0, 1]


def test_a_first_message_with_a_new_stamp_continues_its_session():
    bodies = chat(lambda turn: INSTRUCTIONS, turns=2)
    for turn, body in enumerate(bodies):
        body["messages"][1] = {"role": "user", "content": f"[{STAMPS['second'][turn]}] Hello"}
    assert numbers(bodies) == [0, 0]


def test_prompts_kept_for_comparison_are_bounded(tokenizer_folder):
    maker = PromptMaker(ChatRenderer(Tokenizer.from_folder(tokenizer_folder)), PAGE)
    book = SessionBook(kept_chars=30_000)
    sessions = []
    for number in range(20):
        record = Record("x", number + 1, chat(lambda turn: INSTRUCTIONS, turns=1, task=f"Task {number}: ")[0])
        prompt = maker.make(record)
        sessions.append(book.assign(record))
        book.keep(sessions[-1], prompt, prompt)
    kept = [session for session in sessions if book.get(session.number) is not None]
    assert kept == sessions[-len(kept) :]
    assert 1 < len(kept) < 10  # a prompt takes more than its text
    assert 0 < sum(session.chars for session in kept) <= 30_000
    assert book.count == 20


# -- strings and where they are rendered to -----------------------------------------------------------------------


def test_every_string_is_located_where_the_template_printed_it(tokenizer_folder):
    body = {
        "messages": [
            {"role": "system", "content": "user"},
            {"role": "user", "content": [{"type": "text", "text": "user"}, {"type": "text", "text": " system "}]},
            {"role": "assistant", "content": "assistant"},
            {"role": "user", "content": "user"},
        ]
    }
    maker = PromptMaker(ChatRenderer(Tokenizer.from_folder(tokenizer_folder), CHATML), PAGE)
    prompt = maker.make(Record("x", 1, body))
    assert [prompt.path(leaf.keys) for leaf in prompt.leaves] == [
        "messages[0].content",
        "messages[1].content[0].text",
        "messages[1].content[1].text",
        "messages[2].content",
        "messages[3].content",
    ]
    assert [prompt.text_of(leaf) for leaf in prompt.leaves] == ["user", "user", "system", "assistant", "user"]
    # None of the five is the role marker that is spelled the same.
    assert all(not prompt.text[: leaf.start].endswith("<|im_start|>") for leaf in prompt.leaves)


def test_strings_that_a_template_leaves_out_have_no_place():
    body = {"messages": [{"role": "system", "content": "secret"}, {"role": "user", "content": "Hi"}]}
    [leaf] = locate(body, "Hi!", lambda shown: shown["messages"][1]["content"] + "!")
    assert (leaf.keys, leaf.start, leaf.end) == (("messages", 1, "content"), 0, 2)


def test_offsets_go_back_through_json_and_trimming():
    assert offset_in("  abc", "abc", 2, 1) == 3
    assert offset_in('say "hi" now', 'say \\"hi\\" now', 0, 10) == 8
    assert offset_in("abc", "ABC", 0, 2) is None


def test_replacing_shares_what_it_does_not_touch():
    body = {"messages": [{"content": "a"}, {"content": "b"}], "tools": [1]}
    new = replace_at(body, ("messages", 0, "content"), "z")
    assert new == {"messages": [{"content": "z"}, {"content": "b"}], "tools": [1]}
    assert body["messages"][0]["content"] == "a" and new["messages"][1] is body["messages"][1]
