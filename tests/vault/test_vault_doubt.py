"""What a server cannot know of the vault, and must not conclude: who wrote what, whether a number means the same, who waits."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from memory_vault import MemoryVault
from session_calls import asked, random_ids, raw_body, said
from waiting import wait_until


def test_turns_that_were_answered_stay_when_the_vault_comes_back_during_a_turn(serve, vault):
    """Its own write, of which it was not told, is no rival's."""
    with serve("r0", vault) as first, serve("r1", vault) as second:
        session = first.create(prompt=random_ids(25, "back"))
        vault.before_save = lambda name, expected: setattr(vault, "deaf", True)
        first.go_on(session, [1])  # written, and not told so
        vault.before_save = None
        vault.deaf, vault.down = False, True
        answered = first.go_on(session, [2])  # not written
        time.sleep(1.1)
        with first.http.stream("POST", "/v1/completions", json=raw_body(session, [3], 400, stream=True)) as slow:
            lines = slow.iter_lines()
            next(lines)
            vault.down = False
            rest = "\n".join(lines)
        assert "session_busy" not in rest and '"finish_reason":"length"' in rest
        wait_until(lambda: first.turns(session) == second.turns(session) == 3)
        assert asked(second.go_on(session, [4]))[: len(asked(answered)) + 8] == asked(answered) + said(answered)
        counts = first.http.get("/metrics").text
        assert all(f'agentcache_session_vault_total{{event="{name}"}} 0' in counts for name in ("overtaken", "parted"))


@pytest.mark.parametrize("turns", [0, 2])
def test_numbers_that_a_vault_gives_out_again_are_not_taken_for_what_they_were(pair, common, turns):
    """A copy of version 1 is not what became version 1 after the vault had lost everything."""
    first, second = pair
    session = first.create(prompt=random_ids(20, f"again {turns}"))
    for number in range(turns):
        first.go_on(session, [number])
    latest = [second.go_on(session, [7]) for _ in range(3)][-1]
    with common.lock:
        common.records.clear()
    for _ in range(turns + 1):
        latest = second.go_on(session, [8])
    assert first.turns(session) == second.turns(session) == 2 * turns + 4
    assert asked(first.go_on(session, [9])) == asked(latest) + said(latest) + [9]


ODD = [
    "sess_\ud800",
    "sess_" + "0" * 24 + "-r\u00fc",
    "sess_" + "0" * 24 + "-",
    "sess_x-r9",
    "snapshot:kept",
    "../../sessions1",
    "sess_" + "0" * 100_000 + "-r0",
    "sess_" + "0" * 24 + "\n",
    "\x00",
]


@pytest.mark.parametrize("name", ODD, ids=lambda name: ascii(name[:12]))
def test_what_is_no_id_does_not_exist_and_the_vault_is_not_asked(pair, common, name):
    first, _ = pair
    mine = first.create(prompt=[1])
    first.do(mine, "snapshot", name="kept")
    before = common.loads
    for path, body in [("/v1/completions", raw_body(name, [1])), (f"/v1/sessions/{mine}/adopt", {"session": name})]:
        reply = first.http.post(path, content=json.dumps(body))  # httpx itself would refuse half a surrogate pair
        assert reply.status_code == 404 and reply.json()["error"]["code"] == "session_not_found", reply.text
    assert common.loads == before + 1 and first.turns(mine) == 0


def test_an_end_that_is_still_owed_ends_the_session_all_the_while(serve, vault):
    with serve("r0", vault) as first:
        session = first.create(prompt=[1])
        vault.down = True
        first.call("DELETE", f"/v1/sessions/{session}")
        seen: list[int] = []
        vault.before_save = lambda name, expected: time.sleep(0.2)
        vault.down = False

        def ended() -> bool:
            seen.append(first.request("GET", f"/v1/sessions/{session}").status_code)
            return vault.records[vault.of(session)].version > 1

        wait_until(ended)
        seen.append(first.request("GET", f"/v1/sessions/{session}").status_code)
        assert set(seen) == {404}


def test_where_the_vault_is_is_told_to_nobody_who_asks_for_sessions(serve, vault):
    with serve("r0", vault) as first:
        session = first.create(prompt=[1])
        vault.down = True
        asks = [
            ("GET", f"/v1/sessions/sess_{'0' * 24}", None),
            ("POST", f"/v1/sessions/{session}/snapshot", {"name": "kept"}),
            ("POST", "/v1/sessions", {"from_snapshot": "kept"}),
        ]
        for number, (method, path, body) in enumerate([*asks, asks[1]]):
            if number == len(asks):
                time.sleep(1.1)  # it is asked anew
            assert "MemoryVault" not in first.refused(503, method, path, body)["message"]


def test_an_end_is_remembered_for_longer_than_a_turn_takes(serve, vault):
    class Remembering(MemoryVault):
        async def save(self, name, record, expected, ttl_s):  # type: ignore[no-untyped-def]
            asked_for.append(ttl_s)
            return await super().save(name, record, expected, ttl_s)

    asked_for: list[float] = []
    with serve("r0", Remembering()) as first:
        session = first.create(prompt=[1], ttl_s=1)
        first.call("DELETE", f"/v1/sessions/{session}")
    assert asked_for[0] < 60 and asked_for[-1] >= 600


def test_what_is_owed_for_many_is_written_by_a_few_at_a_time(serve, vault):
    running, most = [0], [0]

    class Slow(MemoryVault):
        async def save(self, name, record, expected, ttl_s):  # type: ignore[no-untyped-def]
            self._answer()
            running[0] += 1
            most[0] = max(most[0], running[0])
            await asyncio.sleep(0.02)
            running[0] -= 1
            return await super().save(name, record, expected, ttl_s)

    slow = Slow(down=True)
    with serve("r0", slow) as first:
        for number in range(40):
            first.create(prompt=[number])
        slow.down = False
        wait_until(lambda: len(slow.records) == 40)
    assert 1 < most[0] <= 8


def test_a_list_of_many_names_each_that_lives_and_none_that_was_ended_elsewhere(serve, vault):
    """However many there are here: what comes first is no more looked at than what comes last."""
    with serve("r0", vault) as first, serve("r1", vault) as second:
        mine, yours = ([member.create(prompt=[1]) for _ in range(40)] for member in (first, second))
        for session in mine[::2]:
            second.call("DELETE", f"/v1/sessions/{session}")
        listed = [session["id"] for session in first.call("GET", "/v1/sessions")["data"]]
        assert sorted(listed) == sorted(mine[1::2] + yours)
