"""AC101: times in what requests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_workloads import INSTRUCTIONS, STAMPS, chat, ids_of, recount

PAGE = 16
PLACES = {
    "head": "It is {}. " + INSTRUCTIONS,
    "middle": INSTRUCTIONS + "It is {}. " + INSTRUCTIONS,
    "end": INSTRUCTIONS + "It is {}.",
}


@pytest.mark.parametrize("unit", STAMPS)
@pytest.mark.parametrize("place", PLACES)
def test_a_clock_in_the_system_text_is_reported_once_with_place_and_loss(lint, tokenizer_folder, place, unit):
    defective = chat(lambda turn: PLACES[place].format(STAMPS[unit][turn]))
    sound = chat(lambda turn: PLACES[place].format(STAMPS[unit][0]))
    code, findings = lint(defective)
    assert code == 1
    [finding] = findings
    before, after = (request["messages"][0]["content"] for request in defective[:2])
    char = next(i for i, (a, b) in enumerate(zip(before, after)) if a != b)
    ids = ids_of(tokenizer_folder, defective)
    token = next(i for i, (a, b) in enumerate(zip(*ids[:2])) if a != b)
    assert finding["code"] == "AC101" and finding["confidence"] == "confirmed"
    assert finding["location"]["record"] == 2
    assert finding["location"]["path"] == "messages[0].content"
    assert finding["location"]["char"] == char
    assert finding["location"]["token"] == token
    assert finding["location"]["page"] == token // PAGE
    assert finding["compared_to"].endswith("run.jsonl:1")
    assert STAMPS[unit][0] in finding["before"] and STAMPS[unit][1] in finding["after"]
    lost = sum(recount(ids_of(tokenizer_folder, sound))) - sum(recount(ids))
    assert lost > 0
    assert (finding["tokens_lost"], finding["tokens_lost_kind"]) == (lost, "exact")


@pytest.mark.parametrize("place", PLACES)
def test_the_twin_whose_clock_stands_still_is_clean(lint, place):
    assert lint(chat(lambda turn: PLACES[place].format(STAMPS["second"][0]))) == (0, [])


def test_a_date_weighs_less_than_a_clock(lint):
    severity = {}
    for unit, stamps in STAMPS.items():
        _, [finding] = lint(chat(lambda turn, stamps=stamps: PLACES["head"].format(stamps[turn])))
        severity[unit] = finding["severity"]
    assert severity == {"second": "error", "minute": "error", "day": "warning"}


@pytest.mark.parametrize(
    "stamps",
    [
        ("Sun Nov 29 10:30:05 UTC 2026", "Sun Nov 29 10:30:06 UTC 2026"),
        ("November 29, 2026 9:59 AM", "November 29, 2026 10:00 AM"),
        ("1764428557", "1764428999"),
        ("2026-11-29T10:30:05.123456+00:00", "2026-11-29T10:30:05.654321+00:00"),
        ("20261129T103005Z", "20261129T103106Z"),
        ("Sunday, 29 November 2026", "Monday, 30 November 2026"),
        ("10:30:05", "10:30:06"),
    ],
)
def test_ways_of_writing_a_time(lint, stamps):
    code, findings = lint(chat(lambda turn: PLACES["head"].format(stamps[turn]), turns=2))
    assert code == 1
    assert [f["code"] for f in findings] == ["AC101"]


@pytest.mark.parametrize("values", [("version 1.2.3", "version 1.2.4"), ("user anna", "user bert"), ("a1b2", "a1c2")])
def test_what_differs_but_is_no_time_is_not_called_one(lint, values):
    _, findings = lint(chat(lambda turn: PLACES["head"].format(values[turn]), turns=2))
    assert "AC101" not in {f["code"] for f in findings}


def test_two_clocks_are_two_findings_and_share_the_loss(lint, tokenizer_folder):
    def system(first, second):
        return f"It is {first}. {INSTRUCTIONS} Budget checked at {second}. {INSTRUCTIONS}"

    seconds, minutes = STAMPS["second"], ("10:30", "10:31", "10:33")
    defective = chat(lambda turn: system(seconds[turn], minutes[turn]))
    sound = chat(lambda turn: system(seconds[0], minutes[0]))
    _, findings = lint(defective)
    assert [f["location"]["path"] for f in findings] == ["messages[0].content"] * 2
    text = defective[1]["messages"][0]["content"]
    assert [text[f["location"]["char"] :][:1] for f in findings] == ["1", "1"]
    assert findings[1]["location"]["char"] == text.index("10:31. ") + 4
    lost = sum(recount(ids_of(tokenizer_folder, sound))) - sum(recount(ids_of(tokenizer_folder, defective)))
    assert sum(f["tokens_lost"] for f in findings) == lost


def test_a_time_in_the_newest_message_that_is_replayed_unchanged_is_fine(lint):
    requests = chat(lambda turn: INSTRUCTIONS)
    for request in requests:
        users = [message for message in request["messages"] if message["role"] == "user"]
        for turn, message in enumerate(users):
            message["content"] = message["content"].removesuffix(f" Now: {STAMPS['second'][turn]}")
            message["content"] += f" Now: {STAMPS['second'][turn]}"
    assert lint(requests) == (0, [])


def test_a_replayed_message_with_a_new_time_is_reported(lint):
    requests = chat(lambda turn: INSTRUCTIONS)
    for turn, request in enumerate(requests):
        first = request["messages"][1]
        request["messages"][1] = {**first, "content": f"[{STAMPS['second'][turn]}] {first['content']}"}
    code, findings = lint(requests)
    assert code == 1
    assert [(f["code"], f["location"]["path"], f["location"]["record"]) for f in findings] == [
        ("AC101", "messages[1].content", 2)
    ]


def test_the_same_last_message_sent_again_later_is_fine(lint):
    requests = [
        {"messages": [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": f"[{stamp}] Hello"}]}
        for stamp in STAMPS["second"]
    ]
    assert lint(requests) == (0, [])


def test_a_single_request_is_only_suspected(lint, tokenizer_folder):
    requests = chat(lambda turn: PLACES["head"].format(STAMPS["second"][0]), turns=1)
    code, [finding] = lint(requests)
    assert code == 1
    assert (finding["code"], finding["confidence"], finding["severity"]) == ("AC101", "suspected", "warning")
    assert finding["before"] is None and finding["compared_to"] is None
    assert finding["tokens_lost_kind"] == "upper_bound"
    assert 0 < finding["tokens_lost"] <= len(ids_of(tokenizer_folder, requests)[0])


@pytest.mark.parametrize(
    "text",
    [
        "Dates look like 2026-11-29T10:30:05Z.",
        "Shops open from 9:00 to 17:00.",
        "The law of 2016-05-25 applies.",
        "Knowledge cutoff: October 2023.",
        "Use ISO 8601, e.g. 2026-11-29 10:30:05.",
    ],
)
def test_a_time_that_is_only_talked_about_is_not_suspected(lint, text):
    assert lint(chat(lambda turn: INSTRUCTIONS + text, turns=1)) == (0, [])


def test_one_shot_requests_of_different_users_are_compared(lint):
    requests = [
        chat(lambda turn, stamp=stamp: PLACES["head"].format(stamp), turns=1, task=task)[0]
        for stamp, task in zip(STAMPS["second"], ("Fix the parser.", "Write the docs.", "Answer the mail."))
    ]
    _, findings = lint(requests, "--select", "AC1")
    [finding] = findings
    assert finding["shared_by"] == 3
    assert finding["confidence"] == "confirmed"


def test_a_clock_in_a_tool_is_found_behind_json_escapes(lint):
    requests = chat(lambda turn: INSTRUCTIONS)
    for turn, request in enumerate(requests):
        description = f'Says "ready" or "busy".\nCurrent time: {STAMPS["second"][turn]}. {INSTRUCTIONS}'
        request["tools"] = [{"type": "function", "function": {"name": "status", "description": description}}]
    _, [finding] = lint(requests)
    where = finding["location"]
    assert where["path"] == "tools[0].function.description"
    texts = [request["tools"][0]["function"]["description"] for request in requests]
    assert texts[0][: where["char"]] == texts[1][: where["char"]]
    assert texts[0][where["char"]] != texts[1][where["char"]]


def test_paths_follow_content_parts_and_wrappers(lint):
    requests = []
    for number, request in enumerate(chat(lambda turn: PLACES["head"].format(STAMPS["second"][turn]))):
        system = request["messages"][0]
        system["content"] = [{"type": "text", "text": "Hello. "}, {"type": "text", "text": system["content"]}]
        requests.append({"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": request})
    _, [finding] = lint(requests)
    assert finding["location"]["path"] == "body.messages[0].content[1].text"


def test_blanks_that_the_template_trims_do_not_shift_the_place(lint, tmp_path: Path):
    template = tmp_path / "trim.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}", "utf-8"
    )
    requests = chat(lambda turn: "\n\n  " + PLACES["head"].format(STAMPS["second"][turn]))
    _, [finding] = lint(requests, "--template", str(template))
    assert finding["location"]["char"] == requests[0]["messages"][0]["content"].index("10:30") + 4


def test_a_template_that_looks_at_the_text_is_followed_as_well(lint, tmp_path: Path):
    template = tmp_path / "looks.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.content[0] == 'I' %}! {% endif %}{{ m.content }}<|im_end|>\n{% endfor %}",
        "utf-8",
    )
    requests = chat(lambda turn: PLACES["head"].format(STAMPS["second"][turn]))
    _, [finding] = lint(requests, "--template", str(template))
    assert finding["location"]["path"] == "messages[0].content"
    assert finding["location"]["char"] == requests[0]["messages"][0]["content"].index("10:30") + 4
