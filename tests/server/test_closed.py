"""Who may see what, and which web pages may ask for anything at all."""

from __future__ import annotations

import hmac
import socket

import httpx
import pytest
from live import live_engine
from stub_engine import StubEngine

from agentcache.server.gate import auth
from agentcache.settings import Settings

TEXT = "/v1/completions"
BODY = {"prompt": "a", "max_tokens": 1}
OPERATORS = [("GET", "/metrics"), ("POST", "/v1/cache/flush"), ("POST", "/debug/check")]
EVERYBODYS = [("GET", "/v1/models"), ("GET", "/v1/cache"), ("GET", "/v1/cache/tree"), ("GET", "/v1/sessions")]


def serve(**settings):
    return live_engine(StubEngine(), Settings(model="stub", enable_test_hooks=True, **settings))


@pytest.fixture(scope="module")
def two_keys():
    with serve(api_keys=("one", "two")) as running:
        yield running


def statuses(server, routes, key=None):
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=server.url, headers=headers) as http:
        return {path: http.request(method, path).status_code for method, path in routes}


def all_of(routes, status):
    return {path: status for _, path in routes}


def test_without_keys_everybody_is_the_operator():
    with serve() as server:
        assert statuses(server, OPERATORS + EVERYBODYS) == all_of(OPERATORS + EVERYBODYS, 200)


def test_a_single_key_is_the_operators():
    with serve(api_keys=("only",)) as server:
        assert statuses(server, OPERATORS + EVERYBODYS, "only") == all_of(OPERATORS + EVERYBODYS, 200)
        assert statuses(server, OPERATORS + EVERYBODYS) == all_of(OPERATORS + EVERYBODYS, 401)


def test_one_key_of_several_sees_nothing_of_the_whole_server(two_keys):
    assert statuses(two_keys, OPERATORS, "one") == all_of(OPERATORS, 403)
    assert statuses(two_keys, EVERYBODYS, "one") == all_of(EVERYBODYS, 200)
    error = two_keys.http.get("/metrics").json()["error"]
    assert error["type"] == "permission_error" and error["code"] == "operator_key_needed"
    assert "--admin-key" in error["message"]


@pytest.mark.parametrize("api_keys", [("one",), ("one", "two"), ()])
def test_an_admin_key_opens_everything_and_others_no_longer_do(api_keys):
    with serve(api_keys=api_keys, admin_keys=("boss",)) as server:
        assert statuses(server, OPERATORS + EVERYBODYS, "boss") == all_of(OPERATORS + EVERYBODYS, 200)
        assert statuses(server, OPERATORS + EVERYBODYS) == all_of(OPERATORS + EVERYBODYS, 401)
        for key in api_keys:
            assert statuses(server, OPERATORS, key) == all_of(OPERATORS, 403)
        assert httpx.post(server.url + TEXT, json=BODY, headers={"x-api-key": "boss"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("x-api-key", "one")], 200),
        ([("x-api-key", "one"), ("authorization", "Bearer one")], 200),
        ([("x-api-key", "one"), ("authorization", "Bearer two")], 401),
        ([("x-api-key", "one"), ("authorization", "Bearer wrong")], 401),
        ([("x-api-key", "wrong")], 401),
        ([("x-api-key", "")], 401),
        ([("x-api-key", "one"), ("authorization", "Basic cHJveHk6cHJveHk=")], 200),
        ([("authorization", "Bearer one"), ("authorization", "Bearer two")], 401),
        ([("x-api-key", "one"), ("x-api-key", "two")], 401),
        ([("authorization", "BEARER one")], 200),
    ],
)
def test_a_key_comes_in_either_header_and_two_must_agree(two_keys, headers, status):
    reply = httpx.post(two_keys.url + TEXT, json=BODY, headers=headers)
    assert reply.status_code == status
    if status == 401:
        assert reply.json()["error"]["code"] == "invalid_api_key"


def test_every_key_is_compared_whichever_is_right(monkeypatch):
    compared, real = [], hmac.compare_digest

    def compare(one, other):
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(auth.hmac, "compare_digest", compare)
    keys = auth.Keys(Settings(api_keys=("first", "second, and longer"), admin_keys=("third",)))
    for secret in (b"first", b"third", b"wrong", b""):
        compared.clear()
        keys.find(secret)
        assert len(compared) == 3 and len(set(compared)) == 1  # of one length each, too


