"""Messages as clients really send them: what is the same is the same prompt, what cannot be read is refused by place."""

from __future__ import annotations

import json

import pytest
from live import drain, probe, stream
from saying import saying_server
from transformers import AutoTokenizer

USER = {"role": "user", "content": "Where is it?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": "it"}'}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shapes")


@pytest.fixture(scope="module")
def model(folder):
    with saying_server(folder) as made:
        made.says("Here.")
        yield made
        drain(made.server)


@pytest.fixture(scope="module")
def reference(model, folder):
    """Hugging Face's own rendering of messages in the one shape."""
    return AutoTokenizer.from_pretrained(folder)


def ids(model, messages, **fields):
    reply = model.server.http.post("/v1/chat/completions/render", json={"messages": messages, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["token_ids"]


SAME = [
    [{"role": "user", "content": "ab"}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    [{"role": "user", "content": ["a", {"type": "input_text", "text": "b"}]}],
    [{"role": "user", "content": "ab", "name": None, "refusal": None, "annotations": [], "x_unknown": None}],
]
PLAIN = [
    ([USER], [USER]),
    ([{"role": "system", "content": "S"}, {"role": "system", "content": "T"}, USER], None),
    ([{"role": "developer", "content": "S"}, USER], [{"role": "system", "content": "S"}, USER]),
    (
        [{"role": "system", "content": [{"type": "text", "text": "S"}]}, USER],
        [{"role": "system", "content": "S"}, USER],
    ),
    ([USER, {"role": "assistant"}, USER], [USER, {"role": "assistant", "content": ""}, USER]),
    ([USER, {"role": "assistant", "content": None}, USER], [USER, {"role": "assistant", "content": ""}, USER]),
    (
        [USER, {"role": "assistant", "content": [{"type": "text", "text": "Yes"}]}, USER],
        [USER, {"role": "assistant", "content": "Yes"}, USER],
    ),
    ([USER, {"role": "assistant", "content": "so"}], None),
]


def test_parts_and_odd_keys_make_the_same_prompt_which_is_then_cached(model):
    replies = [model.whole(messages) for messages in SAME]
    assert len({reply["usage"]["prompt_tokens"] for reply in replies}) == 1
    total = replies[0]["usage"]["prompt_tokens"]
    assert [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies[1:]] == [total - 1] * 3


@pytest.mark.parametrize("sent, plain", PLAIN)
def test_shapes_render_as_the_template_renders_the_plain_one(model, reference, sent, plain):
    expected = reference.apply_chat_template(plain or sent, add_generation_prompt=True, return_dict=False)
    assert ids(model, sent) == expected
    assert model.whole(sent)["usage"]["prompt_tokens"] == len(expected)


def test_null_content_beside_calls_keeps_the_message_and_never_says_none(model):
    result = {"role": "tool", "tool_call_id": "c1", "content": "there"}
    texts = []
    for content in ({"content": None}, {"content": ""}, {}):
        history = [USER, {"role": "assistant", "tool_calls": [CALL], **content}, result]
        rendered = model.server.http.post(
            "/v1/chat/completions/render", json={"messages": history, "tools": [TOOL]}
        ).json()
        texts.append(rendered["text"])
    assert texts[0] == texts[1] == texts[2]
    assert "None" not in texts[0] and "null" not in texts[0]
    assert '"q": "it"' in texts[0] and "there" in texts[0]


def test_tools_reach_the_prompt_although_the_template_ignores_them(model):
    with_tools = model.server.http.post(
        "/v1/chat/completions/render", json={"messages": [USER], "tools": [TOOL]}
    ).json()
    assert json.dumps(TOOL) in with_tools["text"]


def test_a_further_turn_keeps_every_earlier_id(model):
    history = [USER]
    before = ids(model, history, add_generation_prompt=False)
    for message in ({"role": "assistant", "content": "a"}, USER, {"role": "developer", "content": "d"}, USER):
        history.append(message)
        now = ids(model, history, add_generation_prompt=False)
        assert now[: len(before)] == before
        before = now


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "messages, param",
    [
        ([], "messages"),
        ([USER, {"role": "user", "content": [IMAGE]}], "messages[1].content[0]"),
        ([USER, {"role": "wizard", "content": "x"}], "messages[1].role"),
        ([USER, {"content": "x"}], "messages[1].role"),
        ([USER, {"role": "user", "content": 5}], "messages[1].content"),
        ([USER, {"role": "assistant", "content": "", "tool_calls": "x"}], "messages[1].tool_calls"),
        ([USER, {"role": "assistant", "content": "", "tool_calls": [{}]}], "messages[1].tool_calls[0].function"),
    ],
)
def test_what_cannot_be_read_is_refused_by_place(model, messages, param, streamed):
    body = {"messages": messages, "stream": streamed}
    reply = model.server.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    probe(model.server, "hi", model.tokenizer.encode("Here."))


REFUSING = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)


def test_a_template_that_refuses_a_role_says_so_in_its_own_words(tmp_path):
    with saying_server(tmp_path, REFUSING) as model:
        body = {"messages": [{"role": "system", "content": "s"}, USER]}
        for streamed in (False, True):
            reply = model.server.http.post("/v1/chat/completions", json={**body, "stream": streamed})
            assert reply.status_code == 400
            error = reply.json()["error"]
            assert "System role not supported" in error["message"]
            assert (error["param"], error["code"]) == ("messages", "chat_template")
        model.says("Fine.")
        assert stream(model.server, "/v1/chat/completions", {"messages": [USER]})
