"""Answers that are lost on the way from a real server: where a session stands then, on both sides, and how it goes on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cutting_proxy import Cut, CuttingProxy, cutting_proxy
from live import drain
from saying import Saying, saying_server

from agentcache_sdk import AsyncClient, AsyncSession, Client, ConnectionFailed, NotFound, Session, SessionDiverged

SYSTEM = "You are a careful engineer who reads before writing, and who says little. " * 8


@pytest.fixture(scope="module")
def saying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saying]:
    folder = tmp_path_factory.mktemp("lost")
    with saying_server(folder, disk_dir=folder / "disk") as saying:
        yield saying


@pytest.fixture
def proxy(saying: Saying) -> Iterator[CuttingProxy]:
    saying.says("Yes.")
    with cutting_proxy(saying.server.port) as proxy:
        yield proxy
    saying.server.http.post("/v1/cache/flush").raise_for_status()
    for info in sessions(saying):
        saying.server.http.delete(f"/v1/sessions/{info['id']}")
    drain(saying.server)


@pytest.fixture
def client(proxy: CuttingProxy) -> Iterator[Client]:
    with Client(proxy.url, timeout=20) as client:
        yield client


def sessions(saying: Saying) -> list[dict[str, Any]]:
    return saying.server.http.get("/v1/sessions").json()["data"]


def agrees(saying: Saying, session: Session | AsyncSession) -> None:
    """Both sides have the same conversation."""
    info = saying.server.http.get(f"/v1/sessions/{session.id}?include=messages").json()
    assert list(session.messages) == info["messages"]
    assert session.mark() == len(info["turns"])


def lost(proxy: CuttingProxy, act: Callable[[], object]) -> None:
    """``act``, whose first answer is lost after the server has done what was asked."""
    proxy.cut(Cut("down"))
    with pytest.raises(ConnectionFailed):
        act()
    assert not proxy.is_armed


def said(session: Session) -> list[str]:
    """What the user said."""
    return [m["content"] for m in session.messages if m["role"] == "user"]


@pytest.mark.parametrize("turns", [1, 2, 3], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize(
    "then", ["send", "stream", "fork", "rollback", "snapshot", "compact", "adopt another", "again"]
)
def test_an_adoption_whose_answer_was_lost_is_made_for_good_by_whatever_comes_next(
    saying: Saying, proxy: CuttingProxy, client: Client, turns: int, then: str
) -> None:
    with client.session(SYSTEM) as session:
        session.send("One?")
        fork, other = session.fork(2, at_turn=0)
        session.send("Two?")
        for n in range(turns):
            fork.send(f"Fork {n}?")
        lost(proxy, lambda: session.adopt(fork))
        expected = [f"Fork {n}?" for n in range(turns)]
        if then == "send":
            session.send("On.")
        elif then == "stream":
            with session.stream("On.") as stream:
                stream.result()
        elif then == "fork":
            (twin,) = session.fork()
            assert said(twin) == expected
            twin.close()
        elif then == "rollback":
            session.rollback(1)
        elif then == "snapshot":
            assert session.snapshot("adopted").turns == turns
        elif then == "compact":
            session.compact("We talked.", keep_turns=0)
        elif then == "adopt another":
            session.adopt(other)
        else:
            session.adopt(fork)
        agrees(saying, session)
        follows = {"send": [*expected, "On."], "stream": [*expected, "On."], "rollback": expected[:1]}
        if then not in ("compact", "adopt another"):
            assert said(session) == follows.get(then, expected)
        session.send("And on.")
        agrees(saying, session)
        other.close()
        assert len(sessions(saying)) == 1


def test_an_adoption_that_never_reached_the_server_is_made_when_the_session_goes_on(
    saying: Saying, proxy: CuttingProxy, client: Client
) -> None:
    with client.session(SYSTEM) as session:
        session.send("One?")
        (fork,) = session.fork()
        fork.send("Two?")
        proxy.cut(Cut("up"))
        with pytest.raises(ConnectionFailed):
            session.adopt(fork)
        fork.send("Three, of a fork that is still there.")
        session.send("On.")
        assert said(session) == ["One?", "Two?", "Three, of a fork that is still there.", "On."]
        agrees(saying, session)


@pytest.mark.parametrize("reached", [True, False])
def test_closing_the_fork_of_a_lost_adoption_leaves_a_session_that_goes_on(
    saying: Saying, proxy: CuttingProxy, client: Client, reached: bool
) -> None:
    with client.session(SYSTEM) as session:
        session.send("One?")
        (fork,) = session.fork()
        fork.send("Two?")
        proxy.cut(Cut("down" if reached else "up"))
        with pytest.raises(ConnectionFailed):
            session.adopt(fork)
        fork.close()
        session.send("On.")
        assert said(session) == ["One?", *(["Two?"] if reached else []), "On."]
        agrees(saying, session)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("then", ["send", "stream", "fork", "compact", "snapshot", "adopt"])
def test_a_rollback_whose_answer_was_lost_is_made_for_good_by_whatever_comes_next(
    saying: Saying, proxy: CuttingProxy, client: Client, way: str, then: str
) -> None:
    with client.session(SYSTEM) as session:
        for text in ("One?", "Two?", "Three?"):
            session.send(text)
        (other,) = session.fork()
        proxy.cut(Cut(way))  # type: ignore[arg-type]
        with pytest.raises(ConnectionFailed):
            session.rollback(1)
        if then == "stream":
            with session.stream("On.") as stream:
                stream.result()
        elif then == "fork":
            (twin,) = session.fork()
            assert said(twin) == ["One?"]
            twin.close()
        elif then == "compact":
            assert session.compact("We talked.", keep_turns=0).turns_dropped == 1
        elif then == "snapshot":
            assert session.snapshot("back").turns == 1
        elif then == "adopt":
            session.adopt(other)
        else:
            session.send("On.")
        agrees(saying, session)
        session.send("And on.")
        agrees(saying, session)
        other.close()


def test_what_another_client_did_after_a_lost_rollback_is_not_undone(
    saying: Saying, proxy: CuttingProxy, client: Client
) -> None:
    with client.session(SYSTEM) as session:
        session.send("One?")
        session.send("Two?")
        lost(proxy, lambda: session.rollback(0))
        client.resume(session.id or "").send("From elsewhere.")
        for _ in range(2):
            with pytest.raises(SessionDiverged):
                session.send("On.")
        assert said(client.resume(session.id or "").open()) == ["From elsewhere."]


def test_a_compaction_leaves_the_session_as_it_was_or_makes_it_anew_wherever_it_is_cut(
    saying: Saying, proxy: CuttingProxy, client: Client
) -> None:
    """Its requests are cut one after the other: the fork, the summary, the closing, the tokenising, the new session, the end."""
    for skipped, summary in itertools.product(range(6), (None, "We talked.")):
        with client.session(SYSTEM) as session:
            session.send("One?")
            session.send("Two?")
            before, known = session.messages, session.id
            counted = CutAfter(proxy, skipped)
            failed = False
            try:
                with counted:
                    session.compact(summary, keep_turns=0)
            except ConnectionFailed:
                failed = True
            if failed:
                assert (session.messages, session.id, session.mark()) == (before, known, 2)
            else:
                assert session.mark() == 0 and session.id != known
            agrees(saying, session)
            session.send("On.")
            agrees(saying, session)
        for info in sessions(
            saying
        ):  # a session whose making was lost is nobody's: it holds no pages, and its time ends
            assert not info["turns"] or info["parent"], info
            saying.server.http.delete(f"/v1/sessions/{info['id']}")
        drain(saying.server)


class CutAfter:
    """Cuts the answer that comes after ``skipped`` others."""

    def __init__(self, proxy: CuttingProxy, skipped: int) -> None:
        self.proxy = proxy
        self.skipped = skipped

    def __enter__(self) -> None:
        passed = self.proxy._passed
        left = [self.skipped]

        def counting(way: Any, piece: bytes) -> tuple[bytes, Cut | None]:
            if way == "down" and piece.startswith(b"HTTP/1.1"):
                left[0] -= 1
                if left[0] == -1:
                    return b"", Cut("down")
            return passed(way, piece)

        self.proxy._passed = counting  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        del self.proxy._passed  # type: ignore[method-assign]


def test_an_expired_fork_does_not_cost_the_session_its_place(saying: Saying, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("One?")
        session.snapshot("one")
        (fork,) = session.fork()
        known = session.id
        saying.server.http.delete(f"/v1/sessions/{fork.id}").raise_for_status()
        fork.kept = None  # type: ignore[attr-defined]
        session.adopt(fork)  # it comes back from the snapshot that both of them are
        assert session.id == known
        (late,) = session.fork()
        late.send("Two?")
        saying.server.http.delete(f"/v1/sessions/{late.id}").raise_for_status()
        with pytest.raises(NotFound):
            session.adopt(late)
        assert session.id == known and [info["id"] for info in sessions(saying)] == [known]
        session.send("On.")
        agrees(saying, session)


def test_a_lost_creation_and_a_lost_fork_hold_no_pages_and_can_be_made_again(
    saying: Saying, proxy: CuttingProxy, client: Client
) -> None:
    session = client.session(SYSTEM)
    lost(proxy, session.open)
    assert session.id is None
    session.send("One?")
    lost(proxy, session.fork)
    (fork,) = session.fork()
    fork.send("Two?")
    for one in (session, fork):
        agrees(saying, one)
        one.close()
    assert saying.server.pages()["live"] == 0


def test_a_snapshot_whose_answer_was_lost_can_be_made_again(
    saying: Saying, proxy: CuttingProxy, client: Client
) -> None:
    with client.session(SYSTEM) as session:
        session.send("One?")
        lost(proxy, lambda: session.snapshot("kept"))
        session.send("Two?")
        session.snapshot("kept")
        saying.server.http.delete(f"/v1/sessions/{session.id}").raise_for_status()
        session.send("Three?")
        assert said(session) == ["One?", "Two?", "Three?"]
        agrees(saying, session)


def test_another_conversation_of_the_same_length_under_the_snapshots_name_is_not_taken_for_the_session(
    saying: Saying, client: Client
) -> None:
    with client.session(SYSTEM) as session:
        session.send("One?")
        session.snapshot("name")
        (fork,) = session.fork()
        session.rollback(0)
        session.send("Won?")
        session.snapshot("name")
        saying.server.http.delete(f"/v1/sessions/{fork.id}").raise_for_status()
        with pytest.raises(NotFound, match="session_not_found"):
            fork.send("Two?")
        assert len(sessions(saying)) == 1, "what was restored by mistake is given back"
        saying.server.http.delete(f"/v1/sessions/{session.id}").raise_for_status()
        session.send("Too?")
        agrees(saying, session)


def test_a_snapshot_that_is_gone_as_well_is_not_what_the_error_is_about(saying: Saying, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("One?")
        session.snapshot("gone")
        for path in saying.server.settings.disk_dir.glob("snapshots/**/*"):  # type: ignore[union-attr]
            if path.is_file():
                path.unlink()
        saying.server.http.delete(f"/v1/sessions/{session.id}").raise_for_status()
        with pytest.raises(NotFound, match=r"session_not_found.*|client\.session") as caught:
            session.send("Two?")
        assert caught.value.code == "session_not_found"


def test_threads_that_find_the_session_lost_at_once_restore_one(saying: Saying, client: Client) -> None:
    for _ in range(5):
        with client.session(SYSTEM) as session:
            session.send("One?")
            session.snapshot("one")
            saying.server.http.delete(f"/v1/sessions/{session.id}").raise_for_status()
            gate = threading.Barrier(4)
            failures: list[BaseException] = []

            def use(act: Callable[[], object], gate: threading.Barrier = gate, failures: list[Any] = failures) -> None:
                gate.wait(5)
                try:
                    act()
                except BaseException as error:  # noqa: BLE001  told to the test
                    failures.append(error)

            acts = (session.explain, session.pin, session.unpin, lambda s=session: s.send("Two?"))
            threads = [threading.Thread(target=use, args=(act,)) for act in acts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            assert failures == []
            agrees(saying, session)
            assert [info["id"] for info in sessions(saying)] == [session.id]


def test_the_asynchronous_twin_makes_lost_changes_for_good_too(saying: Saying, proxy: CuttingProxy) -> None:
    async def main() -> None:
        async with AsyncClient(proxy.url, timeout=20) as client, client.session(SYSTEM) as session:
            await session.send("One?")
            (fork,) = await session.fork(at_turn=0)
            await fork.send("Won?")
            proxy.cut(Cut("down"))
            with pytest.raises(ConnectionFailed):
                await session.adopt(fork)
            await session.send("Two?")
            agrees(saying, session)
            proxy.cut(Cut("down"))
            with pytest.raises(ConnectionFailed):
                await session.rollback(0)
            async with session.stream("Three?") as stream:
                await stream.result()
            agrees(saying, session)
            assert len(session.messages) == 3

    asyncio.run(main())