def test_a_wrong_key_is_refused_before_the_body_is_read(two_keys):
    reply = httpx.post(two_keys.url + TEXT, content=b"{not json", headers={"content-type": "application/json"})
    assert reply.status_code == 401


# -- web pages ---------------------------------------------------------------------------------------------------------


def ask(server, method="POST", path=TEXT, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    content = {"json": BODY} if method == "POST" else {}
    return httpx.request(method, server.url + path, headers=names, **content)


@pytest.fixture(scope="module")
def keyless():
    with serve(cors_origins=("https://app.example:8443",)) as running:
        yield running


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "file://", "http://127.0.0.1:1", "https://app.example", ""]
)
def test_a_foreign_page_can_change_nothing_on_a_server_without_keys(keyless, origin):
    for path in (TEXT, "/v1/cache/flush", "/v1/sessions", "/debug/check"):
        reply = ask(keyless, path=path, origin=origin)
        assert reply.status_code == 403 and reply.json()["error"]["code"] == "foreign_origin"
        assert "access-control-allow-origin" not in reply.headers
    read = ask(keyless, "GET", "/v1/models", origin=origin)
    assert read.status_code == 200 and "access-control-allow-origin" not in read.headers


def test_its_own_page_and_one_that_is_allowed_can(keyless):
    for own in (keyless.url, f"http://localhost:{keyless.port}"):
        host = own.partition("//")[2]
        assert ask(keyless, origin=own, host=host).status_code == 200
    reply = ask(keyless, origin="https://app.example:8443")
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == "https://app.example:8443"
    assert "access-control-allow-credentials" not in reply.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1.nip.io", "localhost.evil.example"])
def test_a_name_that_anybody_can_point_here_is_not_answered(keyless, host):
    host = host.format(port=keyless.port)
    for method, path in (("GET", "/v1/cache/tree"), ("POST", TEXT)):
        reply = ask(keyless, method, path, host=host)
        assert reply.status_code == 403 and reply.json()["error"]["code"] == "foreign_host"


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:{port}", "127.0.0.1:80", "[::1]:{port}", "[::1]", "a.localhost"]
)
def test_a_name_of_this_machine_is_answered(keyless, host):
    assert ask(keyless, host=host.format(port=keyless.port)).status_code == 200


def test_any_name_is_answered_when_told_so_but_pages_still_are_not():
    with serve(allow_keyless=True) as server:
        assert ask(server, host="models.example").status_code == 200
        assert ask(server, host="models.example", origin="https://models.example").status_code == 200
        assert ask(server, host="models.example", origin="https://evil.example").status_code == 403


def test_a_key_is_enough_whatever_the_page():
    with serve(api_keys=("one",)) as server:
        key = {"x_api_key": "one", "origin": "https://evil.example", "host": "models.example"}
        reply = ask(server, **key)
        assert reply.status_code == 200 and "access-control-allow-origin" not in reply.headers


def preflight(server, origin):
    return ask(
        server, "OPTIONS", origin=origin, access_control_request_method="POST",
        access_control_request_headers="authorization, content-type",
    )  # fmt: skip


def test_a_preflight_needs_no_key_and_is_answered_for_allowed_pages_only():
    with serve(api_keys=("one",), cors_origins=("https://app.example",)) as server:
        allowed = preflight(server, "https://app.example")
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in allowed.headers["access-control-allow-headers"]
        assert "access-control-allow-origin" not in preflight(server, "https://evil.example").headers
        refused = ask(server, origin="https://app.example")  # a page must be able to read why
        assert refused.status_code == 401 and "access-control-allow-origin" in refused.headers
    with serve(api_keys=("one",)) as server:
        off = preflight(server, "https://app.example")
        assert off.status_code == 405 and "access-control-allow-origin" not in off.headers


def test_an_old_client_without_a_host_is_answered(keyless):
    with socket.create_connection(("127.0.0.1", keyless.port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))  # such a connection ends with its answer
    assert answer.partition(b"\r\n")[0].endswith(b" 200 OK")
