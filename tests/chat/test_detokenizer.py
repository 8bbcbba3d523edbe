from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.chat.detokenizer import StopMatcher, TextStream
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import RequestError

JAPANESE = [7365, 228, 10391, 233, 10391, 237, 7365, 117, 10391, 237, 7365, 124]
JAPANESE += [7365, 119, 10391, 233, 10391, 237, 7365, 117, 10391, 237, 7365, 124]
WAVE = [10813, 235, 229]


def stream(tokenizer: Tokenizer, ids: list[int], **options: bool) -> tuple[list[str], str]:
    """The deltas and what the flush gave."""
    text = TextStream(tokenizer, **options)
    return [text.push(token).text for token in ids], text.flush()


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (JAPANESE, "おわんでんはどわんでんは"),
        ([*WAVE], "👋"),
    ],
)
def test_characters_made_of_several_tokens_come_whole(smol: Tokenizer, ids: list[int], expected: str) -> None:
    deltas, rest = stream(smol, ids)
    assert "".join(deltas) + rest == expected == smol.decode(ids)
    assert rest == "" and all("\ufffd" not in delta for delta in deltas)
    assert b"".join(map(smol.token_bytes, ids)) == expected.encode()


@pytest.mark.parametrize("text", ["ok 👋世界!", "A 世\x00ab", "A 世👩‍👩‍👧ab"])
def test_a_text_streams_as_it_is(smol: Tokenizer, text: str) -> None:
    ids = smol.encode(text)
    deltas, rest = stream(smol, ids)
    assert "".join(deltas) + rest == text
    assert any(len(smol.token_bytes(token)) and not delta for token, delta in zip(ids, deltas)) == (
        "👋" in text or "世" in text
    )


def test_a_character_cut_off_at_the_end_is_one_replacement_mark_in_the_flush(smol: Tokenizer) -> None:
    deltas, rest = stream(smol, [*smol.encode("ok "), *WAVE[:2]])
    assert "".join(deltas) == "ok " and rest == "\ufffd"


def test_an_invalid_byte_does_not_hold_up_what_follows(smol: Tokenizer) -> None:
    invalid = WAVE[1]  # a byte that can only go on with a character
    deltas, rest = stream(smol, [invalid, *smol.encode("abc"), 10813, *smol.encode("x"), *WAVE])
    assert deltas[0] == "\ufffd" and "".join(deltas) == "\ufffdabc\ufffdx👋" and rest == ""


def test_pieces_of_a_text_between_bytes_keep_their_places(smol: Tokenizer) -> None:
    ids = [*smol.encode("A 世"), *WAVE, *smol.encode("ab")]
    deltas, rest = stream(smol, ids)
    assert "".join(deltas) + rest == "A 世👋ab" == smol.decode(ids)


def test_eight_streams_at_once_do_not_mix(smol: Tokenizer) -> None:
    texts = [f"{i} お{chr(0x1F600 + i)}世 {i}" for i in range(8)]
    ids = [smol.encode(text) for text in texts]
    streams = [TextStream(smol) for _ in texts]
    seen = [""] * 8
    for step in range(max(map(len, ids))):
        for i in range(8):
            if step < len(ids[i]):
                seen[i] += streams[i].push(ids[i][step]).text
    assert [text + streams[i].flush() for i, text in enumerate(seen)] == texts


def test_the_zero_byte_is_a_character_like_any_other(smol: Tokenizer) -> None:
    assert stream(smol, [190, *smol.encode("x"), 190]) == (["\0", "x", "\0"], "")


def test_control_tokens_are_left_out_or_shown(smol: Tokenizer) -> None:
    ids = [1, *smol.encode("hi"), 2]
    assert "".join(stream(smol, ids)[0]) == "hi"
    assert "".join(stream(smol, ids, skip_special_tokens=False)[0]) == "<|im_start|>hi<|im_end|>"


