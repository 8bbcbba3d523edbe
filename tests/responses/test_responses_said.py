"""Replies of a model that says what it is told to: reasoning, text and calls, streamed, whole, kept and sent back."""

from __future__ import annotations

import pytest
from live import drain
from response_calls import Responses, lasting
from saying import saying_server

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message.get('reasoning_content') %}<think>\n{{ message['reasoning_content'] }}\n</think>\n\n{% endif %}"
    "{{ message['content'] or '' }}"
    "{% for call in message.get('tool_calls') or [] %}"
    "{{ '\n' if message['content'] or not loop.first else '' }}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "web_search"},
    {"type": "function", "name": "weather", "parameters": CITY},
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}},
    {"type": "namespace", "name": "agents", "description": "About agents.", "tools": [
        {"type": "function", "name": "spawn", "parameters": CITY},
    ]},
]  # fmt: skip
REPLY = (
    "<think>\nWhere is it? 🙂\n</think>\n\nLet me look."
    '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Tromsø"}}\n</tool_call>'
    '\n<tool_call>\n{"name": "patch", "arguments": {"input": "*** a\\n\\"b\\""}}\n</tool_call>'
    '\n<tool_call>\n{"name": "agents__spawn", "arguments": {"city": "Rome"}}\n</tool_call>'
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with saying_server(tmp_path_factory.mktemp("saying"), TEMPLATE) as made:
        yield made
        drain(made.server)


@pytest.fixture
def api(model) -> Responses:
    model.says(REPLY)
    return Responses(model.server)


def make(api, input="hello", **fields):
    return api.create(input, **{"tools": TOOLS, "max_output_tokens": 400, **fields})


def user(content):
    return {"role": "user", "content": content}


def results_of(response):
    kinds = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
    calls = [item for item in response["output"] if item["type"] in kinds]
    return [{"type": kinds[call["type"]], "call_id": call["call_id"], "output": "ok"} for call in calls]


def test_reasoning_text_and_calls_of_every_kind_are_items_in_order(api):
    made = make(api)
    thought, message, weather, patch, spawn = made["output"]
    assert (thought["type"], thought["content"][0]["text"].strip()) == ("reasoning", "Where is it? 🙂")
    assert message["content"][0]["text"].strip() == "Let me look."
    assert (weather["name"], weather["arguments"]) == ("weather", '{"city": "Tromsø"}')
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "patch", '*** a\n"b"')
    assert (spawn["namespace"], spawn["name"]) == ("agents", "spawn")
    assert made["status"] == "completed"
    assert made["tools"] == [TOOLS[1] | {"strict": None}, *TOOLS[2:]]


def test_a_stream_tells_what_a_whole_answer_says(api):
    whole = make(api)
    events = api.stream("hello", tools=TOOLS, max_output_tokens=400)
    assert lasting(events[-1]["response"]) == lasting(whole)
    for kind, index in (("reasoning_text", 0), ("output_text", 1), ("function_call_arguments", 2)):
        deltas = [e["delta"] for e in events if e["type"] == f"response.{kind}.delta" and e["output_index"] == index]
        (done,) = [e for e in events if e["type"] == f"response.{kind}.done" and e["output_index"] == index]
        assert "".join(deltas) == done.get("text", done.get("arguments"))


