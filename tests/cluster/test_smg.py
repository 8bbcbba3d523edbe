"""The gateway smg in front of plain servers, as docs/cluster.md describes it.  The binary comes with ``make test-cluster``."""

from __future__ import annotations

import json
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway import Gateway, Listener, Replica, poll, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STICKY = ("--sticky-sessions", "--routing-key-headers", "x-session-id", "x-claude-code-session-id")
SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser. " * 8
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "reads a file",
        "parameters": {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "string"}}, "required": ["z"]},
        "strict": True,
    },
}  # fmt: skip


def said(text: str, system: str = SYSTEM) -> list[dict[str, Any]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def chat(
    http: httpx.Client, messages: list[dict[str, Any]], headers: dict[str, str] | None = None, **fields: Any
) -> Any:
    body = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 8, **fields}
    return http.post("/v1/chat/completions", json=body, headers=headers)


def stream(http: httpx.Client, messages: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 8, "stream": True, **fields}
    with http.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert reply.status_code == 200, reply.read()
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smg")


@pytest.fixture(scope="module")
def replicas(model: Path, folder: Path) -> Any:
    store = f"file://{folder / 'store'}"
    pair = [Replica(name, model, folder, "--store", store, "--enable-test-hooks") for name in ("r0", "r1")]
    with running(*pair):
        yield pair


@pytest.fixture(scope="module")
def gateway(replicas: list[Replica], folder: Path) -> Any:
    urls = [replica.url for replica in replicas]
    smg = Gateway(urls, folder, "--policy", "cache_aware", *STICKY)
    with running(smg):
        smg.wait_for(*urls)
        yield smg


@pytest.fixture
def listener(folder: Path) -> Any:
    worker = Listener()
    smg = Gateway([worker.url], folder, "--policy", "cache_aware", *STICKY)
    try:
        with running(smg):
            smg.wait_for(worker.url)
            yield worker, smg
    finally:
        worker.close()


# -- what passes through -------------------------------------------------------------------------------------------


def test_fields_that_no_protocol_knows_pass_and_answers_come_as_they_are(listener):
    worker, smg = listener
    ours = {
        "session": "sess_1-r0",
        "if_turns": 2,
        "turn_id": "me.1",
        "prompt_cache_key": "k",
        "cache_salt": "s",
        "chat_template_kwargs": {"enable_thinking": False, "z": 1, "a": 2},
        "priority": "high",
        "return_token_ids": True,
        "reasoning_effort": "low",
        "ignore_eos": True,
    }
    answer = chat(smg.http, said("x"), tools=[TOOL], **ours)
    body = worker.received[-1]["body"]
    assert {name: body.get(name) for name in ours} == ours
    assert body["tools"] == [TOOL]
    schema = body["tools"][0]["function"]["parameters"]["properties"]
    assert list(schema) == ["z", "a"]  # the order in which the model reads them
    assert answer.json()["agentcache"] == {"cached_tokens": 2, "tiers": {"host": 1}}
    assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert answer.headers["x-agentcache-replica"] == "r0"


def test_what_the_gateway_drops_is_what_the_docs_say(listener):
    """Headers but for a few, and fields inside of messages and tools that OpenAI's protocol does not have."""
    worker, smg = listener
    sent = {
        "authorization": "Bearer k",
        "x-request-id": "mine",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "x-api-key": "k",
        "x-session-id": "sess_1-r0",
        "x-claude-code-session-id": "c",
    }
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "q", "name": "bob"},
        {"role": "assistant", "content": "a", "reasoning": "r"},
        {"role": "tool", "tool_call_id": "c1", "content": "t", "name": "read"},
    ]
    chat(smg.http, messages, headers=sent, tools=[{**TOOL, "cache_control": {"type": "ephemeral"}}])
    got = worker.received[-1]
    headers = {name.lower() for name in got["headers"]}
    assert headers & set(sent) == {"authorization", "x-request-id", "traceparent"}
    assert got["body"]["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": "q", "name": "bob"},
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
        {"role": "tool", "tool_call_id": "c1", "content": "t"},
    ]
    assert got["body"]["tools"] == [TOOL]


