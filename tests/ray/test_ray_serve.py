"""Two replicas on Ray, started once: what only Ray can get wrong.  The rest is tried without it (``test_cluster_ingress``)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from chats import CHAT, LONG, said
from live import live_server
from prometheus_client.parser import text_string_to_metric_families
from real_ray import RunningCluster, eventually, up
from refused import BODIES, ROUTES, Asked, answer

from agentcache_sdk import Client

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tiny_model, tmp_path_factory) -> Iterator[RunningCluster]:
    log = tmp_path_factory.mktemp("ray") / "up.log"
    with up(tiny_model, log, "--replicas", "2", "--api-key", "client", "--admin-key", "boss") as running:
        running.http.headers["authorization"] = "Bearer client"
        yield running


def test_both_replicas_are_up(cluster):
    assert cluster.http.get("/health").json()["replicas"] == {"up": 2, "total": 2}
    assert len(cluster.processes) == 2 and "sessions in the cluster's memory" in cluster.log.read_text()


def test_a_prompt_goes_where_its_beginning_is(cluster):
    home = cluster.replica(cluster.http.post(CHAT, json=said(LONG)))
    for turn in range(3):
        reply = cluster.http.post(CHAT, json=said(LONG + str(turn)))
        assert cluster.replica(reply) == home
        assert reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 60


def test_a_stream_is_the_same_as_the_whole_answer(cluster):
    whole = cluster.http.post(CHAT, json=said(LONG, max_tokens=30)).json()["choices"][0]["message"]["content"]
    with cluster.http.stream("POST", CHAT, json=said(LONG, max_tokens=30, stream=True)) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    assert "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1]) == whole


def test_requests_at_once_do_not_get_each_others_replica(cluster):
    """Sessions of both replicas, all asked for at the same time: each is answered by the one that has it."""
    import threading

    sessions = [cluster.http.post("/v1/sessions", json={"system": f"{n} {LONG}"}).json()["id"] for n in range(12)]
    answered: dict[str, str] = {}

    def ask(session: str) -> None:
        with httpx.Client(base_url=cluster.url, headers=cluster.http.headers, trust_env=False, timeout=60) as http:
            answered[session] = cluster.replica(http.get(f"/v1/sessions/{session}"))

    askers = [threading.Thread(target=ask, args=(session,)) for session in sessions]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)
    assert answered == {session: session.rpartition("-")[2] for session in sessions}
    assert set(answered.values()) == set(cluster.processes)


def test_turns_forks_and_tools_of_the_sdk(cluster):
    with Client(cluster.url, api_key="client") as client, client.session(system="Be brief.") as session:
        session.send("one", max_tokens=4)
        (fork,) = session.fork()
        assert session.send("two", max_tokens=4).usage.cached_tokens > 20
        assert fork.send("other", max_tokens=4).usage.cached_tokens > 20
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    reply = cluster.http.post(CHAT, json=said("look", tools=[tool], tool_choice="required", max_tokens=200))
    assert reply.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"


@pytest.mark.parametrize("streams", [True, False])
def test_a_hang_up_frees_the_replica(cluster, streams):
    body = json.dumps(said(LONG, max_tokens=1400, stream=streams)).encode()
    address = httpx.URL(cluster.url)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer client\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection((address.host, address.port), timeout=30) as client:
        client.sendall(head.encode() + body)
        eventually(lambda: cluster.running() == 1)
    eventually(lambda: cluster.running() == 0)
    boss = {"authorization": "Bearer boss"}
    assert cluster.http.post("/debug/check", headers=boss).json() == {"ok": True, "broken": []}
    aborted = [s for f in families(cluster) if f.name == "agentcache_finished" for s in f.samples if "total" in s.name]
    assert sum(sample.value for sample in aborted if sample.labels["reason"] == "abort") >= 1


def families(cluster: RunningCluster) -> list[Any]:
    text = cluster.http.get("/metrics", headers={"authorization": "Bearer boss"}).text
    return list(text_string_to_metric_families(text))


def test_metrics_are_of_all_replicas(cluster):
    names = {sample.labels.get("replica") for family in families(cluster) for sample in family.samples}
    assert names == set(cluster.processes)


def test_refusals_are_those_of_a_server(cluster):
    nobody = httpx.get(f"{cluster.url}/v1/cache", trust_env=False)
    assert nobody.status_code == 401 and nobody.headers["www-authenticate"] == "Bearer"
    assert cluster.http.get("/metrics").status_code == 403
    bad = cluster.http.post(CHAT, json={"messages": []}, headers={"x-request-id": "mine"})
    assert bad.status_code == 400 and bad.json()["error"]["param"] == "messages"
    assert bad.headers.get_list("x-request-id") == bad.headers.get_list("request-id") == ["mine"]
    lost = cluster.http.get("/replicas/r9/v1/cache")
    assert lost.status_code == 404 and lost.json()["error"]["code"] == "no_replica"


def test_refusals_are_those_of_a_server_behind_rays_proxy_too(cluster, tiny_model):
    fields = {"api_keys": ("client",), "admin_keys": ("boss",), "num_pages": 64, "access_log": "off"}
    with live_server(tiny_model, model_names=("tiny",), **fields) as alone:
        alone.http.headers["authorization"] = cluster.http.headers["authorization"]
        for asked in filter(reaches_us, (*BODIES, *ROUTES)):
            assert answer(cluster.http, asked) == answer(alone.http, asked), asked


def reaches_us(asked: Asked) -> bool:
    """Ray's proxy has routes of its own, and opinions on ids."""
    return not asked.path.startswith("/-/") and asked.headers.get("x-request-id", "mine") == "mine"


def test_access_lines_say_whose_they_are(cluster):
    name = cluster.replica(cluster.http.get("/v1/models"))
    eventually(
        lambda: "GET /v1/models 200 " in cluster.log.read_text() and f"replica={name}" in cluster.log.read_text()
    )
