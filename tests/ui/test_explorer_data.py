"""What the explorer page is told: equal to what answers say, bounded, and of nobody else."""

from __future__ import annotations

import json
import random
import threading
import time

import httpx
import pytest

from agentcache.server.ui.records import history_json
from agentcache.server.watch.journal import RequestRecord

SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser. " * 2
HOSTILE = "</script><img src=x onerror=alert(1)> \u202e drawkcab \x00 😀"


@pytest.fixture(scope="module")
def server(serve):
    with serve() as running:
        yield running


def get(server, path: str, key: str | None = None, **parameters):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    reply = server.http.get(f"/ui/{path}", params=parameters, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def settled_tree(server, **parameters):
    """The tree as it is now: one is kept for a second."""
    deadline = time.monotonic() + 10
    while True:
        tree, pages = get(server, "tree", **parameters), server.pages()
        if tree["totals"]["pages"] == pages["cached"] + pages["pinned"] and not pages["live"]:
            return tree
        assert time.monotonic() < deadline, (tree["totals"], pages)
        time.sleep(0.1)


def ids(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(3, 500), k=count)


def test_figures_are_those_of_the_cache_and_of_the_answers(server):
    answers = [
        server.chat(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"task {number}"}], max_tokens=4
        )
        for number in range(3)
    ]
    state, cache = get(server, "state"), server.pages()
    assert state["pages"] == {name: cache[name] for name in ("total", "free", "live", "cached", "pinned")}
    latest = get(server, "requests")["requests"]
    for request, answer in zip(latest, reversed(answers), strict=False):
        report = answer["agentcache"]
        assert request["answer"] == answer["id"] and request["route"] == "/v1/chat/completions"
        for name in ("prompt_tokens", "cached_tokens", "computed_tokens", "miss"):
            assert request[name] == report[name], name
    sums = [sum(bucket[place] for bucket in state["history"]["buckets"]) for place in range(3)]
    assert sums == [len(latest), *(sum(one[name] for one in latest) for name in ("prompt_tokens", "cached_tokens"))]
    tree = settled_tree(server)
    (top,) = [node for node in tree["nodes"] if node["parent"] is None]
    assert "helpful agent" in top["text"] and top["hits"] >= 2
    assert top["subtree"]["pages"] == tree["totals"]["pages"]


def test_what_is_cut_off_is_still_in_the_sums(server):
    trunk = ids(1, 64)
    for branch in range(12):
        server.complete([*trunk, branch + 3, *ids(branch + 10, 30 + 16 * branch)], max_tokens=1)
    whole = settled_tree(server)
    assert all("more" not in node for node in whole["nodes"])
    for limit in (1, 3, 7):
        cut = settled_tree(server, nodes=limit)
        drawn = [node for node in cut["nodes"] if "more" not in node]
        rest = [node for node in cut["nodes"] if "more" in node]
        assert len(drawn) == limit and rest and cut["totals"] == whole["totals"]
        assert (
            sum(node["pages"] for node in drawn) + sum(n["subtree"]["pages"] for n in rest) == whole["totals"]["pages"]
        )
        assert len(drawn) + sum(node["subtree"]["runs"] for node in rest) == whole["totals"]["runs"]
    (fork,) = [node for node in whole["nodes"] if sum(n["parent"] == node["id"] for n in whole["nodes"]) == 12]
    part = settled_tree(server, under=fork["id"], nodes=4)
    assert part["focus"] == fork["id"] and part["nodes"][0] == fork and part["above"] == []
    leaf = next(node for node in whole["nodes"] if node["parent"] == fork["id"])
    deeper = settled_tree(server, under=leaf["id"])
    assert deeper["above"] == [fork] and deeper["nodes"] == [leaf]
    assert settled_tree(server, under="nothing")["focus"] is None


@pytest.mark.parametrize("nodes", ["0", "-1", "x", "2001", "9" * 30, "\u0663"])
def test_other_bounds_than_numbers_are_refused(server, nodes):
    reply = server.http.get("/ui/tree", params={"nodes": nodes})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "nodes"