def test_messages_and_completions_pass_whole_and_responses_take_no_fields_of_ours(listener):
    worker, smg = listener
    body = {
        "model": "tiny",
        "max_tokens": 4,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "h", "cache_control": {"type": "ephemeral"}}]}
        ],
        "session": "sess_1-r0",
        "cache_salt": "s",
    }
    smg.http.post("/v1/messages", json=body)
    assert worker.received[-1]["path"] == "/v1/messages" and worker.received[-1]["body"] == body
    body = {"model": "tiny", "prompt": "x", "session": "sess_1-r0", "cache_salt": "s", "max_tokens": 4}
    smg.http.post("/v1/completions", json=body)
    assert worker.received[-1]["body"] == {**body, "stream": False, "echo": False}
    assert smg.http.post("/v1/completions", json={**body, "prompt": [1, 2]}).status_code == 400
    refused = smg.http.post("/v1/responses", json={"model": "tiny", "input": "x", "cache_salt": "s"})
    assert refused.status_code == 400 and "unknown field `cache_salt`" in refused.text
    smg.http.post("/v1/responses", json={"model": "tiny", "input": "x", "prompt_cache_key": "k"})
    assert worker.received[-1]["body"]["prompt_cache_key"] == "k"


@pytest.mark.parametrize(
    "status, tries", [(400, 1), (401, 1), (404, 1), (413, 1), (422, 1), (500, 1), (429, 5), (503, 5)]
)
def test_errors_keep_their_status_and_some_are_tried_again(listener, status, tries):
    worker, smg = listener
    answer = chat(smg.http, said("x"), status=status)
    assert answer.status_code == status and answer.headers["retry-after"] == "7"
    assert len(worker.received) == tries


def test_sessions_are_made_at_a_server_since_the_gateway_has_no_such_route(listener):
    _, smg = listener
    assert smg.http.post("/v1/sessions", json={"system": "x"}).status_code == 404
    assert smg.http.get("/v1/cache").status_code == 404


# -- two servers ----------------------------------------------------------------------------------------------------


def test_the_gateway_finds_the_model_and_its_context_length(gateway):
    for worker in gateway.workers():
        assert worker["models"][0]["id"] == "tiny" and worker["models"][0]["context_length"] == 8192
    assert [card["id"] for card in gateway.http.get("/v1/models").json()["data"]] == ["tiny"]


def test_an_agents_turns_go_where_its_prompt_is_cached(gateway):
    for agent in range(3):
        messages = said("the agent sends the same long beginning", f"agent {agent}. {SYSTEM}")
        before, homes = 0, set()
        for turn in range(4):
            reply = chat(gateway.http, messages).json()
            homes.add(reply["agentcache"]["cached_tokens"] >= before)
            usage = reply["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == reply["agentcache"]["cached_tokens"]
            if turn:  # all but the new message and the last reply's end
                assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] < 60
            before = usage["prompt_tokens_details"]["cached_tokens"]
            messages += [reply["choices"][0]["message"], {"role": "user", "content": f"go on with page {turn}"}]
        assert homes == {True}


@pytest.mark.parametrize(
    "policy", ["round_robin", "random", "power_of_two", "prefix_hash", "consistent_hashing", "manual"]
)
def test_every_policy_serves(replicas, folder, policy):
    urls = [replica.url for replica in replicas]
    smg = Gateway(urls, folder, "--policy", policy)
    with running(smg):
        smg.wait_for(*urls)
        answers = [chat(smg.http, said(f"{policy} {number}")) for number in range(6)]
        assert {answer.status_code for answer in answers} == {200}
        if policy == "round_robin":
            assert Counter(answer.headers["x-agentcache-replica"] for answer in answers) == {"r0": 3, "r1": 3}


def test_a_stream_passes_piece_by_piece_with_its_report(gateway):
    events = stream(
        gateway.http, said("a stream"), stream_options={"include_usage": True}, max_tokens=40, ignore_eos=True
    )
    assert sum(bool(event["choices"] and event["choices"][0]["delta"].get("content")) for event in events) > 5
    assert events[-1]["usage"]["completion_tokens"] == 40
    assert events[-1]["agentcache"]["computed_tokens"] > 0
    with gateway.http.stream(
        "POST", "/v1/messages", json={"model": "tiny", "max_tokens": 4, "stream": True, "messages": said("x")[1:]}
    ) as reply:
        names = [line.removeprefix("event: ") for line in reply.iter_lines() if line.startswith("event: ")]
    assert names[0] == "message_start" and names[-1] == "message_stop"


