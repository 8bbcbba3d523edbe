"""Where the cache ended, in the words of the request: which message, and what stood there before."""

from __future__ import annotations

from collections import Counter

from session_calls import cached

from agentcache.server import misses

SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser."


def chat(client, *texts: str, **fields):
    roles = ["system", *("user", "assistant") * len(texts)]
    return client.chat([{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)], **fields)


def test_a_diverged_conversation_names_the_message_and_both_texts(serve):
    with serve() as client:
        chat(client, SYSTEM, "the cache keeps pages", "well", "and the agent sends the same")
        miss = chat(client, SYSTEM, "the cache keeps values", "well", "and the agent sends the same")["agentcache"][
            "miss"
        ]
        assert miss["code"] == "diverged" and miss["message_index"] == 1 and miss["path"] == "messages[1].content"
        assert miss["was"].startswith(" pages") and miss["now"].startswith(" values")
        assert len(miss["was"]) <= 40 and len(miss["now"]) <= 40
        longer = chat(client, SYSTEM, "the cache keeps pages", "well", "and the agent sends again")
        miss = longer["agentcache"]["miss"]
        assert miss["message_index"] == 3 and miss["path"] == "messages[3].content"
        assert cached(longer) == miss["at_token"]


def test_a_raw_prompt_names_itself(serve):
    with serve() as client:
        client.server.complete("the cache keeps pages of keys", max_tokens=1)
        miss = client.server.complete("the cache keeps values and pages", max_tokens=1)["agentcache"]["miss"]
        assert miss["path"] == "prompt" and miss["message_index"] is None
        assert miss["was"].startswith(" pages") and miss["now"].startswith(" values")


def test_in_long_texts_messages_are_found_by_what_they_say(serve, monkeypatch):
    monkeypatch.setattr(misses, "_LONG", 10)
    with serve() as client:
        chat(client, SYSTEM, "the cache keeps pages", "well", "and the agent sends the same")
        miss = chat(client, SYSTEM, "the cache keeps pages", "well", "and the agent runs")["agentcache"]["miss"]
        assert miss["message_index"] == 3 and miss["now"].startswith(" r")


def test_text_of_another_namespace_is_never_quoted(serve):
    with serve() as client:
        chat(client, SYSTEM, "the cache keeps pages", cache_salt="one")
        miss = chat(client, SYSTEM, "the cache keeps values", cache_salt="two")["agentcache"]["miss"]
        assert miss["code"] == "salt" and miss["was"] is None and miss["at_token"] == 0


def counts(client) -> dict[str, float]:
    lines = client.server.http.get("/metrics").text.splitlines()
    found = [line.split("agentcache_miss_total", 1)[1] for line in lines if line.startswith("agentcache_miss_total")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in found}


def test_each_answer_is_counted_under_the_one_code_that_it_carries(serve):
    told: Counter[str] = Counter()

    def note(reply):
        miss = reply["agentcache"]["miss"]
        if miss is not None:
            told[miss["code"]] += 1
        assert {code: count for code, count in counts(client).items() if count} == told
        return miss

    with serve() as client:
        first = chat(client, SYSTEM, "the cache keeps pages")
        assert note(first)["code"] == "cold"
        assert note(chat(client, SYSTEM, "the cache keeps pages")) is None
        assert note(chat(client, SYSTEM, "the cache keeps values"))["code"] == "diverged"
        assert note(chat(client, SYSTEM, "the cache keeps pages", cache_salt="s"))["code"] == "salt"
        client.call("POST", "/v1/cache/flush")
        assert note(chat(client, SYSTEM, "the cache keeps pages"))["code"] == "evicted"
        several = {"prompt": [[1] * 20, [2] * 20, [3] * 20], "max_tokens": 1}
        assert note(client.call("POST", "/v1/completions", several))["code"] == "cold"
        session = client.create(system="Nobody begins like this.")
        assert note(client.say(session, "hello"))["code"] == "diverged"
        assert told == {"cold": 2, "diverged": 2, "salt": 1, "evicted": 1}
