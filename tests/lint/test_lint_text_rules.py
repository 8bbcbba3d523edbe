"""What the rules about texts say: place, loss, severity, and when they say nothing."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lint_workloads import ids_of, recount
from text_twin_parts import MORE_RULES, QUESTIONS, RULES, SECONDS, UUIDS, apart, growing, tool, with_tools

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.finding import Finding
from agentcache.lint.linter import Linter
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.readers.dialects import to_record
from agentcache.lint.rules import select_rules

TEXT_RULES = "AC101,AC102,AC103,AC104,AC105,AC106,AC203,AC204,AC205,AC206"


def lost(folder, defective, sound) -> int:
    pairs = zip(recount(ids_of(folder, sound)), recount(ids_of(folder, defective)))
    return sum(max(0, mended - found) for mended, found in pairs)


def first_difference(a: str, b: str) -> int:
    return next(i for i, (x, y) in enumerate(zip(a, b)) if x != y)


@pytest.fixture(scope="module")
def maker(tokenizer_folder) -> PromptMaker:
    return PromptMaker(ChatRenderer(Tokenizer.from_folder(tokenizer_folder)), 16)


def found(maker, requests) -> list[Finding]:
    linter = Linter(maker, select_rules(TEXT_RULES.split(","), ()), 16)
    linter.add_all(to_record(body, "run.jsonl", line) for line, body in enumerate(requests, 1))
    return linter.report().findings


@pytest.mark.parametrize(
    "text",
    [
        "It is {time}. Run id: {id}. Used {count} of 40 calls. " + RULES,
        "It is {time}. " + RULES + "Run id: {id}. " + MORE_RULES + "Used {count} of 40 calls. " + RULES,
        RULES + "{count} calls are used. " + MORE_RULES + "Run id: {id}. It is {time}. " + RULES,
    ],
)
def test_three_slots_of_one_text_are_three_findings_with_their_own_places_and_losses(lint, tokenizer_folder, text):
    def head(turn):
        return text.format(time=SECONDS[turn], id=("8f3a1c2d", "77aa01bc", "0a9b8c7d")[turn], count=7 + 5 * turn)

    defective = growing(head)
    code, findings = lint(defective, "--select", TEXT_RULES)
    assert code == 1
    assert sorted(finding["code"] for finding in findings) == ["AC101", "AC102", "AC103"]
    assert sum(f["tokens_lost"] for f in findings) == lost(tokenizer_folder, defective, growing(lambda turn: head(0)))
    assert all(f["tokens_lost"] > 0 for f in findings)
    # In the second request's text as it is, whatever stands before and was mended.
    after = head(1)
    starts = {"AC101": after.index(SECONDS[1]), "AC102": after.index("77aa01bc"), "AC103": after.index("12")}
    for finding in findings:
        assert finding["location"]["record"] == 2 and finding["location"]["path"] == "messages[0].content"
        assert 0 <= finding["location"]["char"] - starts[finding["code"]] < 17


@pytest.mark.parametrize("keep", ["[{0}] {1}", "{1}\n\nNow: {0}", "{1}\n<time>{0}</time>"])
def test_stamps_that_are_not_replayed_are_one_finding_with_the_loss_of_all_turns(lint, tokenizer_folder, keep):
    def said(k, turn):
        return keep.format(SECONDS[k], QUESTIONS[k]) if k == turn else QUESTIONS[k]

    defective = growing(said=said, turns=4, session="a")
    sound = growing(said=lambda k, turn: keep.format(SECONDS[k], QUESTIONS[k]), turns=4, session="a")
    _, [finding] = lint(defective, "--select", TEXT_RULES)
    assert (finding["code"], finding["severity"]) == ("AC101", "error")
    assert (finding["location"]["record"], finding["location"]["path"]) == (2, "messages[1].content")
    char = finding["location"]["char"]
    assert char == first_difference(keep.format(SECONDS[0], QUESTIONS[0]), QUESTIONS[0] + "\0")
    assert "left out" in finding["message"]
    assert finding["tokens_lost"] == lost(tokenizer_folder, defective, sound)


def test_a_slot_is_one_finding_in_the_conversations_of_all_users(lint):
    """Lower-case names are not told from words, so the conversations are not compared with each other."""
    bodies = [
        body
        for name in ("anna", "bert", "chloe")
        for body in growing(
            lambda turn, name=name: f"Be kind to {name} always. {RULES}Now: {SECONDS[turn]}. {RULES}", session=name
        )
    ]
    _, findings = lint(bodies, "--select", TEXT_RULES)
    assert [(f["code"], f["location"]["record"], f["shared_by"]) for f in findings] == [("AC101", 2, 3)]


def test_two_slots_behind_the_same_words_are_two_findings(lint, tokenizer_folder):
    def head(turn):
        return f"{RULES}Now: {SECONDS[turn]}. {RULES}Now: {SECONDS[turn]}. {RULES}"

    _, findings = lint(growing(head), "--select", TEXT_RULES)
    places = [i for i in range(len(head(1))) if head(1).startswith(SECONDS[1], i)]
    assert [(f["code"], f["location"]["char"] - place) for f, place in zip(findings, places)] == [("AC101", 15)] * 2
    assert sum(f["tokens_lost"] for f in findings) == lost(
        tokenizer_folder, growing(head), growing(lambda turn: head(0))
    )


def test_a_writing_that_changes_everywhere_is_one_finding(lint, tokenizer_folder):
    def end(text, turn):
        return text.replace(" ", "  ") if turn else text

    def chat(turn_of):
        return growing(
            lambda turn: end(RULES, turn_of(turn)),
            said=lambda k, turn: end(QUESTIONS[k], turn_of(turn) if k < turn else 0),
            session="a",
        )

    defective = chat(lambda turn: turn)
    _, [finding] = lint(defective, "--select", TEXT_RULES)
    assert finding["code"] == "AC204"
    assert "1 other" in finding["message"]
    assert finding["location"]["char"] == RULES.index(" ") + 1
    assert finding["tokens_lost"] == lost(tokenizer_folder, defective, chat(lambda turn: 0))


@pytest.mark.parametrize(
    "code, heads, severity, fix",
    [
        ("AC101", [f"It is {time}. {RULES}" for time in SECONDS], "error", "display"),
        ("AC101", [f"It is {time[:16]}. {RULES}" for time in SECONDS], "error", "display"),
        ("AC101", [f"It is {hour} pm. {RULES}" for hour in (1, 2, 3)], "warning", "display"),
        ("AC101", [f"Date: 2026-11-{day}. {RULES}" for day in (27, 28, 29)], "warning", "display"),
        ("AC102", [f"Session {uuid}. {RULES}" for uuid in UUIDS], "error", "display"),
        ("AC103", [f"Call {n} of 40. {RULES}" for n in (1, 2, 3)], "error", "display"),
        ("AC104", [f"cwd: /home/{name}\n{RULES}" for name in ("ann", "bert")], "warning", "display"),
        ("AC105", [f"Task: {q}\n{RULES}" for q in QUESTIONS], "warning", "display"),
        ("AC106", [f"<context>{q * 5}</context>\n{RULES}" for q in QUESTIONS], "warning", "display"),
        ("AC203", [f"Tags: {tags}\n{RULES}" for tags in ("a, b, c", "b, c, a")], "error", "display"),
        ("AC204", [f"Be brief.{blank}{RULES}" for blank in (" ", "\n")], "warning", "unsafe"),
        ("AC205", [unicodedata.normalize(form, "Für Äpfel. ") + RULES for form in ("NFC", "NFD")], "warning", "safe"),
        ("AC206", [f'{text}\n{RULES}' for text in ('["é"]', '["\\u00e9"]')], "warning", "unsafe"),
    ],
)  # fmt: skip
def test_severities_and_fixes(lint, code, heads, severity, fix):
    _, findings = lint(apart(heads), "--select", TEXT_RULES)
    assert [(f["code"], f["severity"], f["fix"]["applicability"]) for f in findings] == [(code, severity, fix)]
    assert findings[0]["confidence"] == "confirmed" and findings[0]["shared_by"] == len(heads)


def test_a_text_that_is_json_is_mended_safely(lint):
    heads = [json.dumps({"city": "Zürich", "rules": RULES}, ensure_ascii=escaped) for escaped in (False, True)]
    for order in (heads, heads[::-1]):
        _, [finding] = lint(apart(order), "--select", "AC206")
        assert finding["fix"]["applicability"] == "safe"


@pytest.mark.parametrize(
    "text",
    [
        f"It is {SECONDS[0]}. {RULES}",
        f"Session id: {UUIDS[0]}\n{RULES}",
        f"You work in /tmp/tmpx8k2_q1a/repo. {RULES}",
        f"<env>\nWorking directory: /home/ann\n</env>\n{RULES}",
        f"cwd: /home/ann\nplatform: linux\n\n{RULES}",
    ],
)
def test_a_suspicion_is_cleared_by_a_second_request_that_says_the_same(lint, text):
    _, [suspected] = lint(apart([text]), "--select", TEXT_RULES)
    assert suspected["confidence"] == "suspected" and suspected["severity"] in ("info", "warning")
    assert suspected["before"] is None and suspected["tokens_lost_kind"] == "upper_bound"
    _, findings = lint(apart([text, text]), "--select", TEXT_RULES)
    assert findings == []
    _, findings = lint(apart([text, f"{RULES} Be brief.", text.replace("careful", "cautious")]), "--select", TEXT_RULES)
    assert findings == []


@pytest.mark.parametrize(
    "text",
    [
        "Version 2.1.3 of 2026-11-29 fixes it. ",
        "Write logs to /tmp/app.log. ",
        "Order ids look like 8c1f2d3e-90ab-4c5d-8e7f-0123456789ab. ",
        "The shop's id is 8c1f2d3e-90ab-4c5d-8e7f-0123456789ab. ",
        "Git status: run it before you commit. ",
        "Put {name} and {{now}} where they belong. ",
        "Port 8080, 40 calls, 1,085/2,200 chars. ",
        "See src/agent-2026/file1.py and README.md. ",
    ],
)
def test_what_is_only_talked_about_is_not_suspected(lint, text):
    for requests in (
        apart([text + RULES]),
        with_tools(apart([RULES]), lambda i: [tool(description=text + MORE_RULES)]),
    ):
        assert lint(requests, "--select", TEXT_RULES) == (0, [])


def test_the_clock_of_a_wrapped_anthropic_or_responses_body_is_found_at_its_own_place(lint):
    native = [
        {
            "model": "m",
            "max_tokens": 9,
            "system": f"It is {time}. {RULES}",
            "messages": [{"role": "user", "content": q}],
        }
        for time, q in zip(SECONDS, QUESTIONS)
    ]
    _, [finding] = lint(native, "--select", TEXT_RULES)
    assert (finding["code"], finding["location"]["path"], finding["location"]["char"]) == ("AC101", "system", 21)
    responses = [
        {"model": "m", "instructions": f"It is {time}. {RULES}", "input": q} for time, q in zip(SECONDS, QUESTIONS)
    ]
    _, [finding] = lint(responses, "--select", TEXT_RULES)
    assert (finding["code"], finding["location"]["path"], finding["location"]["char"]) == ("AC101", "instructions", 21)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_filled_in_is_found_at_its_place_and_costs_what_a_recount_says(maker, tokenizer_folder, data):
    sentences = (RULES + MORE_RULES).split(". ")
    place = data.draw(st.integers(0, len(sentences) - 4))
    kind = data.draw(st.sampled_from(["time", "id", "nonce", "count"]))
    drawn = {
        "time": st.times().map(lambda t: t.strftime("At %H:%M:%S now")),
        "id": st.uuids().map(str),
        "nonce": st.integers(16**4, 16**5 - 1).map(lambda n: f"{n:05x}"),
        "count": st.integers(0, 10**6).map(str),
    }[kind]
    values = data.draw(st.lists(drawn, min_size=3, max_size=3, unique=True))

    def head(turn):
        return ". ".join([*sentences[:place], f"Here {values[turn]} stands", *sentences[place:]])

    requests = data.draw(st.sampled_from([growing, lambda head: apart([head(n) for n in range(3)])]))(head)
    findings = found(maker, requests)
    sound = [{"messages": [{"role": "system", "content": head(0)}, *body["messages"][1:]]} for body in requests]
    assert len(findings) == 1
    assert findings[0].code == {"time": "AC101", "id": "AC102"}.get(kind, "AC103")
    assert findings[0].location.char == first_difference(head(0), head(1))
    assert findings[0].tokens_lost == lost(tokenizer_folder, requests, sound)


_WORDS = """read the parser and say why its tests fail on tabs in lines before noon with 2 users at 9:30"""
words = st.sampled_from(_WORDS.split(" "))
texts = st.lists(words, min_size=3, max_size=40).map(" ".join)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(heads=st.lists(texts, min_size=2, max_size=4, unique=True), said=st.lists(texts, min_size=4, max_size=4))
def test_agents_that_share_nothing_behind_their_first_words_are_left_alone(maker, heads, said):
    """A preamble that all have, and a text of its own for each."""
    bodies = apart([f"{RULES}\nAgent {number}: {head}." for number, head in enumerate(heads)], said)
    assert [finding for finding in found(maker, bodies) if finding.confidence == "confirmed"] == []


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(a=st.text(max_size=200), b=st.text(max_size=200), c=st.text(max_size=200))
def test_any_texts_are_read_without_a_failure(maker, a, b, c):
    bodies = [
        *growing(lambda turn: (a, b, c)[turn] + RULES),
        *growing(lambda turn: RULES + (a, b, c)[turn], said=lambda k, turn: (a + c, b + a)[turn % 2] + str(k)),
        *with_tools(growing(lambda turn: a), lambda turn: [tool(description=(a, b, c)[turn] + RULES)]),
    ]
    for finding in found(maker, bodies):
        assert finding.tokens_lost is not None and finding.tokens_lost >= 0
