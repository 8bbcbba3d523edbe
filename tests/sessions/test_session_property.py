"""Random lives of a session, without a model: whatever was drawn, cut, forked or rolled back, ids stay what they were."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_tokenizer import write_tokenizer

from agentcache.chat.detokenizer import TextStream
from agentcache.chat.messages import normalize_messages
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.replies.base import names_of
from agentcache.chat.splice import ChatInput
from agentcache.chat.tokenizer import Tokenizer
from agentcache.chat.tool_text import announcement
from agentcache.server.conversations import recall
from agentcache.server.endings import extended
from agentcache.server.misses import Asked
from agentcache.sessions.added_tools import AddedTools
from agentcache.sessions.known import KnownTranscripts
from agentcache.sessions.naming import name_conversation
from agentcache.sessions.session import Figures, Head, Home, Session
from agentcache.sessions.transcript import KnownReply, Mark, Prompt, Reply, Transcript

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
            return Reply(text, drawn[: place + 1], cut=True)
    text += stream.flush()
    end = {"eos": IM_END, "other end": rng.randrange(VOCAB - 2)}.get(ending)
    return Reply(text, drawn, end)


class Life:
    """A session beside the plain list of ids that it must be."""

    def __init__(self, session: Session, prompts: list[list[int]], tools: list[list[str]]) -> None:
        self.session = session
        self.prompts = prompts
        """What each turn's prompt and reply must begin the next prompt with."""
        self.tools = tools
        """Names of those that each turn brought along."""

    def turn(
        self, rng: random.Random, renderer: ChatRenderer, known: KnownTranscripts, *, cut: bool, learns: bool = False
    ) -> None:
        tokenizer = renderer.tokenizer
        new = {"role": "user", "content": rng.choice(("go on", "the cache ✓", "", " again ", "x<|im_end|>y"))}
        added = self.news(rng) if learns else None
        with self.session.begin([new], added=added) as turn:
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
        known.remember(names(self.session.rendered_messages), transcript, ROOT)
        self.prompts.append(transcript.ids.tolist())
        self.tools.append([] if added is None else added.names)

    def news(self, rng: random.Random) -> AddedTools:
        count = sum(map(len, self.tools))
        new = [{"type": "function", "function": {"name": f"tool-{count + n}"}} for n in range(rng.randint(1, 2))]
        return AddedTools(tuple(new), announcement(new, None if count else "<|im_start|>"))

    def fork(self, kept: int) -> Life:
        return Life(self.session.fork("fork", 0.0, kept), self.prompts[:kept], self.tools[:kept])

    def adopt(self, other: Life) -> None:
        own, new = self.session.turns, other.session.turns
        shared = next((n for n, (a, b) in enumerate(zip(own, new, strict=False)) if a != b), min(len(own), len(new)))
        dropped = len(own) - shared
        self.session.adopt(other.session, 0.0)
        assert self.session.events[-1]["dropped"] == dropped and self.session.has_just_adopted(other.session.id)
        self.prompts, self.tools = other.prompts, other.tools

    def rollback(self, kept: int) -> None:
        self.session.rollback(kept, 0.0)
        del self.prompts[kept:], self.tools[kept:]


def begin(renderer: ChatRenderer) -> Life:
    head = Head(False, ({"role": "system", "content": "You are a helpful agent."},))
    home = Home(b"owner", ROOT)
    return Life(Session("s", home, head, 60, 0.0, head.transcript), [], [])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), length=st.integers(1, 14))
