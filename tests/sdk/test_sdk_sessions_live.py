"""Sessions on the real server with a tiny random model: every reply is what Hugging Face says after the same ids."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import LiveServer, drain, live_server
from tiny_folder import VOCAB, greedy, write_tiny_folder

from agentcache_sdk import (
    AgentCacheError,
    AsyncClient,
    BadRequest,
    Busy,
    Client,
    NotFound,
    Session,
    SessionDiverged,
    Turn,
)

IDS = {"temperature": 0, "return_token_ids": True}
PAGE = 16
Start = Callable[..., AbstractContextManager[LiveServer]]
Reference = Callable[[list[int], int], list[int]]


def ids(length: int, seed: object) -> list[int]:
    return random.Random(f"{length}/{seed}").choices(range(VOCAB), k=length)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("sdk_sessions") / "tiny"
    return folder, write_tiny_folder(folder)


@pytest.fixture(scope="module")
def reference(tiny: tuple[Path, Any]) -> Reference:
    known: dict[tuple[int, ...], list[int]] = {}

    def reply(prompt: list[int], count: int) -> list[int]:
        """What the model says after ``prompt``, without any cache of ours."""
        if len(known.get(tuple(prompt), [])) < count:
            known[tuple(prompt)] = greedy(tiny[1], [prompt], count)[0]
        return known[tuple(prompt)][:count]

    return reply


@pytest.fixture
def serve(tiny: tuple[Path, Any]) -> Start:
    @contextmanager
    def start(**settings: Any) -> Iterator[LiveServer]:
        with live_server(tiny[0], **settings) as server:
            yield server
            drain(server)

    return start


class Branch:
    """A raw session, and the ids that it must hold."""

    def __init__(self, session: Session, reference: Reference, known: list[int]) -> None:
        self.session = session
        self.reference = reference
        self.known = known

    def say(self, new: list[int], count: int) -> Turn:
        turn = self.session.send(new, max_tokens=count, **IDS)
        self.check(new, turn, count)
        return turn

    def check(self, new: list[int], turn: Turn, count: int) -> None:
        prompt = self.known + new
        assert turn.usage.prompt_tokens == len(prompt)
        assert turn.token_ids == self.reference(prompt, count)
        self.known = prompt + turn.token_ids

    def fork(self, n: int) -> list[Branch]:
        return [Branch(fork, self.reference, list(self.known)) for fork in self.session.fork(n)]


def test_forks_that_part_inside_a_page_and_take_turns_never_disturb_each_other(
    serve: Start, reference: Reference
) -> None:
    trunk = ids(20, "trunk")
    with serve(num_pages=64) as server, Client(server.url) as client, client.session(prompt=trunk) as session:
        parent = Branch(session, reference, trunk)
        left, right = parent.fork(2)
        for round_number in range(3):
            left.say(ids(3, ("left", round_number)), 6)
            right.say(ids(4, ("right", round_number)), 9)
        parent.say(ids(1, "parent"), 20)
        (late,) = left.fork(1)
        late.say(ids(5, "late"), 7)
        left.say(ids(5, "left again"), 7)
        parent.say(ids(2, "parent again"), 5)
        for branch in (left, right, late):
            branch.session.close()


def test_streams_of_forks_that_run_at_once_are_each_their_own(serve: Start, reference: Reference) -> None:
    trunk = ids(20, "trunk")
    with serve(num_pages=64) as server, Client(server.url) as client, client.session(prompt=trunk) as session:
        parent = Branch(session, reference, trunk)
        branches = [parent, *parent.fork(3)]
        added = [ids(n + 1, ("stream", n)) for n in range(4)]
        streams = [b.session.stream(new, max_tokens=24, **IDS) for b, new in zip(branches, added, strict=True)]
        for stream in streams:
            stream.__enter__()
        turns = [stream.result() for stream in reversed(streams)][::-1]
        for branch, new, turn in zip(branches, added, turns, strict=True):
            branch.check(new, turn, 24)
        for branch in branches:
            branch.say(ids(2, "after"), 4)
            branch.session.close()


def test_the_next_turn_finds_the_whole_transcript_cached(serve: Start) -> None:
    with serve(num_pages=256) as server, Client(server.url) as client, client.session("Be brief. " * 9) as session:
        previous = session.send("What is the cache?", max_tokens=21, **IDS)
        for text in ("And the pages?", "Why?", "Thank you."):
            turn = session.send(text, max_tokens=21, **IDS)
            known = [*previous.raw["prompt_token_ids"], *(previous.token_ids or [])]
            assert turn.raw["prompt_token_ids"][: len(known)] == known
            # The last token that was drawn was never run: it has no keys and values yet.
            assert turn.usage.cached_tokens == len(known) - 1
            assert turn.cache.source == "transcript"
            assert turn.cache.session == session.id
            previous = turn
        assert {row.lost for row in session.report().rows} == {0}


def test_chat_forks_equal_a_session_of_their_own(serve: Start, reference: Reference) -> None:
    with serve(num_pages=256) as server, Client(server.url) as client, client.session("Be brief.") as session:
        session.send("Look at this.", max_tokens=9, **IDS)
        branches = session.fork(2)
        for round_number in range(2):
            for name, branch in zip(("left", "right"), branches, strict=True):
                turn = branch.send(f"Go {name}, {round_number}.", max_tokens=9, **IDS)
                assert turn.token_ids == reference(turn.raw["prompt_token_ids"], 9)
        last = session.send("Straight on.", max_tokens=9, **IDS)
        assert last.token_ids == reference(last.raw["prompt_token_ids"], 9)
        assert [len(s.messages) for s in (session, *branches)] == [5, 7, 7]


@pytest.mark.parametrize("cut", ["after the first piece", "and later", "before the first piece"])
def test_a_turn_that_was_cut_leaves_no_trace(serve: Start, reference: Reference, cut: str) -> None:
    head, said, more = ids(512, "head"), ids(64, "said"), ids(64, "more")
    with serve(num_pages=256) as server, Client(server.url) as client:
        for _ in range(10):
            with client.session(prompt=head) as session:
                branch = Branch(session, reference, head)
                branch.say([], 48)
                with session.stream(said, max_tokens=400, **IDS) as stream:
                    if cut != "before the first piece":
                        next(stream)
                if cut == "and later":
                    time.sleep(0.2)
                turn = branch.say(more, 16)
                assert turn.usage.prompt_tokens == 512 + 48 + 64
                assert turn.usage.cached_tokens >= 544
                assert session.mark() == 2
                assert len(session.explain().turns) == 2
        drain(server)


def test_a_turn_cancelled_at_any_moment_leaves_no_trace(serve: Start, reference: Reference) -> None:
    head, said, more = ids(100, "head"), ids(64, "said"), ids(10, "more")

    async def run(url: str) -> None:
        async with AsyncClient(url) as client:
            for n in range(12):
                async with client.session(prompt=head) as session:
                    with pytest.raises(asyncio.TimeoutError):
                        await asyncio.wait_for(session.send(said, max_tokens=600, **IDS), 0.004 * n + 0.001)
                    turn = await session.send(more, max_tokens=4, **IDS)
                    assert turn.usage.prompt_tokens == 110
                    assert turn.token_ids == reference(head + more, 4)

    with serve(num_pages=128) as server:
        asyncio.run(run(server.url))


def test_a_second_turn_at_once_is_refused_by_both_sides(serve: Start, reference: Reference) -> None:
    head = ids(40, "head")
    with (
        serve(num_pages=128) as server,
        Client(server.url, max_retries=0) as client,
        client.session(prompt=head) as session,
    ):
        branch = Branch(session, reference, head)
        other = client.resume(session.id or "").open()
        with session.stream(ids(3, "a"), max_tokens=600, **IDS) as stream:
            next(stream)
            with pytest.raises(Busy):
                session.send(ids(3, "b"), max_tokens=2)
            with pytest.raises(Busy) as refused:
                other.send(ids(3, "b"), max_tokens=2)
            assert refused.value.status == 429
            (fork,) = session.fork()
            Branch(fork, reference, head).say(ids(3, "c"), 4)
            branch.check(ids(3, "a"), stream.result(), 600)
        branch.say(ids(3, "d"), 4)
        fork.close()


def test_closing_a_session_while_its_turn_runs_frees_everything(serve: Start) -> None:
    with serve(num_pages=128) as server, Client(server.url) as client:
        for _ in range(10):
            session = client.session(prompt=ids(64, "head"))
            with session.stream(max_tokens=1500, **IDS) as stream:
                next(stream)
                session.close()
                with pytest.raises(AgentCacheError):
                    stream.result()
            drain(server)
        assert client.sessions() == []


def flood(server: LiveServer, name: str, prompts: int = 10) -> None:
    """Unrelated prompts of 20 pages each."""
    for n in range(prompts):
        server.complete(ids(20 * PAGE - 1, (name, n)), max_tokens=1)


def advance(server: LiveServer, seconds: float) -> None:
    server.http.post("/debug/clock", json={"advance_s": seconds}).raise_for_status()


def test_a_pin_keeps_pages_until_it_ends_without_anybody_touching_it(serve: Start) -> None:
    head = ids(10 * PAGE, "pinned")
    with serve(num_pages=40) as server, Client(server.url) as client, client.session(prompt=head) as session:
        session.send(max_tokens=1, **IDS)
        pin = session.pin(ttl=60)
        assert pin.granted_pages == client.cache().pinned == 10
        assert pin.expires_at is not None
        assert abs(pin.expires_at - time.time() - 60) < 5
        flood(server, "before")
        advance(server, 50)
        hit = session.send(ids(1, "hit"), max_tokens=1, **IDS)
        assert hit.usage.cached_tokens >= 10 * PAGE
        assert client.cache().pinned >= 10
        advance(server, 11)  # a hit does not prolong a pin
        assert client.cache().pinned == 0
        flood(server, "after")
        session.rollback(0)
        assert session.send(ids(1, "miss"), max_tokens=1, **IDS).usage.cached_tokens == 0


def test_a_pin_of_a_client_that_died_comes_back(serve: Start) -> None:
    with serve(num_pages=40) as server:
        with Client(server.url) as client:
            session = client.session(prompt=ids(10 * PAGE, "pinned"))
            session.send(max_tokens=1)
            session.pin(ttl=60)
        assert server.pages()["pinned"] == 10
        advance(server, 61)
        assert server.pages()["pinned"] == 0
        flood(server, "after")


def test_a_session_has_one_lease_and_ending_it_ends_the_lease(serve: Start) -> None:
    with serve(num_pages=40) as server, Client(server.url) as client:
        with client.session(prompt=ids(8 * PAGE, "pinned")) as session:
            session.send(max_tokens=1)
            assert [session.pin(ttl).granted_pages for ttl in ("1m", "2m", "1m")] == [8, 8, 8]
            assert client.cache().pinned == 8
            session.unpin()
            assert client.cache().pinned == 0
            with session.waiting("tool", expect_s=30):
                assert client.cache().pinned == 8
            session.pin()
        assert client.cache().pinned == 0


@pytest.mark.parametrize("pages", [38, 39])
def test_a_pin_of_nearly_everything_is_partial_and_stalls_nobody(
    serve: Start, reference: Reference, pages: int
) -> None:
    with (
        serve(num_pages=40) as server,
        Client(server.url, timeout=20) as client,
        client.session(prompt=ids(pages * PAGE - 1, "most")) as session,
    ):
        session.send(max_tokens=1)
        pin = session.pin(ttl="1h")
        assert 0 < pin.granted_pages < pages
        assert client.cache().pinned == pin.granted_pages
        prompt = ids(100, "other")
        turn = client.complete(prompt, max_tokens=8, **IDS)
        assert turn.token_ids == reference(prompt, 8)


@pytest.mark.parametrize("ttl_s", [0, -1, 1e18, "NaN", None, "60"])
def test_a_lease_without_a_sensible_end_is_refused_on_both_sides(serve: Start, ttl_s: Any) -> None:
    with serve(num_pages=40) as server, Client(server.url) as client, client.session(prompt=[1, 2, 3]) as session:
        session.send(max_tokens=1)
        content = json.dumps({"ttl_s": ttl_s}).replace('"NaN"', "NaN")
        reply = server.http.post(f"/v1/sessions/{session.id}/pin", content=content)
        if ttl_s is None:
            assert reply.status_code == 200
            return
        assert reply.status_code == 400, reply.text
        if not isinstance(ttl_s, str):
            with pytest.raises(ValueError, match="ttl: got"):
                session.pin(ttl=ttl_s)


class Counting(httpx.HTTPTransport):
    """Counts the bytes of each request's body."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[int] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(len(request.content))
        return super().handle_request(request)