def test_reasoning_is_counted_in_tokens(model, api):
    made = make(api)
    thought = model.tokenizer.encode("<think>\nWhere is it? 🙂\n</think>")
    counted = made["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert abs(counted - len(thought)) <= 1  # the last token may hold more than the tag
    model.says("no thought")
    assert make(api)["usage"]["output_tokens_details"]["reasoning_tokens"] == 0


def test_what_was_said_is_read_from_the_cache_however_it_comes_back(api):
    first = make(api)
    results = results_of(first)
    assert len(results) == 3
    kept = make(api, results, previous_response_id=first["id"])
    sent = make(api, [{"role": "user", "content": "hello"}, *first["output"], *results])
    for answer in (kept, sent):
        assert answer["agentcache"]["source"] == "transcript"
        assert answer["usage"]["input_tokens"] == kept["usage"]["input_tokens"]
    assert kept["agentcache"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1
    assert sent["agentcache"]["cached_tokens"] == kept["usage"]["input_tokens"] - 1


def test_a_reply_that_is_cut_inside_a_call_is_incomplete_as_far_as_it_came(api):
    whole = make(api)
    cut = make(api, max_output_tokens=whole["usage"]["output_tokens"] - 12)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in cut["output"]][-1] == "incomplete"
    assert all(item["status"] == "completed" for item in cut["output"][:-1])
    events = api.stream("hello", tools=TOOLS, max_output_tokens=whole["usage"]["output_tokens"] - 12)
    assert lasting(events[-1]["response"]) == lasting(cut)


def test_a_reply_of_nothing_is_an_empty_message_that_comes_back_as_one(model, api):
    model.says([])
    made = make(api)
    assert [part["text"] for part in made["output"][0]["content"]] == [""]
    model.says("so")
    after = make(api, "and?", previous_response_id=made["id"])
    assert after["agentcache"]["cached_tokens"] >= made["usage"]["total_tokens"] - 1


def test_stop_strings_and_logprobs_agree(model, api):
    model.says("one two three four")
    asked = {"stop": [" three"], "include": ["message.output_text.logprobs"], "tools": None}
    made = make(api, **asked)
    (part,) = made["output"][0]["content"]
    assert part["text"] == "one two"
    assert "".join(entry["token"] for entry in part["logprobs"]).startswith("one two")
    events = api.stream("hello", max_output_tokens=400, **asked)
    assert lasting(events[-1]["response"]) == lasting(made)


def test_a_reply_of_tokens_without_text_is_no_part_of_the_prompt_that_is_sent_again(model):
    """Control tokens are not shown, so that the text up to the end of such a reply is that of its prompt."""
    model.says("<|im_start|><|im_start|>told")
    for path, fields, length in (
        ("/v1/responses", {"input": "no text", "max_output_tokens": 1}, "input_tokens"),
        ("/v1/chat/completions", {"messages": [user("no text")], "max_tokens": 1}, "prompt_tokens"),
        ("/v1/messages", {"messages": [user("no text")], "max_tokens": 1}, None),
    ):
        answers = [model.server.http.post(path, json=fields | {"temperature": 0}).json() for _ in range(3)]
        assert len({answer["agentcache"]["prompt_tokens"] for answer in answers}) == 1, answers
        assert length is None or answers[0]["usage"][length] == answers[0]["agentcache"]["prompt_tokens"]


ODD = (
    '{"input": "\\ud83d"}', '{"input": "a', '{"other": 1}', '{"city" : "R\\u00f8ros", "n": 1.0}', '{"city": "R\\u00',
    "{bad json", "null", '"text"', "[1]", "{}", "{",
)  # fmt: skip


@pytest.mark.parametrize("name", ["weather", "patch"])
@pytest.mark.parametrize("arguments", ODD)
def test_calls_that_are_cut_or_odd_are_known_again_by_what_their_client_was_told(model, name, arguments):
    """Wherever a client keeps the history: it sends back what it got, which need not be what was written."""
    model.says(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}')
    asked = {"input": [user("odd")], "tools": TOOLS, "temperature": 0, "max_output_tokens": 40}
    first = make(Responses(model.server), **asked)
    (call,) = first["output"]
    after = make(Responses(model.server), **asked | {"input": [user("odd"), call, *results_of(first)]})
    anthropics = [{"name": "weather", "input_schema": CITY}, {"name": "patch", "input_schema": CITY}]
    sent = {"messages": [user("odd")], "tools": anthropics, "temperature": 0, "max_tokens": 40}
    told = model.server.http.post("/v1/messages", json=sent).json()
    (block,) = told["content"]
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
    sent["messages"] += [{"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
    following = model.server.http.post("/v1/messages", json=sent).json()
    for answer, before in ((after, first), (following, told)):
        known = before["agentcache"]["prompt_tokens"] + before["usage"]["output_tokens"] - 1
        assert answer["agentcache"]["source"] == "transcript"
        assert answer["agentcache"]["cached_tokens"] >= known
