"""What the operator declared to be public is shared by every key; nothing else is, and a namespace keeps its quota."""

from __future__ import annotations

import json

import pytest
from session_calls import Calls, cached, random_ids

from agentcache.errors import SettingsError

KEYS = ("key-one", "key-two")
SYSTEM = "You look after the parser. Read the file, run the tests, and say in a few words what is wrong. " * 4
OWN = "The customer's name is Miller, and nobody else may know that. " * 4


def ask(client, key, messages, **fields):
    return Calls(client.server, key).chat(messages, max_tokens=2, **fields)


def talk(user, system=SYSTEM):
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


@pytest.fixture
def prompt_file(tmp_path):
    path = tmp_path / "public.txt"
    path.write_text(SYSTEM + "\n", "utf-8")
    return path


def test_every_key_shares_the_public_system_prompt_and_no_token_behind_it(serve, prompt_file):
    with serve(api_keys=KEYS, public_prefix=prompt_file) as client:
        first = ask(client, KEYS[0], talk(OWN + "Fix it."))
        assert cached(first) == 0
        other = ask(client, KEYS[1], talk(OWN + "Fix it."))
        size = other["agentcache"]["page_size"]
        public = cached(other)
        assert 0 < public <= len(client.call("POST", "/tokenize", {"prompt": SYSTEM})["tokens"]) + size
        assert public % size == 0 and other["agentcache"]["partial_tokens"] == 0
        assert other["agentcache"]["miss"]["code"] == "cold" and other["agentcache"]["miss"]["was"] is None
        again = ask(client, KEYS[1], talk(OWN + "Fix it."))
        assert cached(again) == again["usage"]["prompt_tokens"] - 1
        salted = ask(client, KEYS[1], talk(OWN + "Fix it."), cache_salt="alpha")
        assert cached(salted) == public


def test_without_the_file_keys_share_nothing_and_another_system_prompt_is_private(serve, prompt_file):
    with serve(api_keys=KEYS) as client:
        ask(client, KEYS[0], talk("Fix it."))
        assert cached(ask(client, KEYS[1], talk("Fix it."))) == 0
    with serve(api_keys=KEYS, public_prefix=prompt_file) as client:
        ask(client, KEYS[0], talk("Fix it.", OWN + SYSTEM))
        assert cached(ask(client, KEYS[1], talk("Fix it.", OWN + SYSTEM))) < 16


def test_replies_are_the_same_with_a_public_part_as_without(serve, prompt_file, reference):
    with serve(api_keys=KEYS, public_prefix=prompt_file) as client:
        for key in (*KEYS, *KEYS):
            reply = ask(client, key, talk("Fix it."))
            assert reply["choices"][0]["token_ids"] == reference.greedy(reply["prompt_token_ids"], 2)


def test_a_session_goes_on_behind_the_public_part_and_can_be_forked_pinned_and_explained(serve, prompt_file):
    with serve(api_keys=KEYS, public_prefix=prompt_file, num_pages=300) as client:
        ask(client, KEYS[0], talk("Fix it."))
        other = Calls(client.server, KEYS[1])
        session = other.create(system=SYSTEM)
        turn = other.say(session, OWN)
        assert 0 < cached(turn) < turn["usage"]["prompt_tokens"]
        fork = other.fork(session)[0]
        after = turn["usage"]["total_tokens"]
        for each in (session, fork):
            assert cached(other.say(each, "Go on.")) >= after - 2
        pinned = other.do(session, "pin", ttl_s=60)
        assert pinned["granted_pages"] == other.get(session)["pages"]
        explained = other.call("GET", f"/v1/sessions/{session}/explain")
        assert explained["cached"]["tokens"] >= other.get(session)["tokens"] - 1
        Calls(client.server, "operator").call("POST", "/debug/check")


def test_a_raw_prompt_shares_the_public_text(serve, prompt_file):
    with serve(api_keys=KEYS, public_prefix=prompt_file) as client:
        bodies = [{"prompt": SYSTEM + tail, "max_tokens": 1} for tail in ("one", "two")]
        Calls(client.server, KEYS[0]).call("POST", "/v1/completions", bodies[0])
        assert cached(Calls(client.server, KEYS[1]).call("POST", "/v1/completions", bodies[1])) >= 16


def test_whole_conversations_can_be_public(serve, tmp_path):
    shared = [*talk("What can you do?", SYSTEM), {"role": "assistant", "content": "I can read and fix. " * 8}]
    path = tmp_path / "public.json"
    path.write_text(json.dumps([{"messages": shared}, {"messages": [{"role": "system", "content": OWN}]}]), "utf-8")
    with serve(api_keys=KEYS, public_prefix=path) as client:
        for messages in ([*shared, {"role": "user", "content": "Do it."}], talk("Hello", OWN)):
            assert cached(ask(client, KEYS[0], messages)) < 16
            assert cached(ask(client, KEYS[1], messages)) >= 16


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", "", "at least a page"),
        ("broken.json", "{", "Expecting property name"),
        ("other.json", '{"messages": "hello"}', "expected {"),
        ("more.json", '{"messages": [], "tool": []}', "expected {"),
        ("none.json", '{"messages": [5]}', "messages[0]"),
        ("role.json", '{"messages": [{"role": "boss", "content": "x"}]}', "boss"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_start(serve, tmp_path, name, content, said):
    path = tmp_path / name
    path.write_text(content, "utf-8")
    with pytest.raises(SettingsError) as refused, serve(public_prefix=path):
        pass
    assert said in str(refused.value) and str(path) in str(refused.value)


def test_a_missing_file_is_refused_at_start(serve, tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"), serve(public_prefix=tmp_path / "nowhere.txt"):
        pass


def test_a_namespace_keeps_its_quota_and_takes_nothing_from_others(serve):
    with serve(api_keys=KEYS, namespace_pages=12) as client:
        one, two = (Calls(client.server, key) for key in KEYS)
        body = {"prompt": random_ids(96, "two"), "max_tokens": 1}
        two.call("POST", "/v1/completions", body)
        for n in range(6):
            one.call("POST", "/v1/completions", {"prompt": random_ids(96, n), "max_tokens": 1})
        assert client.server.pages()["cached"] <= 12 + 7
        assert cached(two.call("POST", "/v1/completions", body)) == 95
        assert cached(one.call("POST", "/v1/completions", {"prompt": random_ids(96, 5), "max_tokens": 1})) == 95
        gone = one.call("POST", "/v1/completions", {"prompt": random_ids(96, 0), "max_tokens": 1})
        assert cached(gone) == 0 and gone["agentcache"]["miss"]["code"] == "evicted"
        assert (
            'agentcache_evictions_total{reason="quota"}'
            in client.server.http.get("/metrics", headers=client.server.as_operator).text
        )