def test_a_long_session_sends_little(serve: Start) -> None:
    counting = Counting()
    with serve(num_pages=256) as server, Client(server.url, transport=counting) as client:
        with client.session("The cache keeps pages of keys and values. " * 60) as session:
            session.send("Hello.", max_tokens=4)
            assert max(counting.sent) > 2000
            counting.sent.clear()
            before = session.explain().tokens
            forks = session.fork(4)
            turns = [fork.send("Go on.", max_tokens=4) for fork in forks]
            for fork in forks:
                fork.close()
        assert min(turn.usage.cached_tokens for turn in turns) >= before - 1 > 500
        assert max(counting.sent) < 200


def test_a_snapshot_outlives_the_server(serve: Start, reference: Reference, tmp_path: Path) -> None:
    head = ids(50, "head")
    with (
        serve(num_pages=64, disk_dir=tmp_path) as server,
        Client(server.url) as client,
        client.session(prompt=head, metadata={"job": 1}) as session,
        client.session("Be brief.") as chat,
    ):
        branch = Branch(session, reference, head)
        branch.say(ids(5, "one"), 6)
        session.snapshot("after-one")
        kept = list(branch.known)
        branch.say(ids(5, "two"), 6)
        chat.send("Hello.", max_tokens=5, **IDS)
        chat.snapshot("chat")
        expected = chat.send("And now?", max_tokens=5, **IDS)
    with serve(num_pages=64, disk_dir=tmp_path) as server, Client(server.url) as client:
        with pytest.raises(NotFound):
            client.resume(session.id or "").open()
        with client.restore("after-one") as restored, client.restore("chat") as talk:
            assert restored.mark() == 1
            assert restored.explain().metadata == {"job": 1}
            Branch(restored, reference, kept).say(ids(5, "other"), 6)
            restored.rollback(0)
            Branch(restored, reference, head).say(ids(5, "one"), 6)
            again = talk.send("And now?", max_tokens=5, **IDS)
            assert again.raw["prompt_token_ids"] == expected.raw["prompt_token_ids"]
            assert again.token_ids == expected.token_ids


