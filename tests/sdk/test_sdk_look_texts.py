"""Which texts look as if the next request will have others in their place, and where two texts part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from look_prompts import DEFECTS, Pair

from agentcache_sdk import Turn
from agentcache_sdk._look import ClientLook
from agentcache_sdk._look.texts import span
from agentcache_sdk._look.volatile_text import suspicious_slots


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        ("Now: 2026-01-05T10:31:07Z.", "AC101", "2026-01-05T10:31:07Z"),
        ("The current date and time is Monday, January 5, 2026 at 10:31 PM.", "AC101", None),
        ("Today's date: 5 January 2026", "AC101", "5 January 2026"),
        ("It is 10:31:07.", "AC101", "10:31:07"),
        ("[2026-01-05 10:31] You are an agent.", "AC101", "2026-01-05 10:31"),
        ("Timestamp: 1767609067", "AC101", "1767609067"),
        ("Be brief. Current time: 10:31 UTC", "AC101", "10:31 UTC"),
        ("Request id: 3f2b8c1e-9d4a-4c7b-8a52-0f6e1d2c3b4a", "AC102", "3f2b8c1e-9d4a-4c7b-8a52-0f6e1d2c3b4a"),
        ("Write to /tmp/tmpk3x9a_2b/out.", "AC102", "/tmp/tmpk3x9a_2b/out"),
    ],
)
def test_texts_of_one_request_are_suspected(text: str, code: str, found: str | None) -> None:
    slots = list(suspicious_slots(text))
    assert [slot.code for slot in slots] == [code]
    assert found is None or text[slots[0].start : slots[0].end] == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Released on 2026-01-05.",
        "Your knowledge ends before 2025-10-01.",
        "Write times like 10:31:07 and dates like 2026-01-05.",
        "The format is ISO 8601, e.g. 2026-01-05T10:31:07Z.",
        "Meetings last from 10:00 until 11:30.",
        "Scale pictures to 16:9 or 4:3; the ratio 3:20 is wrong.",
        "Psalm 23:4 and section 12.30.45 of RFC 1918.",
        "The tenant is 3f2b8c1e-9d4a-4c7b-8a52-0f6e1d2c3b4a.",
        "Write to /tmp/report.txt and read /etc/hosts.",
        "Call 1-800-555-0199 or 1234567890.",
        "Version 2024.01.05 of the schema.",
    ],
)
def test_dates_times_and_ids_that_last_are_not(text: str) -> None:
    assert list(suspicious_slots(text)) == []


@given(st.text("ab ", max_size=40), st.text("ab ", max_size=40))
def test_a_span_is_the_longest_common_beginning_and_end(a: str, b: str) -> None:
    if a == b:
        return
    where = span(a, b)
    assert a[: where.head] == b[: where.head]
    assert where.head + where.tail <= min(len(a), len(b))
    assert a[len(a) - where.tail :] == b[len(b) - where.tail :]
    assert a[where.head : where.head + 1] != b[where.head : where.head + 1]
    left = len(a) - where.tail - 1, len(b) - where.tail - 1
    assert where.head in (left[0] + 1, left[1] + 1) or a[left[0]] != b[left[1]]


TEXTS = [pair for pair in DEFECTS if pair.path == "messages[0].content"]


@pytest.mark.parametrize("pair", TEXTS, ids=lambda pair: pair.name)
def test_a_confirmed_difference_is_at_the_first_character_that_differs(pair: Pair) -> None:
    look = ClientLook()
    look.of_request(pair.first, None, {})
    glance = look.glance(pair.first, None, {})
    glance.ended(Turn(message=pair.reply))
    [found] = [f for f in look.of_request(pair.second, None, {}) if f.confidence == "confirmed"]
    a, b = pair.first[0]["content"], pair.second[0]["content"]
    char = found.location.char
    assert char is not None
    assert a[:char] == b[:char]
    assert a[char : char + 1] != b[char : char + 1]