def test_sessions_are_on_the_runs_that_they_go_through(server):
    session = server.http.post("/v1/sessions", json={"system": SYSTEM + "Sessions.", "ttl_s": 600}).json()["id"]
    server.chat([{"role": "user", "content": "begin"}], session=session, max_tokens=4)
    server.http.post(f"/v1/sessions/{session}/pin", json={"ttl_s": 300}).raise_for_status()
    (fork,) = server.http.post(f"/v1/sessions/{session}/fork", json={"n": 1}).json()["sessions"]
    server.chat([{"role": "user", "content": "another way"}], session=fork["id"], max_tokens=4)
    deadline = time.monotonic() + 10
    while True:
        nodes = settled_tree(server)["nodes"]
        both = [node for node in nodes if {session, fork["id"]} <= set(node["sessions"])]
        alone = [node for node in nodes if node["sessions"] == [fork["id"]]]
        if both and alone and any(node["pinned"] for node in both):
            break
        assert time.monotonic() < deadline, nodes
        time.sleep(0.1)
    told = {one["id"]: one for one in get(server, "sessions")["sessions"]}
    mine = server.http.get(f"/v1/sessions/{session}").json()
    assert told[session]["turns"] == mine["turns"] and told[session]["pinned_until"] == mine["pinned_until"]
    assert told[fork["id"]]["parent"] == session and told[fork["id"]]["turn_count"] == 2
    server.http.post(f"/v1/sessions/{session}/unpin").raise_for_status()


def test_an_unchanged_answer_is_not_sent_again(server):
    time.sleep(1.1)  # whatever other tests did is in the next survey
    tree = settled_tree(server)
    for path in ("tree", "sessions", "requests"):
        first = server.http.get(f"/ui/{path}")
        again = server.http.get(f"/ui/{path}", headers={"if-none-match": first.headers["etag"]})
        assert again.status_code == 304 and not again.content
    time.sleep(1.1)  # a new survey is due, and nothing has changed
    assert settled_tree(server)["made"] == tree["made"]


def test_hostile_text_arrives_as_text(server):
    server.chat([{"role": "user", "content": HOSTILE + " is what I typed here"}], max_tokens=2)
    tree = settled_tree(server)
    assert any("onerror=alert(1)" in node["text"] for node in tree["nodes"])
    raw = server.http.get("/ui/tree")
    assert raw.headers["content-type"] == "application/json" and raw.headers["x-content-type-options"] == "nosniff"
    assert "\x00" not in raw.text and "\u202e" not in raw.text  # escaped


def test_the_page_is_open_and_shut_to_everything_from_elsewhere(serve):
    with serve(api_keys=("key-one",)) as server, httpx.Client(base_url=server.url) as stranger:
        page = stranger.get("/ui")
        assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert "://" not in page.text
        assert httpx.URL(f"{server.url}/ui/").join(stranger.get("/ui/").headers["location"]).path == "/ui"
        for method in ("GET", "HEAD"):
            assert stranger.request(method, "/", follow_redirects=True).url.path == "/ui"
        for name in ("page.js", "page.css", "icon.svg"):
            assert stranger.get(f"/ui/static/{name}").status_code == 200
        assert stranger.get("/ui/static/..%2froutes.py").status_code == 404
        assert stranger.get("/ui/static/routes.py").status_code == 404
        for path in ("state", "tree", "sessions", "requests"):
            assert stranger.get(f"/ui/{path}").status_code == 401
            assert stranger.get(f"/ui/{path}", headers={"authorization": "Bearer key-two"}).status_code == 401


def test_of_other_keys_there_are_only_counts(serve):
    with serve(api_keys=("key-one", "key-two")) as server:
        session = server.http.post("/v1/sessions", json={"system": SYSTEM, "metadata": {"name": "unheard of"}}).json()[
            "id"
        ]
        answer = server.chat([{"role": "user", "content": "secret words"}], session=session, max_tokens=4)
        server.chat([{"role": "user", "content": "secret words, salted"}], cache_salt="secret salt", max_tokens=4)
        mine = settled_tree(server)
        assert "helpful agent" in json.dumps(mine) and len(mine["namespaces"]) == 2 and mine["totals"]["others"] == 0
        secrets = [
            "secret",
            "helpful agent",
            session,
            answer["id"],
            "unheard of",
            *(node["id"] for node in mine["nodes"]),
        ]
        for path in ("state", "tree", "sessions", "requests"):
            told = json.dumps(get(server, path, key="key-two"))
            assert not [secret for secret in secrets if secret in told], path
        theirs = get(server, "tree", key="key-two")
        assert theirs["nodes"] == [] and theirs["totals"]["others"] == mine["totals"]["pages"]
        assert get(server, "tree", key="key-two", under=mine["nodes"][0]["id"])["focus"] is None


