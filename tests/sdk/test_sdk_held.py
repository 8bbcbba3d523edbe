"""Sessions that the server holds: what goes over the wire, what happens when the two sides could part."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest
import sdk_wire
from sdk_wire import WireServer
from wire_sessions import Held, HeldSession

from agentcache_sdk import (
    AgentCacheError,
    AsyncClient,
    AsyncSession,
    Busy,
    Client,
    ConnectionFailed,
    NotFound,
    ServerError,
    Session,
    SessionDiverged,
)

SYSTEM = "You are a careful engineer. " * 8


def without_conditions(body: dict[str, Any]) -> dict[str, Any]:
    """A turn without what it says of the session's state; those change from object to object."""
    return {key: value for key, value in body.items() if key not in ("if_turns", "turn_id")}


def only(held: Held) -> HeldSession:
    (session,) = held.sessions.values()
    return session


def test_a_turn_sends_only_what_is_new(wire: WireServer, held: Held, client: Client) -> None:
    def read_file(path: str) -> str:
        return path

    with client.session(SYSTEM, [read_file], "30m", "tiny", metadata={"job": 7}) as session:
        assert session.id == only(held).id
        call = session.send("use the tool", temperature=0).tool_calls[0]
        session.tool_result(call.id, "three lines")
        session.send(max_tokens=9)
    (created,) = held.created
    assert created["messages"] == [{"role": "system", "content": SYSTEM}]
    assert (created["ttl_s"], created["model"], created["metadata"]) == (1800, "tiny", {"job": 7})
    assert created["tools"][0]["function"]["name"] == "read_file"
    first, second = wire.chats
    user = {"role": "user", "content": "use the tool"}
    assert without_conditions(first) == {"messages": [user], "session": session.id, "temperature": 0}
    assert [body["if_turns"] for body in (first, second)] == [0, 1] and first["turn_id"] != second["turn_id"]
    result = {"role": "tool", "tool_call_id": call.id, "content": "three lines"}
    assert without_conditions(second) == {"messages": [result], "session": session.id, "max_tokens": 9}
    assert held.sessions == {}, "the end of the with statement ends the session"


def test_nothing_is_sent_before_a_session_is_used(wire: WireServer, held: Held, client: Client) -> None:
    session = client.session(SYSTEM)
    assert (session.id, wire.requests) == (None, [])
    session.send("one")
    session.send("two")
    assert [seen.path for seen in wire.requests] == ["/v1/sessions", *["/v1/chat/completions"] * 2]
    session.close()
    never = client.session(SYSTEM)
    never.close()
    assert len(held.created) == 1


def test_a_session_that_cannot_be_made_says_so_where_it_is_opened(held: Held, client: Client) -> None:
    with pytest.raises(NotFound, match="no such model"), client.session(model="other"):
        pytest.fail("the block must not run")
    with pytest.raises(NotFound, match="no such model"):
        client.session(model="other").open()
    session = client.session(model="other")
    with pytest.raises(NotFound, match="no such model"):
        session.send("one")
    assert session.messages == ()


def test_a_server_without_sessions_is_asked_once_per_client(wire: WireServer, client: Client) -> None:
    for _ in range(3):
        with client.session() as session:
            assert session.id is None
            session.send("one")
            with session.waiting("a tool"):
                pass
    assert [seen.path for seen in wire.requests].count("/v1/sessions") == 1


@pytest.mark.parametrize(
    "answer",
    [
        sdk_wire.raw(404, b'{"detail":"Not Found"}'),
        sdk_wire.raw(404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),
        sdk_wire.raw(405, b"Method Not Allowed"),
        sdk_wire.raw(404, b"<html>nothing here</html>"),
    ],
)
def test_other_servers_without_the_route_are_recognised(wire: WireServer, client: Client, answer: object) -> None:
    wire.faults.append(answer)  # type: ignore[arg-type]
    with client.session() as session:
        assert session.id is None
        assert session.send("one").text


def test_what_needs_a_server_that_holds_sessions_says_so(client: Client) -> None:
    with client.session() as session:
        verbs = (session.pin, session.unpin, session.explain, lambda: session.snapshot("here"))
        for verb in verbs:
            with pytest.raises(AgentCacheError, match="does not hold sessions"):
                verb()
    for made in (client.resume("sess_1"), client.restore("here"), client.session(prompt="once")):
        with pytest.raises(AgentCacheError, match="does not hold sessions"):
            made.open()


