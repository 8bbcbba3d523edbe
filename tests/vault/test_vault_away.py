"""A vault that does not answer: what is here goes on, what may be elsewhere is asked for again, and nothing is lost for good."""

from __future__ import annotations

import asyncio
import time

import pytest
from memory_vault import MemoryVault
from session_calls import asked, random_ids, raw_body, said
from waiting import wait_until

from agentcache.server.sessions.keyed_locks import KeyedLocks


@pytest.fixture
def apart(pair, common):
    """The pair, whose vault answers again when the test is over."""
    yield pair
    common.down = common.deaf = False
    rested()


def rested() -> None:
    """A vault that did not answer is left alone for a second."""
    time.sleep(1.1)


def test_a_session_goes_on_without_the_vault_and_is_written_when_it_answers_again(apart, common):
    first, second = apart
    session = first.create(prompt=random_ids(25, "away"))
    replies = [first.go_on(session, [1])]
    common.down = True
    replies += [first.go_on(session, [2]), first.go_on(session, [3])]
    made = first.create(prompt=[4])
    assert asked(replies[2]) == asked(replies[1]) + said(replies[1]) + [3]
    for name in (session, made):
        reply = second.request("GET", f"/v1/sessions/{name}")
        assert reply.status_code == 503 and reply.headers["retry-after"] == "1"
        error = reply.json()["error"]
        assert error["code"] == "session_vault_unavailable" and "vault" not in error["message"]
        assert error["message"].startswith("the store that keeps sessions did not answer") or (
            error["message"] == "the store that keeps sessions does not answer"
        )
    common.down = False
    wait_until(lambda: second.request("GET", f"/v1/sessions/{made}").status_code == 200)
    wait_until(lambda: second.turns(session) == 3)
    after = second.go_on(session, [5])
    assert asked(after) == asked(replies[2]) + said(replies[2]) + [5]
    assert first.turns(session) == 4


def test_what_was_written_without_an_answer_is_known_as_its_own(apart, common):
    first, second = apart
    session = first.create(prompt=random_ids(25, "deaf"))
    common.before_save = lambda name, expected: setattr(common, "deaf", True)
    one = first.go_on(session, [1])
    common.before_save = None
    assert common.records[common.of(session)].version == 2
    common.deaf = False
    rested()
    two = first.go_on(session, [2])
    assert asked(two) == asked(one) + said(one) + [2]
    assert second.turns(session) == 2


def test_a_session_that_was_ended_meanwhile_ends_everywhere(apart, common):
    first, second = apart
    session = first.create(prompt=[1])
    second.go_on(session, [2])
    common.down = True
    first.call("DELETE", f"/v1/sessions/{session}")
    first.refused(404, "GET", f"/v1/sessions/{session}")
    common.down = False
    wait_until(lambda: second.request("GET", f"/v1/sessions/{session}").status_code == 404)
    assert first.request("GET", f"/v1/sessions/{session}").status_code == 404


def test_where_both_went_on_the_vaults_word_holds(apart, common):
    first, second = apart
    session = first.create(prompt=random_ids(25, "parted"))
    first.go_on(session, [1])
    second.go_on(session, [2])
    first.turns(session)
    common.down = True
    first.go_on(session, [3])
    common.down = False
    version = common.records[common.of(session)].version
    wait_until(lambda: common.records[common.of(session)].version > version)
    assert second.turns(session) == first.turns(session) == 3
    tokens = {member.get(session)["tokens"] for member in apart}
    assert len(tokens) == 1


def test_a_server_whose_vault_is_away_at_start_serves_new_sessions(serve):
    vault = MemoryVault(down=True)
    with serve("r0", vault) as member:
        session = member.create(prompt=[1, 2])
        assert said(member.go_on(session, [3]))
        assert [each["id"] for each in member.call("GET", "/v1/sessions")["data"]] == [session]
        unknown = "sess_" + "0" * 24 + "-r1"
        assert member.request("POST", "/v1/completions", raw_body(unknown, [1])).status_code == 503
        vault.down = False
        wait_until(lambda: vault.records)
        wait_until(lambda: member.request("GET", f"/v1/sessions/{unknown}").status_code == 404)


def test_a_lock_is_there_for_as_long_as_it_is_wanted():
    locks: KeyedLocks[tuple[str]] = KeyedLocks()
    order = []

    async def work(*names: str) -> None:
        async with locks.hold(*((name,) for name in names)):
            order.append(names)
            await asyncio.sleep(0)

    async def all_of_it() -> None:
        await asyncio.gather(work("a", "b"), work("b", "a"), work("b"), work("a"), work("c", "a", "b", "c"))

    asyncio.run(all_of_it())
    assert len(order) == 5 and len(locks) == 0