def test_a_forced_call_and_its_result(gateway):
    forced = {"type": "function", "function": {"name": "read"}}
    messages = said("read the first file")
    reply = chat(gateway.http, messages, tools=[TOOL], tool_choice=forced, max_tokens=200).json()
    (call,) = reply["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "read" and "z" in json.loads(call["function"]["arguments"])
    messages += [
        reply["choices"][0]["message"],
        {"role": "tool", "tool_call_id": call["id"], "content": "what it says"},
    ]
    second = chat(gateway.http, messages, tools=[TOOL]).json()
    assert (
        second["agentcache"]["source"] == "transcript"
    )  # the reply is known by what was said, though its JSON was written anew
    assert second["agentcache"]["cached_tokens"] >= reply["agentcache"]["prompt_tokens"]


def test_salts_stay_apart(gateway):
    for salt in ("one", "two"):
        assert chat(gateway.http, said("salted"), cache_salt=salt).json()["agentcache"]["cached_tokens"] == 0
    assert chat(gateway.http, said("salted"), cache_salt="one").json()["agentcache"]["cached_tokens"] > 100


def test_refusals_of_the_server_come_through_word_for_word(gateway, replicas):
    """Fields that the gateway knows it checks itself, in words of its own."""
    for fields in ({"session": "sess_unknown"}, {"priority": "urgent"}, {"cache_salt": 7}, {"if_turns": "x"}):
        direct, through = (chat(http, said("x"), **fields) for http in (replicas[0].http, gateway.http))
        assert through.status_code == direct.status_code and through.status_code >= 400
        assert through.json() == direct.json()


def test_a_client_that_hangs_up_ends_its_request(gateway, replicas):
    body = {"model": "tiny", "messages": said("hang up"), "max_tokens": 7000, "stream": True, "ignore_eos": True}

    def busy() -> int:
        return sum(replica.http.get("/v1/cache").json()["running"] for replica in replicas)

    with gateway.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        lines = reply.iter_lines()
        while not next(lines).startswith("data: "):
            pass
        assert busy() == 1
    poll(lambda: busy() == 0, "the request ends")
    for replica in replicas:
        assert replica.http.post("/debug/check").status_code == 200


# -- sessions --------------------------------------------------------------------------------------------------------


def turn(gateway: Gateway, session: str, text: str, **fields: Any) -> httpx.Response:
    """A turn names its session in the body, for the server, and in a header, for the gateway."""
    messages = [{"role": "user", "content": text}]
    return chat(gateway.http, messages, headers={"x-session-id": session}, session=session, **fields)


def test_a_sessions_turns_stay_on_one_server_and_hit(gateway, replicas):
    made = replicas[0].http.post("/v1/sessions", json={"system": SYSTEM}).json()["id"]
    assert made.endswith("-r0")
    replies = [turn(gateway, made, f"turn {number}") for number in range(4)]
    assert [reply.status_code for reply in replies] == [200] * 4, replies[0].text
    assert len({reply.headers["x-agentcache-replica"] for reply in replies}) == 1
    reports = [reply.json()["agentcache"] for reply in replies]
    assert all(report["session"] == made for report in reports)
    for before, after in pairwise(reports):
        assert after["cached_tokens"] >= before["prompt_tokens"]


def test_responses_that_follow_each_other_stay_on_one_server_with_the_header(gateway):
    headers, before = {"x-session-id": "a-thread"}, None
    for number in range(4):
        body = {"model": "tiny", "input": f"part {number}", "max_output_tokens": 8, "previous_response_id": before}
        answer = gateway.http.post("/v1/responses", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        before = answer.json()["id"]
        assert before.endswith(f"-{answer.headers['x-agentcache-replica']}")
    assert gateway.http.get(f"/v1/responses/{before}").status_code == 404  # the gateway answers that itself


def test_a_session_goes_on_at_another_server_when_its_own_is_killed(model, folder, tmp_path):
    store = ("--store", f"file://{tmp_path / 'store'}")
    pair = [Replica(name, model, folder, *store) for name in ("r0", "r1")]
    urls = [replica.url for replica in pair]
    smg = Gateway(urls, folder, "--policy", "cache_aware", *STICKY)
    with running(*pair, smg):
        smg.wait_for(*urls)
        session = pair[0].http.post("/v1/sessions", json={"system": SYSTEM}).json()["id"]
        first = turn(smg, session, "one")
        home = first.headers["x-agentcache-replica"]
        pair[0 if home == "r0" else 1].kill()
        second = turn(smg, session, "two")
        assert second.status_code == 200, second.text
        assert second.headers["x-agentcache-replica"] != home
        other = pair[1 if home == "r0" else 0]
        known = other.http.get(f"/v1/sessions/{session}?include=messages").json()
        assert [message["content"] for message in known["messages"] if message["role"] == "user"] == ["one", "two"]
        assert known["messages"][2]["content"] == first.json()["choices"][0]["message"]["content"]


# -- servers that come and go ------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_under_load_costs_nobody_an_answer_and_comes_back(model, folder):
    """Requests that it had begun are sent to the other one; a stream in the middle breaks off, and nothing else."""
    pair = [Replica(name, model, folder) for name in ("r0", "r1")]
    urls = [replica.url for replica in pair]
    smg = Gateway(urls, folder, "--policy", "round_robin")
    with running(*pair, smg):
        smg.wait_for(*urls)
        outcomes: Counter[str] = Counter()
        streams: Counter[str] = Counter()

        def ask(worker: int) -> None:
            for number in range(12):
                answer = chat(smg.http, said(f"{worker} {number}"), max_tokens=100, ignore_eos=True)
                outcomes[f"{answer.status_code}"] += 1

        def read() -> None:
            while outcomes.total() < 40:
                try:
                    streams[f"{len(stream(smg.http, said('s'), max_tokens=100, ignore_eos=True)) > 10}"] += 1
                except (httpx.HTTPError, AssertionError):
                    streams["broken off"] += 1

        threads = [threading.Thread(target=ask, args=(worker,)) for worker in range(4)] + [
            threading.Thread(target=read)
        ]
        for thread in threads:
            thread.start()
        poll(lambda: outcomes.total() >= 8, "a few answers")
        pair[0].kill()
        for thread in threads:
            thread.join(120)
        assert outcomes == {"200": 48}
        assert streams["broken off"] <= 1 and streams["True"] > 0

        back = Replica("r2", model, folder, port=pair[0].port)
        with running(back):
            smg.wait_for(*urls)
            served = Counter(chat(smg.http, said(f"{number}")).headers["x-agentcache-replica"] for number in range(8))
            assert served == {"r1": 4, "r2": 4}


def test_a_server_that_is_added_and_one_that_is_taken_out(model, folder, replicas):
    urls = [replica.url for replica in replicas]
    smg = Gateway(urls, folder, "--policy", "round_robin")
    third = Replica("r9", model, folder)
    with running(third, smg):
        smg.wait_for(*urls)
        assert smg.http.post("/workers", json={"url": third.url}).status_code == 202
        smg.wait_for(*urls, third.url)
        served = Counter(chat(smg.http, said(f"{number}")).headers["x-agentcache-replica"] for number in range(9))
        assert served == {"r0": 3, "r1": 3, "r9": 3}
        (taken,) = [worker["id"] for worker in smg.workers() if worker["url"] == third.url]
        assert smg.http.delete(f"/workers/{taken}").status_code in {200, 202}
        smg.wait_for(*urls)


def test_servers_with_keys_are_reached_with_the_clients_own(model, folder):
    """The gateway shows its own key where it asks for itself; a key of a client is its namespace."""
    keys = ("--api-key", "alice", "--api-key", "bob", "--admin-key", "gateway")
    one = Replica("r0", model, folder, *keys)
    smg = Gateway([one.url], folder, "--tenant-api-key", "a:alice", "--tenant-api-key", "b:bob", "--api-key", "gateway")
    with running(one, smg):
        smg.http.headers["authorization"] = "Bearer gateway"
        smg.wait_for(one.url)
        alice, bob = ({"authorization": f"Bearer {name}"} for name in ("alice", "bob"))
        assert chat(smg.http, said("x"), headers=alice).json()["agentcache"]["cached_tokens"] == 0
        assert chat(smg.http, said("x"), headers=bob).json()["agentcache"]["cached_tokens"] == 0
        assert chat(smg.http, said("x"), headers=alice).json()["agentcache"]["cached_tokens"] > 100
        assert chat(smg.http, said("x"), headers={"authorization": "Bearer eve"}).status_code == 401
