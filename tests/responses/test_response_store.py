"""Kept responses: bounded, expired, deleted, one key's own, and no turn lost that a conversation still needs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.server.errors import ApiError
from agentcache.server.responses.store import KeptResponse, KeptTurn, ResponseStore, chained, size_of

MINE, YOURS = b"mine", b"yours"


def turn(before: KeptTurn | None, name: str, text: str = "x") -> KeptTurn:
    items = [{"id": f"msg_{name}", "text": text}]
    messages = [{"role": "user", "content": text}]
    return KeptTurn(before, items, messages, size=size_of(items) + size_of(messages))


def keep(store: ResponseStore, name: str, before: KeptTurn | None = None, text: str = "x") -> KeptTurn:
    mine = turn(before, name, text)
    store.begin(MINE, name, {"id": name, "status": "in_progress"})
    store.finish(MINE, KeptResponse(name, {"id": name, "status": "completed"}, mine))
    return mine


def missing(store: ResponseStore, name: str, owner: bytes = MINE) -> bool:
    with pytest.raises(ApiError) as error:
        store.get(owner, name)
    return error.value.status == 404


def test_a_conversation_outlives_the_responses_it_came_through():
    store = ResponseStore(lambda: 0.0)
    first = keep(store, "resp_1")
    keep(store, "resp_2", first)
    store.delete(MINE, "resp_1")
    assert missing(store, "resp_1")
    assert store.item(MINE, "msg_resp_1") is None
    found = store.go_on_from(MINE, "resp_2")
    assert [kept.items[0]["id"] for kept in chained(found.turn)] == ["msg_resp_1", "msg_resp_2"]
    store.delete(MINE, "resp_2")
    assert store.size(MINE) == 0


def test_other_keys_find_nothing():
    store = ResponseStore(lambda: 0.0)
    keep(store, "resp_1")
    assert missing(store, "resp_1", YOURS)
    assert store.item(YOURS, "msg_resp_1") is None
    with pytest.raises(ApiError) as error:
        store.go_on_from(YOURS, "resp_1")
    assert (error.value.status, error.value.param) == (404, "previous_response_id")
    with pytest.raises(ApiError):
        store.delete(YOURS, "resp_1")
    assert store.get(MINE, "resp_1").status == "completed"


def test_responses_expire_unless_they_are_gone_on_from():
    now = [0.0]
    store = ResponseStore(lambda: now[0], ttl_s=100)
    keep(store, "resp_1")
    keep(store, "resp_2")
    now[0] = 90
    store.go_on_from(MINE, "resp_1")
    now[0] = 150
    assert missing(store, "resp_2")
    assert store.get(MINE, "resp_1").id == "resp_1"
    now[0] = 200
    assert missing(store, "resp_1")


def test_the_least_recently_used_make_room():
    store = ResponseStore(lambda: 0.0, max_responses=2)
    keep(store, "resp_1")
    keep(store, "resp_2")
    store.go_on_from(MINE, "resp_1")
    keep(store, "resp_3")
    assert missing(store, "resp_2")
    assert store.get(MINE, "resp_1").id == "resp_1"


def test_bytes_are_bounded_and_a_response_over_the_bound_is_not_kept():
    store = ResponseStore(lambda: 0.0, max_bytes=2000)
    for i in range(20):
        keep(store, f"resp_{i}", text="x" * 100)
        assert store.size(MINE) <= 2000
    assert missing(store, "resp_0")
    assert store.get(MINE, "resp_19").id == "resp_19"
    keep(store, "resp_large", text="x" * 3000)
    assert missing(store, "resp_large")
    assert store.size(MINE) == 0


def test_what_is_being_made_or_failed_cannot_be_gone_on_from():
    store = ResponseStore(lambda: 0.0)
    store.begin(MINE, "resp_1", {"status": "in_progress"})
    store.begin(MINE, "resp_2", {"status": "in_progress"})
    store.finish(MINE, KeptResponse("resp_2", {"status": "failed"}))
    for name, status in (("resp_1", "in_progress"), ("resp_2", "failed")):
        with pytest.raises(ApiError) as error:
            store.go_on_from(MINE, name)
        assert error.value.status == 400
        assert status in error.value.message
    store.abandon(MINE, "resp_1")
    store.abandon(MINE, "resp_2")
    assert missing(store, "resp_1")
    assert store.get(MINE, "resp_2").status == "failed"


def test_a_response_that_is_deleted_while_it_is_made_is_not_kept():
    store = ResponseStore(lambda: 0.0)
    store.begin(MINE, "resp_1", {"status": "in_progress"})
    store.delete(MINE, "resp_1")
    store.finish(MINE, KeptResponse("resp_1", {"status": "completed"}, turn(None, "resp_1")))
    assert missing(store, "resp_1")
    assert store.size(MINE) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("kkkd"), st.integers(0, 30), st.integers(0, 40)), max_size=40))
def test_every_turn_counts_once_for_as_long_as_it_is_needed(moves):
    store = ResponseStore(lambda: 0.0, max_responses=8)
    turns: dict[str, KeptTurn] = {}
    for count, (move, place, length) in enumerate(moves):
        alive = [name for name in turns if store.find(MINE, name) is not None]
        chosen = alive[place % len(alive)] if alive else None
        if move == "d" and chosen is not None:
            store.delete(MINE, chosen)
        else:
            before = turns[chosen] if chosen is not None and place % 3 else None
            turns[f"resp_{count}"] = keep(store, f"resp_{count}", before, "x" * length)
    alive = [store.get(MINE, name) for name in turns if store.find(MINE, name) is not None]
    needed = {id(part): part.size for kept in alive for part in chained(kept.turn)}
    assert store.size(MINE) == sum(needed.values()) + sum(kept.size for kept in alive)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("kkd"), st.integers(0, 30), st.lists(st.integers(0, 5))), max_size=40))
def test_an_item_is_found_for_as_long_as_any_response_that_holds_it(moves):
    """Clients that keep the history send items of earlier responses again, under their ids."""
    store = ResponseStore(lambda: 0.0, max_responses=6)
    held: dict[str, set[str]] = {}
    for count, (move, place, again) in enumerate(moves):
        alive = [name for name in held if store.find(MINE, name) is not None]
        if move == "d" and alive:
            store.delete(MINE, alive[place % len(alive)])
            continue
        name, items = f"resp_{count}", [{"id": f"msg_{item}", "text": "x"} for item in again]
        store.begin(MINE, name, {"status": "in_progress"})
        store.finish(MINE, KeptResponse(name, {"status": "completed"}, KeptTurn(None, items, [], size=size_of(items))))
        held[name] = {item["id"] for item in items}
    alive = [name for name in held if store.find(MINE, name) is not None]
    kept = set().union(*(held[name] for name in alive))
    for item in (f"msg_{number}" for number in range(6)):
        found = store.item(MINE, item)
        assert (found is not None) == (item in kept)
        assert found is None or found["id"] == item