def test_sentencepiece_drops_the_first_space_and_no_other(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("the cat  sat 👋.")
    deltas, rest = stream(sentencepiece, ids)
    assert "".join(deltas) + rest == "the cat  sat 👋."
    assert stream(sentencepiece, [ids[1], ids[0]])[0] == ["cat", " the"]


@settings(deadline=None)
@given(st.data())
def test_joined_deltas_are_the_decoded_text(
    smol: Tokenizer, sentencepiece: Tokenizer, unigram: Tokenizer, words: Tokenizer, data: st.DataObject
) -> None:
    for tokenizer in (smol, sentencepiece, unigram, words):
        token = st.one_of(st.integers(0, min(300, tokenizer.vocab_size + 2)), st.integers(-1, tokenizer.vocab_size + 2))
        ids = data.draw(st.lists(token, max_size=24))
        for skip in (True, False):
            deltas, rest = stream(tokenizer, ids, skip_special_tokens=skip)
            assert "".join(deltas) + rest == tokenizer.decode(ids, skip_special_tokens=skip)
            assert rest in ("", "\ufffd")


# -- stop strings


def one_shot(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The cut at the first stop string to be completed; of two that end together the longer one."""
    found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    end, _, stop = min(found)
    return text[: end - len(stop)], stop


def in_pieces(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    seen = ""
    for piece in pieces:
        delta = matcher.push(piece)
        seen += delta.text
        if delta.stopped_by is not None:
            return seen, delta.stopped_by
    return seen + matcher.flush(), None


@settings(deadline=None)
@given(
    st.lists(st.text("ab世", max_size=4), max_size=12),
    st.lists(st.text("ab世", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_however_a_text_is_cut_the_stop_string_is_the_same(pieces: list[str], stops: list[str]) -> None:
    assert in_pieces(pieces, stops) == one_shot("".join(pieces), stops)


@settings(deadline=None)
@given(st.text("ab世", max_size=12), st.lists(st.text("ab世", min_size=1, max_size=4), min_size=1, max_size=4))
def test_no_more_is_held_back_than_may_become_a_stop_string(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for i, char in enumerate(text):
        delta = matcher.push(char)
        if delta.stopped_by is not None:
            return
        shown += delta.text
        held = text[len(shown) : i + 1]
        ends = [text[k : i + 1] for k in range(i + 1) if any(stop.startswith(text[k : i + 1]) for stop in stops)]
        assert held == max(ends, key=len, default="")


def push_all(tokenizer: Tokenizer, text: str, stop: tuple[str, ...]) -> tuple[str, str | None]:
    streamed = TextStream(tokenizer, stop)
    shown = ""
    for token in tokenizer.encode(text):
        delta = streamed.push(token)
        shown += delta.text
        if delta.stopped_by is not None:
            assert streamed.flush() == "" and streamed.push(token).text == ""
            return shown, delta.stopped_by
    return shown + streamed.flush(), None


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one two three", ("two",), ("one ", "two")),
        ("one two three", ("o th",), ("one tw", "o th")),
        ("one two three", ("three", " two"), ("one", " two")),
        ("one two three", ("xyz",), ("one two three", None)),
        ("one two thr", ("three",), ("one two thr", None)),
        ("おは👋世界", ("👋",), ("おは", "👋")),
        ("おは👋世界", ("世",), ("おは👋", "世")),
        ("aaab", ("aab",), ("a", "aab")),
        ("stop", ("stop",), ("", "stop")),
        ("a\n\nb", ("\n\n",), ("a", "\n\n")),
    ],
)
def test_stop_strings_cut_the_text_before_them(
    smol: Tokenizer, sentencepiece: Tokenizer, text: str, stop: tuple[str, ...], expected: tuple[str, str | None]
) -> None:
    assert push_all(smol, text, stop) == expected
    assert push_all(sentencepiece, text, stop) == expected


def test_a_stop_string_that_ends_inside_a_token_is_found(smol: Tokenizer) -> None:
    [token] = smol.encode(" hello")
    delta = TextStream(smol, ("el",)).push(token)
    assert (delta.text, delta.stopped_by) == (" h", "el")


def test_an_empty_stop_string_is_refused(smol: Tokenizer) -> None:
    with pytest.raises(RequestError, match=r"stop\[1\]: got an empty string"):
        TextStream(smol, ("a", ""))


def test_a_long_stream_costs_the_same_per_token_at_its_end(smol: Tokenizer) -> None:
    ids = smol.encode("the cat sat on the mat and " * 40) * 20
    streamed = TextStream(smol, ("the cat sat on the moon",))
    halves = []
    for half in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
        start = time.thread_time()
        for token in half:
            streamed.push(token)
        halves.append(time.thread_time() - start)
    assert halves[1] < 3 * halves[0] + 0.02
