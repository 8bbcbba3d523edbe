"""An ingress names the pages of a request as the engine does that answers it."""

import json
import pickle
import subprocess
import sys

import pytest
from live import drain, live_engine
from routed_bodies import ALL, CHAT, SYSTEM, TURNS
from tiny_folder import write_tiny_folder

from agentcache.cache.residency import watch_residency
from agentcache.routing.feed import PageFeed, split_keys
from agentcache.routing.keys import RoutingKey
from agentcache.routing.profile import profile_of
from agentcache.routing.requests import Kind, RequestReader
from agentcache.settings import Settings

KEYS = ("first-key", "second-key")
AUTH = [(b"authorization", b"Bearer first-key")]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A live server with two keys and public pages, what it tells of its pages, and a reader made from what it is."""
    from agentcache.engine.build import build_engine

    folder = tmp_path_factory.mktemp("routed")
    write_tiny_folder(folder)
    public = tmp_path_factory.mktemp("public") / "public.txt"
    public.write_text(SYSTEM[:120], "utf-8")
    settings = Settings(
        model=str(folder), device="cpu", dtype="float32", threads=1, num_pages=600, page_size=8, access_log="off",
        api_keys=KEYS, admin_keys=("operator",), public_prefix=public, enable_test_hooks=True, replica="r0",
    )  # fmt: skip
    engine = build_engine(settings)
    feed = PageFeed()
    watch_residency(engine._core.manager, feed.hear)
    profile = pickle.loads(pickle.dumps(profile_of(engine, folder)))
    with live_engine(engine, settings) as server:
        yield server, feed, RequestReader(profile)
        drain(server)


def held(feed):
    """What ``feed`` tells, read to its end."""
    keys, cursor, more = set(), None, True
    while more:
        delta = feed.since(cursor)
        keys = (keys - set(split_keys(delta.removed))) | set(split_keys(delta.added))
        cursor, more = delta.cursor, delta.more
    return keys


@pytest.mark.parametrize(("path", "name", "body"), ALL, ids=[f"{path} {name}" for path, name, _ in ALL])
def test_it_names_the_pages_that_the_server_then_has(served, path, name, body):
    server, feed, reader = served
    body = {**body, "max_output_tokens" if path == "/v1/responses" else "max_tokens": 1}
    server.http.post("/v1/cache/flush", headers=server.as_operator).raise_for_status()
    sent = json.dumps(body).encode()
    read = reader.read("POST", path, AUTH, sent)
    reply = server.http.post(path, content=sent)
    assert reply.status_code == 200, reply.text
    usage = reply.json()["agentcache"]
    assert read.kind is Kind.GENERATE
    assert read.key.tokens == usage["prompt_tokens"]
    assert len(read.key.chain) == read.key.tokens // 8 > 0
    assert set(read.key.chain) == held(feed)


def test_keys_salts_and_public_beginnings_are_part_of_the_names(served):
    _, _, reader = served

    def chain(key, **fields):
        headers = [(b"x-api-key", key.encode())]
        body = json.dumps({"messages": TURNS, **fields}).encode()
        return reader.read("POST", "/v1/chat/completions", headers, body).key.chain

    mine, theirs, salted = chain("first-key"), chain("second-key"), chain("first-key", cache_salt="x")
    shared = [page for page in range(len(mine)) if mine[page] == theirs[page] == salted[page]]
    assert shared == list(range(len(shared))) and len(shared) >= 3  # the public pages, and no others
    assert not set(mine[len(shared) :]) & set(theirs)
    assert not set(mine[len(shared) :]) & set(salted)


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/v1/chat/completions", AUTH, b"{"),
        ("/v1/chat/completions", AUTH, b"[]"),
        ("/v1/chat/completions", AUTH, b'{"messages": []}'),
        ("/v1/chat/completions", AUTH, b'{"messages": [{"role": "nobody", "content": "x"}]}'),
        ("/v1/chat/completions", AUTH, b'{"messages": 3}'),
        ("/v1/chat/completions", AUTH, b"[" * 5000),
        ("/v1/chat/completions", AUTH, json.dumps({"messages": [{"role": "user", "content": "x" * 10**6}]}).encode()),
        ("/v1/chat/completions", [], json.dumps(CHAT["plain"]).encode()),
        ("/v1/chat/completions", [(b"x-api-key", b"wrong")], json.dumps(CHAT["plain"]).encode()),
        ("/v1/chat/completions", [*AUTH, (b"x-api-key", b"second-key")], json.dumps(CHAT["plain"]).encode()),
        ("/v1/completions", AUTH, b'{"prompt": [99999999]}'),
        ("/v1/completions", AUTH, b'{"prompt": ""}'),
        ("/v1/completions", AUTH, b'{"prompt": 7}'),
        ("/v1/responses", AUTH, b'{"input": [{"type": "unheard"}]}'),
        ("/v1/messages", AUTH, b'{"messages": []}'),
        ("/v1/messages", AUTH, b'{"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]}'),
    ],
)  # fmt: skip
def test_what_is_wrong_has_no_key_and_raises_nothing(served, path, headers, body):
    assert served[2].read("POST", path, headers, body) == (Kind.GENERATE, RoutingKey())


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "sticky"),
    [
        ("POST", "/v1/chat/completions", {"session": "sess_1-r3", "messages": []}, Kind.SESSION, "r3"),
        ("POST", "/v1/completions", {"session": "sess_1-r3"}, Kind.SESSION, "r3"),
        ("POST", "/v1/chat/completions", {"session": "sess_1"}, Kind.SESSION, None),
        ("GET", "/v1/sessions/sess_1-r3", None, Kind.SESSION, "r3"),
        ("POST", "/v1/sessions/sess_1-r3/pin", {}, Kind.SESSION, "r3"),
        ("DELETE", "/v1/sessions/sess_1-r3", None, Kind.SESSION, "r3"),
        ("POST", "/v1/responses", {"previous_response_id": "resp_1-r2", "input": "x"}, Kind.RESPONSE, "r2"),
        ("POST", "/v1/responses/input_tokens", {"previous_response_id": "resp_1-r2"}, Kind.RESPONSE, "r2"),
        ("GET", "/v1/responses/resp_1-r2", None, Kind.RESPONSE, "r2"),
        ("GET", "/v1/responses/resp_1-r2/input_items", None, Kind.RESPONSE, "r2"),
        (
            "POST",
            "/v1/messages",
            {"thread": {"type": "continue", "previous_message_id": "msg_1-r2"}},
            Kind.RESPONSE,
            "r2",
        ),
        ("POST", "/v1/responses/input_tokens", {"input": "x"}, Kind.ANY, None),
        ("GET", "/v1/sessions", None, Kind.MERGE, None),
        ("GET", "/metrics", None, Kind.MERGE, None),
        ("GET", "/v1/cache", None, Kind.MERGE, None),
        ("POST", "/v1/cache/flush", {}, Kind.ALL, None),
        ("GET", "/v1/models", None, Kind.ANY, None),
        ("GET", "/health", None, Kind.ANY, None),
        ("POST", "/tokenize", {"prompt": "x"}, Kind.ANY, None),
        ("GET", "/nothing/here", None, Kind.ANY, None),
    ],
)
def test_who_may_answer(served, method, path, body, kind, sticky):
    read = served[2].read(method, path, AUTH, b"" if body is None else json.dumps(body).encode())
    assert (read.kind, read.key.sticky) == (kind, sticky)


def test_a_header_names_a_session_only_if_a_replica_made_it(served):
    _, _, reader = served
    body = json.dumps(CHAT["plain"]).encode()

    def read(name):
        return reader.read("POST", "/v1/chat/completions", [*AUTH, (b"x-session-id", name)], body)

    assert read(b"sess_1-r3")[0] is Kind.SESSION and read(b"sess_1-r3").key.sticky == "r3"
    own = read(b"an-agents-own-Name!")
    assert own.kind is Kind.GENERATE and own.key.affinity and own.key.chain


def test_a_session_is_made_where_its_head_is(served):
    _, _, reader = served
    head = {"messages": TURNS[:2]}
    made = reader.read("POST", "/v1/sessions", AUTH, json.dumps(head).encode())
    asked = reader.read("POST", "/v1/chat/completions", AUTH, json.dumps(head).encode())
    assert made.kind is Kind.SESSION
    assert made.key.chain and made.key.chain == asked.key.chain[: len(made.key.chain)]
    assert reader.read("POST", "/v1/sessions", AUTH, b"").key == RoutingKey()


def test_a_conversation_keeps_its_thread_and_says_how_far_its_chain_is_certain(served):
    _, _, reader = served

    def key(messages, **fields):
        body = json.dumps({"messages": messages, **fields}).encode()
        return reader.read("POST", "/v1/chat/completions", AUTH, body).key

    first, later = key(TURNS[:2]), key(TURNS)
    assert first.thread == later.thread and first.certain == 0
    # The first prompt ends with what the template writes before a reply, which is part of what is certain.
    assert later.certain == first.tokens // 8
    assert key([*TURNS[:1], {"role": "user", "content": "Another."}]).thread != first.thread
    assert key(TURNS, cache_salt="x").thread != first.thread


def test_a_reply_with_other_tokens_than_its_text_parts_behind_what_is_certain(served):
    """The server goes on around the tokens that it drew; who only sees the text cannot know them."""
    server, feed, reader = served
    server.http.post("/v1/cache/flush", headers=server.as_operator).raise_for_status()
    first = server.chat(TURNS[:2], max_tokens=40)
    reply = first["choices"][0]["message"]
    messages = [*TURNS[:2], {"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "Go on."}]
    body = json.dumps({"messages": messages, "max_tokens": 1}).encode()
    key = reader.read("POST", "/v1/chat/completions", AUTH, body).key
    before = held(feed)
    assert set(key.chain[: first["usage"]["prompt_tokens"] // 8]) <= before
    assert key.certain <= first["usage"]["prompt_tokens"] // 8
    if reply["content"].strip():
        assert set(key.chain[: key.certain]) <= before


def test_reading_takes_no_torch():
    code = "import json, sys, agentcache.routing.requests, agentcache.routing.router; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    loaded = {name.partition(".")[0] for name in json.loads(run.stdout)}
    assert not loaded & {"torch", "transformers", "ray", "numba"}
