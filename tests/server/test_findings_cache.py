"""What the cache lost or never shared, told with the answer; and the same findings in every protocol."""

from __future__ import annotations

import json

import pytest
from findings_calls import KEYS, RULES, SYSTEM, Tenant, assistant, codes, findings, system, user, waste
from live import live_server

from agentcache.lint.finding import Finding

CLOCKS = "It is 10:30:05." + RULES, "It is 10:31:47." + RULES


@pytest.fixture(scope="module")
def server(tiny):
    with live_server(tiny.folder, page_size=32, num_pages=1024, api_keys=KEYS, admin_keys=KEYS) as running:
        yield running


def only(reply) -> Finding:
    (found,) = findings(reply)
    return Finding.model_validate(found)


def test_the_end_of_a_shared_part_that_is_no_end_of_a_page_is_told(tenant):
    assert codes(tenant.chat(system(SYSTEM), user("Why does it fail?"))) == []
    for sharers, question in enumerate(("Run the tests.", "what is the next thing?"), start=2):
        reply = tenant.chat(system(SYSTEM), user(question))
        found = only(reply)
        tail = found.location.token % 32
        assert (found.code, found.severity, found.location.path) == ("AC501", "info", "messages[0].content")
        assert found.location.char == len(SYSTEM) and found.location.page == found.location.token // 32 == 1
        assert found.shared_by == sharers and found.tokens_lost == tail * (sharers - 1)
        assert found.tokens_lost_kind == "upper_bound" and f"{32 - tail} more tokens before" in found.help


def test_a_shared_part_that_fills_its_pages_has_no_finding(tenant):
    text = SYSTEM
    while True:
        shared = tenant.post("/tokenize", {"messages": [system(text)], "add_generation_prompt": False})["count"]
        opening = tenant.post("/tokenize", {"messages": [system(text), user("X")], "add_generation_prompt": False})[
            "tokens"
        ]
        start = shared + opening[shared:].index(tenant.post("/tokenize", {"prompt": "X"})["tokens"][0])
        if start % 32 == 0:
            break
        text += " 7"
    tenant.chat(system(text), user("Why does it fail?"))
    assert codes(tenant.chat(system(text), user("Run the tests."))) == []


def test_what_is_shared_but_shorter_than_a_page_is_told(tenant):
    tenant.chat(system("Be brief."), user("Why does it fail?"))
    found = only(tenant.chat(system("Be brief."), user("Run the tests.")))
    assert found.code == "AC502" and found.shared_by == 2 and found.tokens_lost == found.location.token < 32


def test_a_session_is_told_of_its_shared_part_once_and_its_forks_of_none(tenant):
    for question, expected in (("Why does it fail?", []), ("Run the tests.", ["AC501"])):
        session = tenant.session(system=SYSTEM)
        first = tenant.say(session, question, max_tokens=8)
        assert codes(first) == expected
        assert all(found["location"]["file"] == f"sessions/{session}" for found in findings(first))
        assert [codes(tenant.say(session, text, max_tokens=8)) for text in ("and now?", "what else?")] == [[], []]
    forks = tenant.post(f"/v1/sessions/{session}/fork", {"n": 3})["sessions"]
    assert [codes(tenant.say(fork["id"], f"{i} is your number")) for i, fork in enumerate(forks)] == [[], [], []]


def test_choices_of_one_prompt_are_no_shared_part(tenant):
    messages = [system(SYSTEM), user("Why does it fail?")]
    reply = tenant.chat(*messages, n=3, temperature=1, seed=1, max_tokens=8)
    assert codes(reply) == []
    for choice in reply["choices"]:
        assert codes(tenant.chat(*messages, choice["message"], user("and now?"))) == []


def test_another_salt_is_told_and_is_waste_only_for_a_conversation_that_moved(tenant):
    history = [system(SYSTEM), user("Why?"), assistant("The parser fails."), user("and now?")]
    tenant.chat(*history, cache_salt="a")
    found = only(tenant.chat(*history[:2], cache_salt="b"))
    assert (found.code, found.severity, found.verdict) == ("AC602", "info", "legitimate")
    tenant.chat(*history, cache_salt="a")
    assert "AC602" in codes(tenant.chat(*history, cache_salt="c"))


def test_a_request_that_may_not_use_the_cache_is_told_so(tenant):
    found = only(tenant.complete("the cache keeps pages", max_tokens=1, echo=True, logprobs=1))
    assert (found.code, found.verdict, found.tokens_lost) == ("AC804", "legitimate", None)


def test_no_tenant_sees_what_another_one_sent(server, keys):
    one, other = Tenant(server, next(keys)), Tenant(server, next(keys))
    one.chat(system(CLOCKS[0]), user("hi"))
    reply = other.chat(system(CLOCKS[1]), user("hi"))
    assert findings(reply) == [] and "10:30" not in json.dumps(reply)
    salted = one.chat(system(CLOCKS[1]), user("hi"), cache_salt="s")
    assert "10:30" not in json.dumps(salted)
    assert codes(one.chat(system(CLOCKS[1]), user("hi"))) == ["AC101"]