def test_a_snapshot_of_another_model_is_refused(serve: Start, tmp_path: Path) -> None:
    with (
        serve(num_pages=64, disk_dir=tmp_path / "kept") as server,
        Client(server.url) as client,
        client.session("Be brief.") as session,
    ):
        session.send("Hello.", max_tokens=2)
        session.snapshot("mine")
    other = tmp_path / "other"
    write_tiny_folder(other, seed=1)
    with live_server(other, num_pages=64, disk_dir=tmp_path / "kept") as server, Client(server.url) as client:
        with pytest.raises(SessionDiverged, match="model"):
            client.restore("mine").open()
        with pytest.raises(NotFound):
            client.restore("nobodys").open()
        with client.session() as session, pytest.raises(BadRequest):
            session.snapshot("../escape")


def test_a_session_goes_on_in_another_client_and_belongs_to_its_key(serve: Start, reference: Reference) -> None:
    head = ids(30, "head")
    with serve(num_pages=64, api_keys=["one", "two"]) as server:
        with Client(server.url, "one") as client:
            session = client.session(prompt=head)
            branch = Branch(session, reference, head)
            branch.say(ids(3, "a"), 5)
        with Client(server.url, "two") as client:
            assert client.sessions() == []
            with pytest.raises(NotFound, match="session_not_found"):
                client.resume(session.id or "").open()
        with Client(server.url, "one") as client, client.resume(session.id or "") as resumed:
            again = Branch(resumed, reference, branch.known)
            turn = again.say(ids(3, "b"), 5)
            assert turn.usage.cached_tokens == len(branch.known) - 1
            resumed.rollback(1)
            Branch(resumed, reference, branch.known).say(ids(3, "c"), 5)


