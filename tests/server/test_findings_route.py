"""``GET /v1/findings``: findings of a key's latest requests, together."""

from __future__ import annotations

from typing import Any

import pytest
from findings_calls import KEYS, RULES, SYSTEM, Tenant, assistant, system, user
from live import live_server

CLOCKS = "It is 10:30:05." + RULES, "It is 10:31:47." + RULES


@pytest.fixture(scope="module")
def server(tiny):
    with live_server(tiny.folder, page_size=16, num_pages=1024, api_keys=KEYS, admin_keys=KEYS) as running:
        yield running


def asked(tenant: Tenant, **query: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {tenant.key}"}
    reply = tenant.server.http.get("/v1/findings", params=query, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(tenant: Tenant, **query: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {tenant.key}"}
    reply = tenant.server.http.get("/v1/findings", params=query, headers=headers)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def two_clocks(tenant: Tenant) -> None:
    for text in CLOCKS:
        tenant.chat(system(text), user("hi"))


def test_requests_with_findings_come_newest_first_and_sums_are_over_all(tenant):
    first = tenant.chat(system(CLOCKS[0]), user("hi"))
    second = tenant.chat(system(CLOCKS[1]), user("hi"))
    third = tenant.chat(system("It is 10:33:12." + RULES), user("hi"))
    told = asked(tenant)
    assert (told["object"], told["requests"], told["with_findings"]) == ("list", 3, 2)
    replies = [third, second]
    assert [row["cached_tokens"] for row in told["data"]] == [reply["agentcache"]["cached_tokens"] for reply in replies]
    assert [row["findings"] for row in told["data"]] == [reply["agentcache"]["findings"] for reply in replies]
    assert told["data"][0]["miss"] == third["agentcache"]["miss"]
    assert told["data"][0]["route"] == "/v1/chat/completions"
    assert told["prompt_tokens"] == sum(reply["usage"]["prompt_tokens"] for reply in (first, second, third))
    assert told["cached_tokens"] == sum(reply["agentcache"]["cached_tokens"] for reply in (first, second, third))
    assert sum(told["misses"].values()) == 3 and told["misses"]["diverged"] == 2


def test_the_cache_is_described_with_it(tenant):
    cache, server = asked(tenant)["cache"], asked(tenant)["server"]
    assert cache["free"] + cache["live"] + cache["cached"] + cache["pinned"] == cache["total"] == 1024
    assert (cache["page_size"], cache["enabled"], cache["host_pages"], cache["namespace_pages"]) == (16, True, 0, None)
    assert server["model"] and server["started"] > 0 and server["version"]


def test_nothing_asked_is_nothing_told(tenant):
    told = asked(tenant)
    assert (told["requests"], told["with_findings"], told["data"], told["misses"]) == (0, 0, [], {})


def test_a_key_sees_its_own_requests_only(server, keys):
    one, other = Tenant(server, next(keys)), Tenant(server, next(keys))
    two_clocks(one)
    assert asked(one)["with_findings"] == 1
    told = asked(other)
    assert told["requests"] == 0 and "10:3" not in str(told)
    unknown = server.http.get("/v1/findings", headers={"authorization": "Bearer nobody"})
    assert unknown.status_code == 401


def test_it_can_be_asked_for_some(tenant):
    two_clocks(tenant)
    session = tenant.session(system="Answer in one word.")
    tenant.say(session, "Why does it fail?", max_tokens=8)
    assert asked(tenant, code="AC1")["with_findings"] == 1
    assert asked(tenant, code="ac4,AC101")["with_findings"] == 1
    assert asked(tenant, code="AC4")["data"] == []
    assert asked(tenant, session=session)["requests"] == 1
    assert asked(tenant, session="sess_none")["requests"] == 0
    tenant.chat(system("It is 10:33:12." + RULES), user("hi"))
    told = asked(tenant, limit=1)
    assert len(told["data"]) == 1 and told["with_findings"] > 1


@pytest.mark.parametrize("limit", ["0", "-1", "513", "x", "1.5", "", "٣", "9" * 30])
def test_a_wrong_limit_is_refused_by_name(tenant, limit):
    error = refused(tenant, limit=limit)
    assert error["param"] == "limit" and "expected a number from 1 to 512" in error["message"]


@pytest.mark.parametrize("code", ["", "101", "AC1O1", "AC1234", "AC1,,", "AC1;AC2"])
def test_a_wrong_code_is_refused_by_name(tenant, code):
    error = refused(tenant, code=code)
    assert error["param"] == "code" and "expected a code such as AC101" in error["message"]


def test_what_goes_on_with_replies_from_elsewhere_is_told(tenant):
    history = [system(SYSTEM), user("Why?"), assistant("The parser fails."), user("and now?")]
    tenant.chat(*history)
    (row,) = asked(tenant)["continued"]
    assert row["replies"] == 1 and row["cached_tokens"] == 0


def test_a_conversation_that_was_held_here_is_not_from_elsewhere(tenant):
    messages = [system(SYSTEM), user("Why does it fail?")]
    for question in ("and now?", "what else?", "thanks"):
        reply = tenant.chat(*messages, max_tokens=8)
        messages += [reply["choices"][0]["message"], user(question)]
    assert asked(tenant)["continued"] == [] and asked(tenant)["requests"] == 3


def test_it_is_described(server):
    described = server.http.get("/openapi.json").json()["paths"]["/v1/findings"]["get"]
    assert [parameter["name"] for parameter in described["parameters"]] == ["limit", "code", "session"]
    assert "data" in described["responses"]["200"]["content"]["application/json"]["schema"]["required"]