def test_every_life_of_a_session_keeps_its_ids(renderer, seed, length):
    rng = random.Random(seed)
    known = KnownTranscripts()
    lives = [begin(renderer)]
    for _ in range(length):
        life = rng.choice(lives)
        turns = len(life.session.turns)
        move = rng.choice(("turn", "turn", "turn", "cut", "fork", "fork", "rollback", "adopt"))
        if move in ("turn", "cut"):
            life.turn(rng, renderer, known, cut=move == "cut", learns=rng.random() < 0.3)
        elif move == "fork":
            lives.append(life.fork(rng.randint(0, turns)))
        elif move == "rollback":
            life.rollback(rng.randint(0, turns))
        elif len(lives) > 1:
            other = rng.choice([each for each in lives if each is not life])
            life.adopt(other)
            lives.remove(other)
        assert [turn.to_json()["tools"] for turn in life.session.turns] == life.tools
        assert names_of(life.session.tools or ()) == {name for turn in life.tools for name in turn}
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
    with life.session.begin(history[-1:]) as turn:
        expected = turn.make_prompt(renderer)
    found = recalled(known, history, renderer)
    assert found.ids == expected.ids and found.kept == expected.kept and found.kept.tokens
    assert not recalled(known, history, renderer, b"other").kept.tokens
    changed = [dict(message) for message in history]
    changed[0]["content"] += "!"
    assert not recalled(known, changed, renderer).kept.tokens


def names(messages, root=ROOT):
    return name_conversation(root, None, normalize_messages(messages))


def recalled(known, messages, renderer, root=ROOT) -> Prompt:
    return recall(known, root, ChatInput(messages), normalize_messages(messages), renderer)


def transcript_of(ids, *texts: str) -> Transcript:
    """A conversation of replies to nobody, one after the other; the last one ends with the last of ``ids``."""
    replies, place = [], 0
    for index, text in enumerate(texts):
        tokens = len(ids) - len(texts) + index + 1
        replies.append(KnownReply(index, Mark(tokens - 1, place), Mark(tokens, place + len(text)), None))
        place += len(text)
    return Transcript(array("I", ids), "".join(texts), None, tuple(replies))


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text} for text in texts]


def lengths_found(known: KnownTranscripts, *texts: str) -> list[int]:
    """Tokens of what is known by name, and by text."""
    by_name = next(known.find(names(said(*texts)), said(*texts)), Transcript())
    return [len(by_name), len(known.find_text(ROOT, "".join(texts)) or ())]


def test_known_transcripts_are_bounded_and_the_least_used_goes_first():
    known = KnownTranscripts(max_tokens=100)
    for number in range(20):
        known.remember(names(said(f"text {number}.")), transcript_of(range(30), f"text {number}."), ROOT)
        assert lengths_found(known, "text 0.", "and more") == [30, 30]
    assert len(known) == 3
    assert lengths_found(known, "text 19.") == [30, 30] and lengths_found(known, "text 5.") == [0, 0]
    known.remember(names(said("long")), transcript_of(range(101), "long"), ROOT)
    assert lengths_found(known, "long") == [0, 0]
    known.remember(names(said("text 19.")), transcript_of([7], "text 19."), ROOT)
    assert lengths_found(known, "text 19.") == [1, 1]


def test_the_longest_known_beginning_wins():
    known = KnownTranscripts()
    texts = ("abc", "def", "ghi")
    for count in (1, 3, 2):
        known.remember(names(said(*texts[:count])), transcript_of(range(count), *texts[:count]), ROOT)
    assert [lengths_found(known, *texts[:n], "x") for n in range(4)] == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_a_conversation_that_goes_on_is_held_once():
    known = KnownTranscripts(max_tokens=10_000)
    texts = [f"text {number}." for number in range(100)]
    for count in range(1, 101):
        known.remember(names(said(*texts[:count])), transcript_of(range(count), *texts[:count]), ROOT)
    assert len(known) == 1
    assert [lengths_found(known, *texts[:n], "x") for n in (1, 50, 100)] == [[1, 1], [50, 50], [100, 100]]
    branch = [*texts[:50], "another"]
    known.remember(names(said(*branch)), transcript_of([*range(50), 7], *branch), ROOT)
    assert len(known) == 2
    assert lengths_found(known, *branch) == [51, 51] and lengths_found(known, *texts) == [100, 100]
    assert lengths_found(known, *texts[:50], "x") == [50, 50]