def test_a_resumed_or_restored_session_has_the_messages_of_the_whole_conversation(serve: Start) -> None:
    async def resumed(url: str, session_id: str) -> tuple[dict[str, Any], ...]:
        async with AsyncClient(url) as client:
            session = await client.resume(session_id).open()
            await session.send("Three.", max_tokens=3)
            await session.rollback(2)
            return session.messages

    with serve(num_pages=64) as server, Client(server.url) as client, client.session("Be brief.") as session:
        session.send("One.", max_tokens=5)
        session.send("Two.", max_tokens=5)
        session.snapshot("two")
        with client.restore("two") as restored:
            assert restored.messages == session.messages
            (fork,) = restored.fork(at_turn=1)
            assert fork.messages == session.messages[:3]
            fork.close()
        assert asyncio.run(resumed(server.url, session.id or "")) == session.messages
        assert session.send("Four.", max_tokens=2).usage.prompt_tokens > 20


def test_two_clients_never_undo_each_others_turns(serve: Start, reference: Reference) -> None:
    head, lost = ids(60, "head"), ids(64, "lost")
    with serve(num_pages=128) as server, Client(server.url) as client:
        for wait_s in (0.0, 0.002, 0.02, 0.1):
            with client.session(prompt=head) as mine, Client(server.url) as elsewhere:
                Branch(mine, reference, head).say(ids(2, "first"), 4)
                theirs = elsewhere.resume(mine.id or "").open()
                with mine.stream(lost, max_tokens=900) as stream:
                    time.sleep(wait_s)
                    stream.close()
                said = None
                while said is None:
                    try:
                        said = theirs.send(ids(3, "theirs"), max_tokens=4, **IDS)
                    except Busy:
                        time.sleep(0.01)
                for act in (lambda: mine.send([1], max_tokens=1), lambda: mine.rollback(0)):
                    with pytest.raises(SessionDiverged, match="another client has changed it"):
                        act()
                turns = theirs.explain().turns
                assert [turn.completion_tokens for turn in turns] == [4, 4]
                assert mine.mark() == 1
                with client.resume(mine.id or "") as again:
                    known = [*said.raw["prompt_token_ids"], *(said.token_ids or [])]
                    Branch(again, reference, known).say(ids(1, "again"), 4)


