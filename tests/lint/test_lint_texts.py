"""Where two texts differ first, what is filled in there, and how it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_twin_parts import MORE_RULES, RULES

from agentcache.chat.text import common_length
from agentcache.lint.texts.forms import id_at, mask_slots, time_at
from agentcache.lint.texts.orders import find_reordered
from agentcache.lint.texts.placeholders import find_placeholders
from agentcache.lint.texts.spans import MIN_SHARED, Span, common_suffix, equal_behind, first_slot
from agentcache.lint.texts.stamps import reads_as_now
from agentcache.lint.texts.surroundings import (
    environment_block,
    has_label,
    is_version,
    retrieved_block,
    starts_document,
)
from agentcache.lint.texts.writing import same_but_for_blanks, same_but_for_escapes, same_but_for_form
from agentcache.lint.times import find_times


def slot_of(before: str, after: str) -> Span:
    offset = common_length(before, after)
    return first_slot(before, after, offset, common_suffix(before[offset:], after[offset:]))


def values(before: str, after: str) -> tuple[str, str]:
    span = slot_of(before, after)
    return before[span.start : span.before_end], after[span.start : span.after_end]


@pytest.mark.parametrize("text", ["{} " + RULES, RULES + "Here: {}. " + MORE_RULES, RULES + "({})"])
@pytest.mark.parametrize("was, now", [("12", "9"), ("a3f91", "a3f92"), ("Anna", "Annabel"), ("plan first", "act")])
def test_a_slot_is_the_whole_words_that_differ(text, was, now):
    assert values(text.format(was), text.format(now)) == (was, now)


def test_the_first_of_two_slots_ends_where_enough_is_equal_again():
    text = "Used {} calls. " + RULES + "Left: {}. " + MORE_RULES
    assert values(text.format(12, 3), text.format(13, 45)) == ("12", "13")
    assert values(text.format(12, 3), text.format(12, 45)) == ("3", "45")


def test_slots_that_stand_close_together_are_one():
    text = "Used {} calls, {}% left. " + RULES
    assert values(text.format(12, 30), text.format(13, 28)) == ("12 calls, 30", "13 calls, 28")


@pytest.mark.parametrize("form", ["It is 10:30:0{}.", "Run id: 8f3a1c2{}."])
def test_a_time_or_an_id_behind_a_slot_is_not_a_part_of_it(form):
    text = "Used {} calls. " + form + RULES
    assert values(text.format(12, 3), text.format(13, 4)) == ("12", "13")


def test_a_slot_in_a_long_changing_text_is_found_by_what_comes_again():
    was, now = " ".join(f"was{n}" for n in range(200)), " ".join(f"now{n}" for n in range(300))
    assert values(f"[{was}] {RULES} 1", f"[{now}] {RULES} 2") == (was, now)


letters = st.text("ab .\n1", max_size=90)


@given(letters, letters)
def test_mending_a_slot_always_brings_the_texts_further_together(before, after):
    if before == after:
        return
    offset = common_length(before, after)
    span = slot_of(before, after)
    assert span.start <= offset and span.start <= span.before_end <= len(before) and span.after_end <= len(after)
    mended = after[: span.start] + before[span.start : span.before_end] + after[span.after_end :]
    assert mended == before or common_length(mended, before) > offset


@given(st.lists(st.tuples(st.sampled_from([RULES, MORE_RULES]), letters, letters), min_size=1, max_size=4))
def test_mending_slots_one_by_one_ends_with_the_earlier_text(pieces):
    before = "".join(text + was for text, was, _ in pieces)
    after = "".join(text + now for text, _, now in pieces)
    for _ in range(4 * 90):
        if before == after:
            break
        span = slot_of(before, after)
        after = after[: span.start] + before[span.start : span.before_end] + after[span.after_end :]
    assert before == after


def test_what_is_equal_behind_a_slot_is_seen_in_spite_of_further_slots():
    before, after = f"1 {RULES} 1", f"2 {RULES} 2"
    assert equal_behind(before, after, 1, 1, 0) == len(RULES) + 2
    assert equal_behind(f"1 1 {RULES} 1", f"2 2 {RULES} 2", 1, 1, 0) >= MIN_SHARED
    assert equal_behind("1 of these", "2 or those", 1, 1, 0) < MIN_SHARED


@pytest.mark.parametrize(
    "text, value, form",
    [
        ("Session 8c1f2d3e-90ab-4c5d-8e7f-0123456789ab.", "8c1f2d3e-90ab-4c5d-8e7f-0123456789ab", "uuid"),
        ("in /tmp/tmpab12/repo, not", "/tmp/tmpab12/repo", "path"),
        (r"in C:\Users\ann\AppData\Local\Temp\x1.", r"C:\Users\ann\AppData\Local\Temp\x1", "path"),
        ("(req_8f3a1c99)", "req_8f3a1c99", "named"),
        ("call chatcmpl-9aXbY21kQ now", "chatcmpl-9aXbY21kQ", "named"),
        ("sha 8f3a1c2d x", "8f3a1c2d", "hex"),
        ("key 01ARZ3NDEKTSV4RRFFQ69G5FAV x", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "mixed"),
        ("Run id: a7. You", "a7", "labelled"),
        ("session a7x in", "a7x", "labelled"),
    ],
)
def test_ids_by_form(text, value, form):
    start = text.index(value)
    for offset in (start, start + len(value) // 2, start + len(value)):
        found = id_at(text, offset)
        assert found is not None
        assert (text[found.start : found.end], found.form) == (value, form)


@pytest.mark.parametrize(
    "text, value",
    [("[a3f91] You", "a3f91"), ("run 12 of 40", "12"), ("agent v1.4.2", "1.4"), ("gpt-4o is", "4o"), ("Anna", "nn"),
     ("model id: gpt-4", "gpt")],
)  # fmt: skip
def test_what_is_no_id_by_its_form(text, value):
    assert id_at(text, text.index(value)) is None


def test_times_are_found_at_a_place_of_a_long_line():
    text = "word " * 40 + "it is 2026-11-29 10:30:05, and " + "word " * 40
    place = text.index("10:30")
    found = time_at(text, place)
    assert found is not None and text[found.start : found.end] == "2026-11-29 10:30:05"
    assert time_at(text, place + 20) is None
    assert [text[t.start : t.end] for t in find_times(text, place - 30, place + 30)] == ["2026-11-29 10:30:05"]


def test_masked_texts_are_equal_when_they_differ_in_values_only():
    text = "At {} run {} in {} used {}, it says {}."
    a = text.format("10:30:05", "8f3a1c2d", "/tmp/x1/y", "12.5%", "yes")
    b = text.format("9:12", "0099aabb", "/tmp/z/y", "9%", "yes")
    assert mask_slots(a) == mask_slots(b) != mask_slots(b.replace("yes", "no"))


@pytest.mark.parametrize(
    "text, now",
    [
        ("It is 2026-11-29 10:30:05.", True),
        ("Today's date: 2026-11-29", True),
        ("[2026-11-29 10:30:05] hello", True),
        ("hello\n\n2026-11-29 10:30:05", True),
        ("hello\n2026-11-29 10:30:05 build failed", False),
        ("Dates look like 2026-11-29 10:30:05.", False),
        ("Knowledge cutoff: 2026-11-29", False),
        ("released 2026-11-29", False),
        ("Call me at 10:30", False),
    ],
)
def test_which_times_say_when_something_was_sent(text, now):
    [time] = find_times(text)
    assert reads_as_now(text, time) is now


def block(text: str, word: str) -> str | None:
    found = environment_block(text, text.index(word) + 1)
    return None if found is None else text[found.start : found.end]


def test_facts_about_the_machine_go_as_far_as_lines_or_tags_say():
    facts = "cwd: /home/a\nplatform: linux\ngit status:\n M a.py\n?? b.py\n\nRecent commits:\n8f3a1c2 Keep it"
    text = f"You are an agent.\n{facts}\n\nBe careful: {RULES}"
    assert block(text, "/home") == facts
    assert block(text, "linux") == facts[facts.index("platform") :]
    assert block(text, "b.py") == facts[facts.index("?? b") :]
    assert block(text, "an agent") is None
    assert block(text, "careful:") is None
    tagged = f"<env>\nanything at all\nhere\n</env>\n{RULES}"
    assert block(tagged, "all") == "anything at all\nhere\n"
    assert block(tagged, "engineer") is None


def test_retrieved_text_is_known_by_tag_heading_or_number():
    assert retrieved_block("<document>\nA b c.\n</document> d", 13) is not None
    assert retrieved_block("Context:\nA b c.\n", 12) is not None
    assert retrieved_block("Rules.\n[1] A b c.", 12) is not None
    assert retrieved_block("Rules.\nA b c.", 9) is None
    assert retrieved_block("Context:\nA b c.\n# Rules\nBe brief.", 30) is None
    assert starts_document("Document 2: shoes") and not starts_document("Documents are long.")


def test_labels_of_tasks_and_people():
    for text in ("Your task: ", "## User profile\n", "Customer: ", "- Name: "):
        assert has_label(text + "x", len(text)), text
    for text in ("Be careful: ", "## Rules\n", ""):
        assert not has_label(text + "x", len(text)), text


def test_versions_are_told_from_amounts():
    for text, value in (
        ("Agent v1.4.2 is", "1.4.2"),
        ("version 7.", "7"),
        ("prompt v12", "v12"),
        ("build 3.0.0-rc1", "3.0.0-rc1"),
    ):
        start = text.index(value)
        assert is_version(text, start, start + len(value)), text
    for text, value in (("spent $0.53 of", "0.53"), ("used 12 calls", "12"), ("1,085/2,200", "1,085/2,200")):
        start = text.index(value)
        assert not is_version(text, start, start + len(value)), text


@pytest.mark.parametrize(
    "before, after, found",
    [
        ("You use a, b, c. Go.", "You use b, c, a. Go.", ("a, b, c", "b, c, a")),
        ("{'x', 'y', 'z'}", "{'z', 'x', 'y'}", ("'x', 'y', 'z'", "'z', 'x', 'y'")),
        ("Be kind.\n- a\n- b\n- c\nGo.", "Be kind.\n- c\n- a\n- b\nGo.", ("- a\n- b\n- c", "- c\n- a\n- b")),
        ("1. a\n2. b", "1. b\n2. a", ("1. a\n2. b", "1. b\n2. a")),
        ("src/a.py; src/b.py; t.py.", "src/b.py; t.py; src/a.py.", ("src/a.py; src/b.py; t.py", "src/b.py; t.py; src/a.py")),
        ("a, b, c", "a, b, d", None),
        ("- a\n- b", "- a\n- c", None),
        ("one two", "two one", None),
        ("Hello Anna, how are you, dear?", "Hello Bert, how are you, dear?", None),
    ],
)  # fmt: skip
def test_lists_in_another_order(before, after, found):
    got = find_reordered(before, after, common_length(before, after))
    if found is None:
        assert got is None
    else:
        assert got is not None
        assert (before[got.start : got.before_end], after[got.start : got.after_end]) == found


@given(
    st.permutations(["read", "write", "run the tests", "New York", "a.b"]), st.sampled_from([", ", "; ", " | ", "\n- "])
)
def test_mending_a_reordered_list_gives_the_earlier_text(items, separator):
    text = "Items:\n- {}\nAnd so on."
    before, after = (text.format(separator.join(order)) for order in (sorted(items), items))
    if before == after:
        return
    found = find_reordered(before, after, common_length(before, after))
    assert found is not None
    assert after[: found.start] + before[found.start : found.before_end] + after[found.after_end :] == before


def test_texts_that_are_the_same_but_for_their_writing():
    assert same_but_for_blanks("a b\n", "a  b\r\n") and not same_but_for_blanks("a b", "a c")
    assert same_but_for_form("caf\u00e9", "cafe\u0301") and not same_but_for_form("cafe", "café")
    assert same_but_for_escapes('"\\u00e9 \\ud83d\\ude42 a\\/b"', '"é 🙂 a/b"')
    assert not same_but_for_escapes('"\\u00e9"', '"è"')
    assert same_but_for_escapes('"\\u00E9"', '"\\u00e9"')


def test_placeholders_by_what_will_be_filled_in():
    text = "{now} {{ current_date }} ${session_id} {cwd} {{ context }} {user_name} {{user.name}} {json} {{ x + 1 }} {'a': 1}"
    found = {
        kind: [text[a:b] for a, b in find_placeholders(text, kind)]
        for kind in ("time", "id", "environment", "retrieved", "personal")
    }
    assert found == {
        "time": ["{now}", "{{ current_date }}"],
        "id": ["${session_id}"],
        "environment": ["{cwd}"],
        "retrieved": ["{{ context }}"],
        "personal": ["{user_name}", "{{user.name}}"],
    }
