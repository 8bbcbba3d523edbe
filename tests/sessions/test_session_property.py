"""Random lives of a session, without a model: whatever was drawn, cut, forked or rolled back, ids stay what they were."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_tokenizer import write_tokenizer

from agentcache.chat.detokenizer import TextStream
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.server.endings import extended
from agentcache.server.misses import Asked
from agentcache.sessions.known import KnownTranscripts
from agentcache.sessions.session import Figures, Head, Home, Session
from agentcache.sessions.transcript import Reply, Transcript, continue_chat

VOCAB = 400
IM_END = VOCAB - 1
CORPUS = ("the cache keeps pages and the agent sends the same beginning again and again ✓ 👋 世界",)
FIGURES = Figures(1, 0, 1, 1, None)
ROOT = b"root"


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    return ChatRenderer(Tokenizer.from_folder(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), CORPUS, VOCAB)))


def draw_reply(rng: random.Random, tokenizer: Tokenizer) -> Reply:
    """Tokens that a model could have drawn, mostly no way that a tokenizer would spell their text, ended in some way."""
    drawn = [rng.randrange(VOCAB - 2) for _ in range(rng.randrange(12))]
    if rng.random() < 0.5:
        drawn += [token for char in rng.choice(("👋 hi", "the cache", "世界")) for token in tokenizer.encode(char)]
    ending = rng.choice(("length", "eos", "other end", "stop"))
    whole = tokenizer.decode(drawn)
    stop: tuple[str, ...] = ()
    if ending == "stop" and whole.strip("\ufffd"):
        at = rng.randrange(len(whole))
        stop = (whole[at : at + rng.randint(1, 3)],)
    stream, text = TextStream(tokenizer, stop), ""
    for place, token in enumerate(drawn):
        delta = stream.push(token)
        text += delta.text
        if delta.stopped_by is not None:
            return Reply(text, drawn[: place + 1])
    text += stream.flush()
    end = {"eos": IM_END, "other end": rng.randrange(VOCAB - 2)}.get(ending)
    return Reply(text, drawn, end)


class Life:
    """A session beside the plain list of ids that it must be."""

    def __init__(self, session: Session, prompts: list[list[int]]) -> None:
        self.session = session
        self.prompts = prompts
        """What each turn's prompt and reply must begin the next prompt with."""

    def turn(self, rng: random.Random, renderer: ChatRenderer, known: KnownTranscripts, *, cut: bool) -> None:
        tokenizer = renderer.tokenizer
        new = {"role": "user", "content": rng.choice(("go on", "the cache ✓", "", " again ", "x<|im_end|>y"))}
        with self.session.begin([new]) as turn:
            prompt = turn.make_prompt(renderer)
            text = renderer.render_text(turn.all_messages).text
            assert prompt.transcript.text == text and prompt.broken_at is None
            before = self.prompts[-1] if self.prompts else []
            assert prompt.ids[: len(before)] == before
            assert tokenizer.decode(prompt.ids, skip_special_tokens=False) == text
            if cut:
                return
            reply = draw_reply(rng, tokenizer)
            transcript = extended(Asked(prompt, turn.all_messages), reply, tokenizer)
            if tokenizer.decode(reply.token_ids) == reply.text:
                assert transcript.ids.tolist() == prompt.ids + list(reply.token_ids)
            turn.commit(reply, transcript, FIGURES, 0.0)
        known.remember(ROOT, transcript)
        self.prompts.append(transcript.ids.tolist())

    def fork(self, kept: int) -> Life:
        return Life(self.session.fork("fork", 0.0, kept), self.prompts[:kept])

    def rollback(self, kept: int) -> None:
        self.session.rollback(kept, 0.0)
        del self.prompts[kept:]


def begin(renderer: ChatRenderer) -> Life:
    head = Head(False, ({"role": "system", "content": "You are a helpful agent."},))
    home = Home(b"owner", ROOT)
    return Life(Session("s", home, head, 60, 0.0, head.transcript), [])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), length=st.integers(1, 14))
def test_every_life_of_a_session_keeps_its_ids(renderer, seed, length):
    rng = random.Random(seed)
    known = KnownTranscripts()
    lives = [begin(renderer)]
    for _ in range(length):
        life = rng.choice(lives)
        turns = len(life.session.turns)
        move = rng.choice(("turn", "turn", "turn", "cut", "fork", "rollback"))
        if move in ("turn", "cut"):
            life.turn(rng, renderer, known, cut=move == "cut")
        elif move == "fork":
            lives.append(life.fork(rng.randint(0, turns)))
        else:
            life.rollback(rng.randint(0, turns))
        assert len(life.session.turns) == len(life.prompts)
        assert [life.session.transcript_at(n + 1).ids.tolist() for n in range(len(life.prompts))] == life.prompts


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_a_whole_history_finds_the_ids_of_the_session_that_said_it(renderer, seed):
    rng = random.Random(seed)
    known = KnownTranscripts()
    life = begin(renderer)
    for _ in range(3):
        life.turn(rng, renderer, known, cut=False)
    history = [*life.session.messages, {"role": "user", "content": "and now?"}]
    rendered = renderer.render_text(history)
    found = known.find(ROOT, rendered.text)
    assert found is not None and known.find(b"other", rendered.text) is None
    with life.session.begin(history[-1:]) as turn:
        expected = turn.make_prompt(renderer).ids
    assert continue_chat(found, rendered).ids == expected
    changed = [dict(message) for message in history]
    changed[0]["content"] += "!"
    assert known.find(ROOT, renderer.render_text(changed).text) is None


def test_known_transcripts_are_bounded_and_the_least_used_goes_first():
    known = KnownTranscripts(max_tokens=100)
    for number in range(20):
        known.remember(ROOT, Transcript().extended(range(30), f"text {number}"))
        assert known.find(ROOT, "text 0 and more") is not None
    assert len(known) == 3
    assert known.find(ROOT, "text 19") is not None and known.find(ROOT, "text 5") is None
    known.remember(ROOT, Transcript().extended(range(101), "long"))
    assert known.find(ROOT, "long") is None
    known.remember(ROOT, Transcript().extended([7], "text 19"))
    found = known.find(ROOT, "text 19, of late")
    assert found is not None and found.ids.tolist() == [7] and found.text == "text 19"


def test_the_longest_known_beginning_wins():
    known = KnownTranscripts()
    for length in (3, 9, 6):
        known.remember(ROOT, Transcript().extended(range(length), "abcdefghij"[:length]))
    assert [len(found) if (found := known.find(ROOT, "abcdefghij"[:n])) else 0 for n in (2, 3, 8, 10)] == [0, 3, 6, 9]