def test_queues_are_in_order_and_others_are_counted(serve):
    with serve(api_keys=("key-one", "key-two"), max_running=1, num_pages=120) as server:
        bodies = [
            ("key-one", {"prompt": ids(1, 40), "max_tokens": 1500, "ignore_eos": True}),
            ("key-one", {"prompt": ids(2, 50), "max_tokens": 1, "priority": 2}),
            ("key-two", {"prompt": ids(3, 60), "max_tokens": 1, "priority": 1}),
            ("key-one", {"prompt": ids(4, 70), "max_tokens": 1, "priority": 0}),
        ]

        def post(key, body):
            httpx.post(
                f"{server.url}/v1/completions", json=body, headers={"authorization": f"Bearer {key}"}, timeout=60
            )

        threads = [threading.Thread(target=post, args=one) for one in bodies]
        seen = {}
        for number, thread in enumerate(threads):
            thread.start()
            deadline = time.monotonic() + 20
            while (seen["running"]["count"] + seen["waiting"]["count"] if seen else 0) <= number:
                assert time.monotonic() < deadline, seen
                seen = get(server, "state")["queues"]
        running, waiting = seen["running"], seen["waiting"]
        assert running["count"] == 1 and running["requests"][0]["prompt_tokens"] == 40
        assert waiting["count"] == 3 and waiting["others"] == 1
        assert [(one["place"], one["priority"]) for one in waiting["requests"]] == [(0, 0), (2, 2)]
        assert [one["prompt_tokens"] for one in waiting["requests"]] == [70, 50]
        other = get(server, "state", key="key-two")["queues"]
        assert other["running"]["others"] == 1 and [one["prompt_tokens"] for one in other["waiting"]["requests"]] == [
            60
        ]
        for thread in threads:
            thread.join()
        assert not any(get(server, "state")["queues"][name]["count"] for name in ("running", "preempted", "waiting"))


def test_pages_that_only_a_lower_tier_has_are_behind_those_on_the_device(serve):
    with serve(num_pages=40, host_pages=64) as server:
        session = server.http.post("/v1/sessions", json={"prompt": ids(1, 200)}).json()["id"]
        server.complete([], session=session, max_tokens=1)
        for seed in range(2, 5):
            server.complete(ids(seed, 400), max_tokens=1)
        found = server.http.get(f"/v1/sessions/{session}/explain").json()
        below = [node for node in settled_tree(server)["nodes"] if node.get("below")]
        assert below and all(node["below"] == "host" and node["sessions"] == [session] for node in below)
        assert sum(node["tokens"] for node in below) == found["cached"]["tiers"]["host"]


def test_no_page_of_the_server_runs_what_comes_from_elsewhere(serve):
    with serve() as server:
        paths = [path for path in server.http.get("/openapi.json").json()["paths"] if "{" not in path]
        answers = [server.http.get(path) for path in ("/docs", "/redoc", "/docs/oauth2-redirect", "/", "/ui/", *paths)]
    pages = [answer for answer in answers if "html" in answer.headers.get("content-type", "")]
    assert [page.url.path for page in pages] == ["/ui"]
    assert "://" not in pages[0].text


def test_requests_that_were_cut_say_nothing_of_the_hit_rate():
    """What was cached of them is not known, and 0 would be wrong."""
    fields = {
        "request_id": "r", "answer_id": "", "route": "/v1/messages", "model": "m", "owner": b"", "session": None,
        "streamed": True, "started": 100.0, "first_token_s": 0.5, "total_s": 2.0, "finish_reasons": (),
        "prompt_tokens": 40, "computed_tokens": 1, "completion_tokens": 1, "miss": None, "params": None,
    }  # fmt: skip
    whole = RequestRecord(**fields, status=200, error=None, cached_tokens=30)
    cut = RequestRecord(**fields, status=499, error=None, cached_tokens=0, measured=False)
    buckets = history_json([whole, cut], now=110.0)["buckets"]
    assert [bucket for bucket in buckets if bucket[0]] == [[1, 40, 30]]