def test_a_stream_says_the_same_and_the_journal_keeps_it(tenant):
    tenant.chat(system(CLOCKS[0]), user("hi"))
    body = {"messages": [system(CLOCKS[1]), user("hi")], "max_tokens": 2, "stream": True}
    headers = {"authorization": f"Bearer {tenant.key}"}
    with tenant.server.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply:
        lines = [json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: {")]
    assert [finding["code"] for finding in lines[-1]["agentcache"]["findings"]] == ["AC101"]
    recent = tenant.server.http.get("/ui/requests", headers=headers)
    if recent.status_code == 200:
        assert "AC101" in recent.text


def test_responses_and_messages_name_their_own_fields(tenant):
    for text, expected in zip(CLOCKS, ([], ["AC101"]), strict=True):
        body = {"instructions": text, "input": "hi", "max_output_tokens": 16, "store": False}
        found = findings(tenant.post("/v1/responses", body))
        assert [finding["code"] for finding in found] == expected
    assert found[0]["location"]["path"] == "instructions"
    clocks = [text.replace("It is", "Now, it is") for text in CLOCKS]
    for text in clocks:
        body = {"model": "tiny", "system": text, "messages": [user("hi")], "max_tokens": 2}
        body["model"] = tenant.server.http.get("/v1/models", headers={"authorization": f"Bearer {tenant.key}"}).json()[
            "data"
        ][0]["id"]
        found = findings(tenant.post("/v1/messages", body))
    assert [(finding["code"], finding["location"]["path"]) for finding in found] == [("AC101", "system")]


LONG = " ".join(f"number {number} of many" for number in range(24))


def flood(tenant: Tenant) -> None:
    for number in range(6):
        tenant.chat(system(f"{number} is another beginning. {LONG}"), user("go"))


def test_what_was_evicted_is_told_with_all_that_was_lost(tiny):
    with live_server(tiny.folder, page_size=16, num_pages=48) as server:
        tenant = Tenant(server, "any")
        session = tenant.session(system=SYSTEM)
        first = tenant.say(session, "Why does it fail?", max_tokens=20)
        flood(tenant)
        found = only(tenant.say(session, "and now?"))
        assert (found.code, found.verdict, found.session) == ("AC801", "unavoidable", session)
        known = first["usage"]["prompt_tokens"] + 20
        assert 0 < known - found.location.token - found.tokens_lost < 16 or found.tokens_lost_kind == "upper_bound"
        flood(tenant)
        again = only(tenant.chat(system(SYSTEM), user("Why does it fail?")))
        assert (again.code, again.tokens_lost_kind) == ("AC801", "exact")
        assert again.tokens_lost == first["usage"]["prompt_tokens"] // 16 * 16 - again.location.token


def test_a_lease_that_ran_out_is_told_from_other_evictions(tiny):
    with live_server(tiny.folder, page_size=16, num_pages=48) as server:
        tenant = Tenant(server, "any")
        session = tenant.session(system=SYSTEM)
        tenant.say(session, "Why does it fail?", max_tokens=20)
        tenant.post(f"/v1/sessions/{session}/pin", {"ttl_s": 60})
        flood(tenant)
        assert codes(tenant.say(session, "still there?")) == []
        tenant.post("/debug/clock", {"advance_s": 61})
        flood(tenant)
        assert "AC802" in codes(tenant.say(session, "and now?"))


def test_a_session_that_another_process_computed_is_told_so(tiny, tmp_path):
    settings = {"page_size": 16, "num_pages": 256, "home": tmp_path}
    with live_server(tiny.folder, **settings) as server:
        tenant = Tenant(server, "any")
        session = tenant.session(system=SYSTEM)
        tenant.say(session, "Why does it fail?", max_tokens=20)
        tenant.post(f"/v1/sessions/{session}/snapshot", {"name": "kept"})
        here = tenant.session(from_snapshot="kept")
        assert waste(tenant.say(here, "and now?")) == []
    with live_server(tiny.folder, **settings) as server:
        tenant = Tenant(server, "any")
        there = tenant.session(from_snapshot="kept")
        found = only(tenant.say(there, "and now?"))
        assert (found.code, found.tokens_lost_kind) == ("AC803", "upper_bound") and found.tokens_lost > 100
        assert codes(tenant.say(there, "and then?")) == []


def test_with_the_cache_off_every_answer_says_so(tiny):
    with live_server(tiny.folder, page_size=16, num_pages=64, prefix_cache=False) as server:
        found = only(Tenant(server, "any").chat(system(SYSTEM), user("hi")))
        assert (found.code, found.verdict, found.severity) == ("AC804", "unavoidable", "info")


def test_a_flush_is_no_waste(tiny):
    with live_server(tiny.folder, page_size=16, num_pages=48) as server:
        tenant = Tenant(server, "any")
        tenant.chat(system(SYSTEM), user("Why does it fail?"))
        server.http.post("/v1/cache/flush").raise_for_status()
        reply = tenant.chat(system(SYSTEM), user("Why does it fail?"))
        found = only(reply)
        assert (found.code, found.severity, found.verdict) == ("AC801", "info", "legitimate")
        assert "was flushed" in reply["agentcache"]["miss"]["detail"]