def test_a_lost_session_goes_on_from_its_messages(serve: Start) -> None:
    with serve(num_pages=64) as server, Client(server.url) as client, client.session("Be brief.", ttl=60) as session:
        session.send("Hello.", max_tokens=5)
        advance(server, 61)
        with pytest.raises(NotFound, match=r"client\.session\(messages=session\.messages\)"):
            session.send("Still there?", max_tokens=5)
        with client.session(messages=session.messages) as revived:
            assert revived.send("Still there?", max_tokens=5).usage.prompt_tokens > 20
            assert len(revived.messages) == 5


def test_many_forks_run_at_once(serve: Start, reference: Reference) -> None:
    head = ids(300, "head")

    async def run(url: str) -> list[tuple[int, Turn]]:
        async with AsyncClient(url) as client, client.session(prompt=head) as session:
            await session.send(max_tokens=1)
            forks = await session.fork(8, at_turn=0)
            turns = await asyncio.gather(*(fork.send(ids(4, n), max_tokens=12, **IDS) for n, fork in enumerate(forks)))
            await asyncio.gather(*(fork.close() for fork in forks))
            return list(enumerate(turns))

    with serve(num_pages=256) as server:
        for n, turn in asyncio.run(run(server.url)):
            assert turn.token_ids == reference(head + ids(4, n), 12)
            assert turn.usage.cached_tokens >= 300 - 1
