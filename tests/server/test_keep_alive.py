"""A stream that has nothing to say yet says that it is alive; what fails then is an event, since the status is out."""

from __future__ import annotations

import openai
import pytest
from live import drain
from saying import saying_server

HELLO = [{"role": "user", "content": "hi"}]


@pytest.fixture
def model(tmp_path):
    with saying_server(tmp_path, keep_alive_s=0.05) as made:
        made.says("Hello there.")
        yield made
        drain(made.server)


def slow_step(model, delay_ms):
    body = {"site": "forward", "at": 1, "delay_ms": delay_ms}
    assert model.server.http.post("/debug/fault", json=body).status_code == 200


def lines(model, path="/v1/chat/completions", **fields):
    body = {"messages": HELLO, "prompt": "hi", "stream": True, **fields}
    with model.server.http.stream("POST", path, json=body) as reply:
        assert reply.status_code == 200
        return [line for line in reply.iter_lines() if line]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_long_prefill_is_bridged_by_comments(model, path):
    slow_step(model, 400)
    said = lines(model, path)
    alive = said.index(next(line for line in said if line.startswith("data: ")))
    assert set(said[:alive]) == {": keep-alive"} and alive >= 2
    assert not any(line.startswith(":") for line in said[alive:])
    assert said[-1] == "data: [DONE]"


def test_clients_do_not_mind(model):
    slow_step(model, 300)
    with openai.OpenAI(base_url=f"{model.server.url}/v1", api_key="any", max_retries=0) as client:
        chunks = client.chat.completions.create(model="smollm2", messages=HELLO, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello there."


def test_a_failure_behind_a_keep_alive_is_an_event_and_an_end(model):
    slow_step(model, 300)
    model.server.http.post("/debug/fault", json={"site": "forward", "at": 2})
    said = lines(model)
    assert said[0] == ": keep-alive"
    assert '"error":' in said[-2]
    assert said[-1] == "data: [DONE]"


def test_whoever_leaves_during_the_silence_is_noticed(model):
    slow_step(model, 300)
    body = {"messages": HELLO, "stream": True}
    with model.server.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert next(reply.iter_lines()) == ": keep-alive"