def test_a_failed_probe_is_not_taken_for_an_answer(wire: WireServer, held: Held, client: Client) -> None:
    wire.faults.append(sdk_wire.error(500))
    session = client.session()
    with pytest.raises(ServerError):
        session.open()
    with session:
        assert session.id == only(held).id


def test_a_turn_whose_answer_was_lost_is_dropped_by_the_server_too(
    wire: WireServer, held: Held, client: Client
) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        before = session.messages
        wire.faults.append(sdk_wire.commit_then_drop)
        with pytest.raises(ConnectionFailed):
            session.send("two")
        assert session.messages == before
        assert len(only(held).turns) == 2, "the server took the turn for done"
        session.send("three")
        assert [m["content"] for m in wire.prompts[-1]["messages"]][3:] == ["three"]
        lost = wire.chats[1]["turn_id"]
        assert only(held).asked == [("rollback", {"to_turn": 1, "only_turn_id": lost})]
        session.send("four")
        assert len(only(held).asked) == 1, "only after a turn that is in doubt"


@pytest.mark.parametrize("use", ["rollback", "snapshot"])
def test_what_follows_a_cut_turn_first_settles_it(wire: WireServer, held: Held, client: Client, use: str) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        wire.faults.append(sdk_wire.stream_then(sdk_wire.go_on_until_hung_up))
        with session.stream("two") as stream:
            next(stream)
        busy = [sdk_wire.error(429, "session_busy")] * 3
        wire.faults.extend(busy)
        if use == "rollback":
            session.rollback(1)
        else:
            session.snapshot("here")
        assert not wire.faults, "the server needs a moment to see that the client is gone: that is waited for"
        assert session.send("three").text
        settled = [("rollback", {"to_turn": 1, "only_turn_id": wire.chats[1]["turn_id"]})]
        assert only(held).asked == settled + ([] if use == "rollback" else [("snapshot", {"name": "here"})])


def test_a_cut_that_reaches_the_server_before_its_turn_does_not_make_the_next_one_fail(
    wire: WireServer, held: Held, client: Client
) -> None:
    with client.session(SYSTEM) as session:
        wire.faults.append(sdk_wire.drop)
        with pytest.raises(ConnectionFailed):
            session.send("one")
        wire.faults.extend([lambda _: True, sdk_wire.error(429, "session_busy")])
        assert session.send("two").text


