"""A server that is started with another model on the folder of an earlier one says so, to the keys that it concerns."""

from __future__ import annotations

import json

import pytest
from live import LiveServer, live_server
from reference import cached, random_ids
from tiny_folder import write_tiny_folder

PROMPT = random_ids(40, "known")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    write_tiny_folder(folder, seed=1)
    return folder


def ask(server: LiveServer, prompt, key: str | None = None, **fields):
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
    return server.http.post("/v1/completions", json=body, headers=headers).raise_for_status().json()


def code(reply) -> str | None:
    miss = reply["agentcache"]["miss"]
    return None if miss is None else miss["code"]


def test_what_a_key_sent_to_the_model_before_is_not_merely_cold(tiny, other, tmp_path):
    keys = {"num_pages": 64, "disk_dir": tmp_path, "api_keys": ("one", "two")}
    with live_server(tiny[0], **keys) as server:
        assert code(ask(server, PROMPT, "one")) == "cold"
        ask(server, random_ids(40, "salted"), "one", cache_salt="s")
    with live_server(other, **keys) as server:
        assert code(ask(server, PROMPT, "two")) == "cold"
        assert code(ask(server, random_ids(40, "new"), "one")) == "cold"
        assert code(ask(server, PROMPT, "one", cache_salt="s")) == "cold"
        assert code(ask(server, random_ids(40, "salted"), "one", cache_salt="s")) == "model"
        reply = ask(server, PROMPT, "one")
        # The same key has just sent it under a salt, which is nearer.
        assert code(reply) == "salt"
        assert cached(reply) == 0


def test_the_answer_names_the_model_and_is_counted(tiny, other, tmp_path):
    with live_server(tiny[0], num_pages=64, disk_dir=tmp_path) as server:
        ask(server, PROMPT)
        revision = server.engine.root_base[0]
    with live_server(other, num_pages=64, disk_dir=tmp_path) as server:
        reply = ask(server, PROMPT)
        assert code(reply) == "model" and revision in reply["agentcache"]["miss"]["detail"]
        assert 'agentcache_miss_total{code="model"} 1.0' in server.http.get("/metrics").text
        assert code(ask(server, PROMPT)) is None
        session = server.http.post("/v1/sessions", json={"prompt": PROMPT[:20], "cache_salt": "x"}).json()["id"]
        assert code(ask(server, [], session=session)) == "salt"
    with live_server(tiny[0], num_pages=64, disk_dir=tmp_path) as server:
        assert cached(ask(server, PROMPT)) == 32  # what the first one wrote is its own still
    assert len(json.loads((tmp_path / "models.json").read_text())) == 2


@pytest.mark.parametrize("content", ["", "{}", '[1, ["a", 2]]', '[["unknown", "model", "of", "old"]]'])
def test_a_spoiled_list_of_models_costs_an_explanation_and_nothing_else(tiny, tmp_path, content):
    (tmp_path / "models.json").write_text(content)
    with live_server(tiny[0], num_pages=64, disk_dir=tmp_path) as server:
        assert code(ask(server, PROMPT)) == "cold"
