"""Texts that can never fit are refused before anybody tokenises them; which those are is never guessed."""

from __future__ import annotations

import random

import pytest
import tokenizers
from live import live_server
from tokenizers import decoders, models, normalizers, pre_tokenizers

from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import RequestError
from agentcache.server.gate.bounds_text import TextBounds, longest_token

CHAT = "/v1/chat/completions"
HUGE = "the cache " * 1_000_000


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return Tokenizer.from_folder(tiny.folder)


def with_backend(change):
    """A tokenizer of bytes whose pipeline ``change`` alters."""
    backend = tokenizers.Tokenizer(models.BPE({chr(i): i for i in range(0x21, 0x7F)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    change(backend)

    class Piped:
        vocab_size = 0x7F
        piece_bytes = staticmethod(lambda token, *, first: b"abc")

    piped = Piped()
    piped.backend = backend
    return piped


def test_no_token_stands_for_more_characters_than_the_bound_says(tokenizer):
    longest = longest_token(tokenizer)
    dice = random.Random(6)
    words = ["the", " cache", " ", "é", "👋", "\n", "<|im_start|>", "界", "\x00", "pages of keys", "e\u0301"]
    for _ in range(300):
        text = "".join(dice.choices(words, k=dice.randrange(1, 40)))
        for special in (False, True):
            assert len(text) <= longest * len(tokenizer.encode(text, parse_special=special)), text
    assert longest == max(len(tokenizer.token_text(token)) for token in range(tokenizer.vocab_size))


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        (lambda backend: None, 3),
        (lambda backend: setattr(backend, "normalizer", normalizers.NFC()), 12),
        (lambda backend: setattr(backend, "normalizer", normalizers.Replace(" ", "_")), 3),
        (lambda backend: setattr(backend, "normalizer", normalizers.Replace("  ", "_")), None),
        (lambda backend: setattr(backend, "normalizer", normalizers.Replace(tokenizers.Regex(" +"), "_")), None),
        (lambda backend: setattr(backend, "normalizer", normalizers.Strip()), None),
        (
            lambda backend: setattr(
                backend, "normalizer", normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer()])
            ),
            None,
        ),
        (lambda backend: setattr(backend, "pre_tokenizer", pre_tokenizers.Whitespace()), None),
        (
            lambda backend: setattr(
                backend,
                "pre_tokenizer",
                pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()]),
            ),
            None,
        ),
        (lambda backend: backend.add_tokens([tokenizers.AddedToken("<x>", lstrip=True)]), None),
        (lambda backend: setattr(backend, "model", models.WordLevel({"?": 0}, unk_token="?")), None),
    ],
)
def test_there_is_no_bound_where_a_tokenizer_may_drop_characters(change, bound):
    assert longest_token(with_backend(change)) == bound


def test_a_text_is_refused_exactly_when_it_cannot_fit(tokenizer):
    longest = longest_token(tokenizer)
    bounds = TextBounds(tokenizer, 100)
    bounds.check("x" * (100 * longest))
    with pytest.raises(RequestError, match="at least 101 tokens, and no more than 100 tokens fit") as caught:
        bounds.check("x" * (100 * longest + 1), "input")
    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")
    part = {"role": "user", "content": [{"type": "text", "text": "x" * (60 * longest)}, {"type": "image_url"}]}
    bounds.check_messages([part, {"role": "assistant", "content": HUGE}, {"role": "user"}])
    with pytest.raises(RequestError, match=r"^messages: got"):
        bounds.check_messages([part, {"role": "tool", "content": "x" * (60 * longest)}])


@pytest.fixture(scope="module")
def running(tiny):
    with live_server(tiny.folder, page_size=16, num_pages=64) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": HUGE}, "prompt"),
        ("/v1/completions", {"prompt": [HUGE, "a"]}, "prompt"),
        (CHAT, {"messages": [{"role": "user", "content": HUGE}]}, "messages"),
        ("/v1/sessions", {"prompt": HUGE}, "prompt"),
        ("/v1/sessions", {"system": HUGE}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": HUGE}], "session": "a new one"}, "messages"),
    ],
)
def test_ten_megabytes_are_not_tokenised_to_be_refused(running, monkeypatch, path, body, param):
    def never(*_, **__):
        raise AssertionError("tokenised")

    if "session" in body:
        body = {**body, "session": running.http.post("/v1/sessions", json={}).json()["id"]}
    for way in ("encode", "encode_prompt", "encode_with_offsets"):
        monkeypatch.setattr(Tokenizer, way, never)
    error = running.http.post(path, json=body).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)
    assert "10,000,000 characters" in error["message"] and "1,024 tokens fit" in error["message"]


def test_counting_tokens_has_no_such_bound(running):
    text = "the cache " * 20_000
    reply = running.http.post("/tokenize", json={"prompt": text}).json()
    assert reply["count"] > 1024