def test_somebody_elses_turn_is_not_waited_for(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        wire.faults.append(sdk_wire.error(429, "session_busy"))
        with pytest.raises(Busy):
            session.send("one")
        session.send("one")
        assert only(held).asked == [], "a turn that was refused leaves nothing to settle"


def test_a_turn_is_not_sent_again_when_it_may_have_been_taken(wire: WireServer, held: Held, client: Client) -> None:
    with client.session() as session:
        wire.faults.append(sdk_wire.error(502))
        with pytest.raises(ServerError):
            session.send("one")
        assert len(wire.chats) == 1
        wire.faults.extend([lambda _: True, sdk_wire.error(503)])
        assert session.send("one").text


def test_a_lost_session_says_how_to_go_on_and_its_messages_do(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        held.sessions.clear()
        with pytest.raises(NotFound, match=r"client\.session\(messages=session\.messages\)") as caught:
            session.send("two")
        assert caught.value.code == "session_not_found"
        with client.session(messages=session.messages) as again:
            again.send("two")
    assert [m["content"] for m in wire.prompts[-1]["messages"]] == [
        SYSTEM,
        "one",
        session.messages[2]["content"],
        "two",
    ]


def test_forks_are_made_by_the_server_and_send_nothing_long(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(SYSTEM * 40) as session:
        session.send("one")
        session.send("two")
        left, right = session.fork(2)
        (early,) = session.fork(at_turn=1)
        for branch in (left, right, early):
            branch.send("go on")
        assert len({session.id, left.id, right.id, early.id} & set(held.sessions)) == 4
        long = [seen for seen in wire.requests if len(json.dumps(seen.body)) > 300]
        assert [seen.path for seen in long] == ["/v1/sessions"], "only the first request carries the text"
        assert len(wire.prompts[-1]["messages"]) == 4
        assert held.sessions[session.id or ""].asked[-1] == ("fork", {"n": 1, "at_turn": 1})
        early.close()
        assert early.id not in held.sessions
        assert session.send("three").text


def test_a_fork_keeps_the_turns_that_the_client_has_seen(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        wire.faults.append(sdk_wire.commit_then_drop)
        with pytest.raises(ConnectionFailed):
            session.send("two")
        (fork,) = session.fork()
        assert len(held.sessions[fork.id or ""].turns) == 1
        fork.send("else")
        assert held.sessions[fork.id or ""].asked == []


def test_a_rollback_that_fails_changes_nothing(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        before = session.messages
        wire.faults.append(sdk_wire.error(500))
        with pytest.raises(ServerError):
            session.rollback(0)
        assert session.messages == before
        session.rollback(0)
        assert (len(session.messages), len(only(held).turns)) == (1, 0)


def test_leases_hints_and_explanations_go_to_the_server(held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        pin = session.pin()
        assert (pin.granted_pages, pin.expires_at) == (3, 70.5)
        session.pin(ttl=90)
        session.unpin()
        with session.waiting("pytest", expect_s=3):
            assert only(held).asked[-1] == ("wait", {"tool": "pytest", "expect_s": 3})
        assert session.waits[0].tool == "pytest"
        explanation = session.explain()
        assert [event["event"] for event in explanation.events][:2] == ["pin", "pin"]
        assert explanation.turns[0].messages == 2
        assert explanation.cached is not None
        assert explanation.cached.miss is not None
        assert (explanation.cached.tokens, explanation.cached.miss.code) == (6, "evicted")
        assert [body.get("ttl_s") for verb, body in only(held).asked if verb == "pin"] == [600, 90]
        (listed,) = client.sessions()
        assert (listed.id, len(listed.turns), listed.kind) == (session.id, 1, "chat")
        with pytest.raises(ValueError, match="ttl: got"):
            session.pin(ttl=0)


def test_snapshots_are_restored_as_new_sessions(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        assert session.snapshot("after-one").name == "after-one"
        session.send("two")
    with client.restore("after-one", ttl="1h") as restored, client.session(from_snapshot="after-one") as other:
        assert restored.mark() == other.mark() == 1
        assert restored.id != other.id
        restored.send("three")
        restored.rollback(1)
    assert [m["content"] for m in wire.prompts[-1]["messages"]][3:] == ["three"]
    assert held.created[1] == {"from_snapshot": "after-one", "ttl_s": 3600}
    with pytest.raises(NotFound, match="no snapshot nothing"):
        client.restore("nothing").open()


def test_a_resumed_session_goes_on_where_another_client_left_it(wire: WireServer, held: Held, client: Client) -> None:
    def read_file(path: str) -> str:
        return path

    first = client.session(SYSTEM, [read_file])
    sent = first.send("one")
    call = first.send("use the tool").tool_calls[0]
    with Client(wire.url) as elsewhere, elsewhere.resume(first.id or "") as session:
        assert (session.id, session.mark()) == (first.id, 2)
        assert session.messages == first.messages
        with pytest.raises(ValueError, match=rf"expected one of \['{call.id}'\]"):
            session.tool_result("another", "x")
        session.tool_result(call.id, "three lines")
        session.send()
        assert [m["role"] for m in session.messages][3:] == ["user", "assistant", "tool", "assistant"]
        assert session.report().rows[0].sent == sent.usage.prompt_tokens
        session.rollback(1)
        assert session.messages == first.messages[:3]
        (fork,) = session.fork(at_turn=0)
        assert [m["content"] for m in fork.messages] == [SYSTEM]
        fork.close()
    assert held.sessions == {}
    with pytest.raises(NotFound, match="session_not_found"):
        client.resume(first.id or "").open()
    with pytest.raises(AgentCacheError, match="open the session first"):
        client.resume(first.id or "").tool_result("a", "b")


def test_a_restored_session_has_its_messages(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        session.snapshot("after-one")
        kept = session.messages
        with client.restore("after-one") as restored:
            assert restored.messages == kept
            restored.rollback(0)
            assert restored.messages == kept[:1]
    assert [seen.path for seen in wire.requests if seen.method == "POST" and "sessions?" in seen.path] == [
        "/v1/sessions?include=messages"
    ]


def test_the_messages_of_a_server_that_does_not_tell_them_begin_where_this_client_took_it_up(
    wire: WireServer, held: Held, client: Client
) -> None:
    held.tells = False
    first = client.session(SYSTEM)
    first.send("one")
    with Client(wire.url) as elsewhere, elsewhere.resume(first.id or "") as session:
        assert (session.mark(), session.messages) == (1, ())
        session.send("two")
        assert wire.prompts[-1]["messages"][0]["content"] == SYSTEM
        assert [m["role"] for m in session.messages] == ["user", "assistant"]
        session.rollback(1)
        assert session.messages == ()
        session.tool_result("call_of_another_client", "kept: only the other client saw the calls")
        session.send()


def test_a_client_that_lags_behind_is_told_so_and_changes_nothing(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(SYSTEM) as mine, client.resume(mine.open().id or "") as theirs:
        mine.send("one")
        for act in (lambda: theirs.send("two"), lambda: theirs.stream("two").__enter__()):
            with pytest.raises(SessionDiverged):
                act()
        assert theirs.messages == mine.messages[:1]
        mine.send("two")
        with client.resume(mine.id or "") as third:
            third.send("three")
            for act in (lambda: mine.rollback(1), lambda: mine.rollback(0), lambda: mine.send("four")):
                with pytest.raises(SessionDiverged):
                    act()
            assert (len(only(held).turns), mine.mark()) == (3, 2)
            third.rollback(1)
            assert len(only(held).turns) == 1


@pytest.mark.parametrize("fault", [sdk_wire.drop, sdk_wire.commit_then_drop], ids=["never came", "was committed"])
def test_settling_a_lost_turn_never_drops_another_clients(
    wire: WireServer, held: Held, client: Client, fault: Any
) -> None:
    with client.session(SYSTEM) as mine:
        mine.send("one")
        wire.faults.append(fault)
        with pytest.raises(ConnectionFailed):
            mine.send("two")
        client.resume(mine.id or "").send("of another client")
        added = [turn["added"][0]["content"] for turn in only(held).turns]
        for act in (lambda: mine.send("two"), lambda: mine.rollback(0), lambda: mine.snapshot("s")):
            with pytest.raises(SessionDiverged):
                act()
        assert [turn["added"][0]["content"] for turn in only(held).turns] == added
        assert added[-1] == "of another client"
        with client.resume(mine.id or "") as again:
            assert again.send("two").text


def test_a_rollback_whose_answer_was_lost_can_be_made_again(wire: WireServer, held: Held, client: Client) -> None:
    def roll_back_then_drop(handler: sdk_wire.Handler) -> bool:
        held.answer("POST", handler.path, handler.body)
        handler.reset()
        return False

    with client.session(SYSTEM) as session:
        session.send("one")
        session.send("two")
        wire.faults.append(roll_back_then_drop)
        with pytest.raises(ConnectionFailed):
            session.rollback(1)
        assert session.mark() == 2
        session.rollback(1)
        assert session.send("three").text
        assert len(only(held).turns) == 2


def test_a_raw_session_sends_ids_and_text_as_they_are(wire: WireServer, held: Held, client: Client) -> None:
    with client.session(prompt="Once upon") as session:
        first = session.send(" a time", max_tokens=4)
        with session.stream(" and", max_tokens=9) as stream:
            text = "".join(stream)
        assert text == stream.result().text
        (fork,) = session.fork()
        fork.send([3, 4, 5])
        assert session.messages == ()
        with pytest.raises(ValueError, match="volatile"):
            session.send("x", volatile={"now": 1})
    bodies = [seen.body for seen in wire.requests if seen.path == "/v1/completions"]
    assert [body["prompt"] for body in bodies] == [" a time", " and", [3, 4, 5]]
    assert "messages" not in held.created[0]
    assert wire.served[1].decode() == f"Once upon a time{first.text} and{text}"
    with client.session() as chat, pytest.raises(TypeError, match="only a raw session takes token ids"):
        chat.send([1, 2])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prompt": "a", "system": "b"}, "system: cannot be given together with prompt"),
        ({"prompt": [1], "messages": [{"role": "user", "content": "x"}]}, "messages: cannot be given"),
        ({"from_snapshot": "a", "model": "b"}, "model: cannot be given together with from_snapshot"),
    ],
)
def test_arguments_that_exclude_each_other_are_refused(client: Client, given: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        client.session(**given)  # type: ignore[arg-type]


def test_two_threads_that_open_a_session_make_one(wire: WireServer, held: Held, client: Client) -> None:
    gate = threading.Barrier(2)
    wire.faults.extend([lambda _: gate.wait(5) >= 0] * 2)
    session = client.session()
    threads = [threading.Thread(target=session.open) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert (len(held.created), [session.id]) == (2, list(held.sessions))
    session.close()
    assert held.sessions == {}


def test_closing_needs_no_server(wire: WireServer, held: Held) -> None:
    with Client(wire.url, timeout=5) as client:
        session = client.session().open()
        wire.faults.append(sdk_wire.drop)
        session.close()
        left_open = client.session().open()
    left_open.close()
    assert len(held.sessions) == 2, "they end when their time is over"


def test_the_asynchronous_twin_makes_the_same_requests(wire: WireServer, held: Held, client: Client) -> None:
    def sync_run() -> None:
        with client.session(SYSTEM, metadata={"a": 1}) as session:
            session.send("one")
            with session.stream("two") as stream:
                stream.result()
            with session.waiting("tool", expect_s=2):
                pass
            (fork,) = session.fork(at_turn=1)
            fork.close()
            session.rollback(1)
            session.pin("1m")
            session.unpin()
            session.snapshot("s")
            session.explain()
            client.sessions()
            client.restore("s").open().close()
            client.resume(session.id or "").open()

    async def async_run() -> None:
        async with AsyncClient(wire.url) as twin, twin.session(SYSTEM, metadata={"a": 1}) as session:
            await session.send("one")
            async with session.stream("two") as stream:
                await stream.result()
            async with session.waiting("tool", expect_s=2):
                pass
            (fork,) = await session.fork(at_turn=1)
            await fork.close()
            await session.rollback(1)
            await session.pin("1m")
            await session.unpin()
            await session.snapshot("s")
            await session.explain()
            await twin.sessions()
            await (await twin.restore("s").open()).close()
            await twin.resume(session.id or "").open()

    def requests() -> list[tuple[str, str, object]]:
        """Ids numbered in the order in which they first appear."""
        seen = [(seen.method, seen.path, json.dumps(without_conditions(seen.body or {}))) for seen in wire.requests]
        wire.requests.clear()
        ids: dict[str, str] = {}
        for _, _, body in seen:
            if '"session": "' in body:
                ids.setdefault(json.loads(body)["session"], "first")
        return [
            (m, "/".join(p.split("/")[:3] + p.split("/")[4:]), b.replace(*next(iter(ids.items())))) for m, p, b in seen
        ]

    sync_run()
    plain = requests()
    asyncio.run(async_run())
    assert requests() == plain
    assert len(plain) > 15


def test_the_twins_have_the_same_surface() -> None:
    for one, two in ((Session, AsyncSession), (Client, AsyncClient)):
        names = {name for name in vars(one) if not name.startswith("_")}
        assert names == {name for name in vars(two) if not name.startswith("_")}


def test_a_cancelled_turn_is_settled_before_the_next(wire: WireServer, held: Held) -> None:
    async def run() -> None:
        async with AsyncClient(wire.url) as client, client.session(SYSTEM) as session:
            await session.send("one")
            wire.faults.append(sdk_wire.hang)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.send("two"), 0.2)
            await session.send("three")
            assert [m["role"] for m in session.messages] == ["system", *["user", "assistant"] * 2]
            lost = wire.chats[1]["turn_id"]
            assert only(held).asked == [("rollback", {"to_turn": 1, "only_turn_id": lost})]

    asyncio.run(run())


def test_an_id_is_one_part_of_the_path(held: Held) -> None:
    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path)
        return httpx.Response(404, json={"error": {"message": "no", "code": "session_not_found"}})

    with Client("http://test", transport=httpx.MockTransport(answer)) as client, pytest.raises(NotFound):
        client.resume("../cache/flush").open()
    assert seen == [b"/v1/sessions/..%2Fcache%2Fflush?include=messages"]
