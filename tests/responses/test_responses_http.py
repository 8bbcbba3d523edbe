"""The Responses API of a running server: shapes, conversations, the cache behind them, and what is refused."""

from __future__ import annotations

import json
import time

import pytest
from response_calls import checked, lasting, text_of

TOOL = {
    "type": "function",
    "name": "read",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string", "maxLength": 4}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "strict": True,
}
LONG = "the cache keeps pages of keys and values and the agent sends the same long beginning again and again. " * 3


def test_a_stream_ends_with_the_response_that_a_whole_answer_is(api):
    whole = api.create("tell me", max_output_tokens=24)
    events = api.stream("tell me", max_output_tokens=24)
    end = events[-1]["response"]
    assert lasting(end) == lasting(whole)
    assert whole["status"] == "incomplete"
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in whole["output"]] == ["incomplete"]
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == text_of(whole)
    assert whole["usage"]["output_tokens"] == 24
    assert end["agentcache"]["cached_tokens"] == end["usage"]["input_tokens_details"]["cached_tokens"]


def test_forced_calls_stream_as_they_are_answered(api):
    asked = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 80}
    whole = api.create("read it", **asked)
    events = api.stream("read it", **asked)
    assert lasting(events[-1]["response"]) == lasting(whole)
    (call,) = whole["output"]
    assert (call["type"], call["name"], call["status"]) == ("function_call", "read", "completed")
    deltas = [e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call["arguments"]
    assert whole["tools"] == [TOOL]


def test_a_conversation_goes_on_from_exactly_what_was_generated(api):
    first = api.create(LONG, max_output_tokens=20)
    second = api.create("and then?", previous_response_id=first["id"])
    report = second["agentcache"]
    assert report["source"] == "transcript"
    spoken = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    assert report["cached_tokens"] == spoken - 1  # the last token that was drawn was never run
    third = api.create("and?", previous_response_id=second["id"], stream=False)
    assert third["agentcache"]["cached_tokens"] == second["usage"]["total_tokens"] - 1
    listed = api.get(f"{third['id']}/input_items", order="asc")["data"]
    assert [item["role"] for item in listed] == ["user", "assistant", "user", "assistant", "user"]
    assert listed[1]["content"][0]["text"] == text_of(first)


def test_a_tool_conversation_goes_on_with_ids_and_without(api):
    asked = {"tools": [TOOL], "max_output_tokens": 80}
    first = api.create(LONG, tool_choice={"type": "function", "name": "read"}, **asked)
    (call,) = first["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "it says hello"}
    kept = api.create([result], previous_response_id=first["id"], tool_choice="none", **asked)
    sent = api.create([{"role": "user", "content": LONG}, call, result], tool_choice="none", **asked)
    assert text_of(kept) == text_of(sent)
    assert kept["usage"]["input_tokens"] == sent["usage"]["input_tokens"]
    assert kept["agentcache"]["cached_tokens"] >= first["usage"]["total_tokens"] - 2
    by_reference = [{"role": "user", "content": LONG}, {"type": "item_reference", "id": call["id"]}, result]
    assert text_of(api.create(by_reference, tool_choice="none", **asked)) == text_of(sent)


def test_instructions_are_those_of_one_response(api):
    first = api.create("hello", instructions="Be brief.")
    second = api.create("go on", previous_response_id=first["id"])
    bare = api.http.post("/v1/responses/input_tokens", json={"input": "go on", "previous_response_id": first["id"]})
    assert bare.json() == {"object": "response.input_tokens", "input_tokens": second["usage"]["input_tokens"]}
    again = api.create("go on", previous_response_id=first["id"], instructions="Be brief.")
    assert again["usage"]["input_tokens"] > second["usage"]["input_tokens"]
    assert again["agentcache"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1
    assert second["instructions"] is None


def test_responses_are_kept_read_and_deleted_by_their_own_key(api):
    made = api.create("keep it", metadata={"a": "b"})
    assert api.get(made["id"]) == made
    yours = {"authorization": "Bearer yours"}
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
        found = api.http.request(method, f"/v1/responses/{made['id']}{path}", headers=yours)
        assert (found.status_code, found.json()["error"]["code"]) == (404, "response_not_found")
    body = {"input": "a", "previous_response_id": made["id"]}
    assert api.http.post("/v1/responses", json=body, headers=yours).status_code == 404
    cancelled = api.http.post(f"/v1/responses/{made['id']}/cancel")
    assert cancelled.status_code == 400
    assert api.http.delete(f"/v1/responses/{made['id']}").json()["deleted"] is True
    assert api.http.get(f"/v1/responses/{made['id']}").status_code == 404
    api.refused(404, "previous_response_id", previous_response_id=made["id"])


def test_nothing_is_kept_of_a_response_that_is_not_to_be_stored(api):
    made = api.create("forget it", store=False)
    assert made["store"] is False
    assert api.http.get(f"/v1/responses/{made['id']}").status_code == 404


def test_pages_of_input_items(api):
    made = api.create([{"role": "user", "content": str(i)} for i in range(5)])
    page = api.get(f"{made['id']}/input_items", limit=2)
    assert [item["content"][0]["text"] for item in page["data"]] == ["4", "3"]
    assert page["has_more"]
    rest = api.get(f"{made['id']}/input_items", after=page["last_id"])
    assert [item["content"][0]["text"] for item in rest["data"]] == ["2", "1", "0"]
    assert not rest["has_more"]


def test_logprobs_are_told_with_the_text_they_belong_to(api):
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "max_output_tokens": 6}
    whole = api.create("tell me", **asked)
    events = api.stream("tell me", **asked)
    (part,) = whole["output"][0]["content"]
    assert len(part["logprobs"]) == 6
    assert {len(entry["top_logprobs"]) for entry in part["logprobs"]} == {2}
    told = [entry for e in events if e["type"] == "response.output_text.delta" for entry in e["logprobs"]]
    assert told == part["logprobs"] == events[-1]["response"]["output"][0]["content"][0]["logprobs"]
    assert "logprobs" not in api.create("tell me")["output"][0]["content"][0]


def test_prewarming_computes_the_prompt_and_generates_nothing(api):
    text = "Prewarm this. " + LONG
    warm = api.create(text, prompt_cache_options={"prewarm": True})
    assert (warm["status"], warm["output"], warm["usage"]["output_tokens"]) == ("completed", [], 0)
    report = warm["agentcache"]
    assert report["computed_tokens"] + report["cached_tokens"] == warm["usage"]["input_tokens"]
    events = api.stream(text + "streamed", prompt_cache_options={"prewarm": True})
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.completed"]
    used = api.create(text)
    assert used["agentcache"]["cached_tokens"] == used["usage"]["input_tokens"] - 1
    follow = api.create("now", previous_response_id=warm["id"])
    assert follow["agentcache"]["cached_tokens"] > warm["usage"]["input_tokens"] // 16 * 16 - 16


def test_a_comparison_says_where_prompts_part_and_why(api):
    def compare(input, **fields):
        return api.create(input, prompt_cache_options={"comparison_response_id": base["id"]}, **fields)

    base = api.create([{"role": "user", "content": LONG}, {"role": "user", "content": "first"}], tools=[TOOL])
    same = compare("go on", previous_response_id=base["id"], tools=[TOOL])
    assert same["prompt_cache_diagnostics"] == {"type": "cache_hit"}
    assert same["agentcache"]["comparison"] is None
    other = compare([{"role": "user", "content": LONG}, {"role": "user", "content": "second"}], tools=[TOOL])
    told, detail = other["prompt_cache_diagnostics"], other["agentcache"]["comparison"]
    assert (told["type"], told["reason"]) == ("cache_miss", "input_changed")
    assert told["cache_missed_tokens"] + told["comparison_reusable_tokens"] == other["usage"]["input_tokens"]
    assert detail["path"] == "input[1].content"
    assert detail["response_id"] == base["id"]
    assert detail["at_token"] == told["comparison_reusable_tokens"]
    assert detail["was"].startswith("first"[:1])
    shorter = compare([{"role": "user", "content": "first"}], tools=[TOOL])
    assert shorter["prompt_cache_diagnostics"]["reason"] == "context_compacted"
    tools = compare("x", tools=[{**TOOL, "name": "write"}])["prompt_cache_diagnostics"]
    assert tools["reason"] == "tools_changed"
    salted = compare("x", tools=[TOOL], cache_salt="s")
    assert salted["agentcache"]["comparison"]["code"] == "salt"
    unknown = api.create("x", prompt_cache_options={"comparison_response_id": "resp_x"})
    assert unknown["prompt_cache_diagnostics"] == {"type": "comparison_response_not_found"}


def test_a_miss_names_the_responses_own_fields(api):
    api.create(LONG, instructions="You are A.")
    other = api.create(LONG, instructions="You are B.")
    assert other["agentcache"]["miss"]["path"] == "instructions"


def test_structured_text_is_json_of_its_schema(api):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
              "required": ["n"], "additionalProperties": False}  # fmt: skip
    text = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}, "verbosity": "low"}
    made = api.create("a number", text=text, max_output_tokens=60)
    assert made["status"] == "completed"
    assert text_of(made).replace(" ", "")[:5] == '{"n":'
    assert made["text"] == text


def test_an_engines_failure_in_a_stream_is_an_error_and_a_failed_response(api):
    root = {"authorization": "Bearer root"}
    body = {"input": "fail", "temperature": 0, "max_output_tokens": 1900, "stream": True}
    text = ""
    with api.http.stream("POST", "/v1/responses", json=body) as reply:
        for part in reply.iter_text():
            if not text:  # what fails before the first byte is a status
                armed = api.http.post("/debug/fault", json={"site": "forward", "at": 1}, headers=root)
                assert armed.status_code == 200
            text += part
    events = checked(text)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["error"]["message"] == events[-2]["message"]
    failed = events[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert api.get(failed["id"]) == failed
    assert "failed" in api.refused(400, "previous_response_id", previous_response_id=failed["id"])["message"]


def test_a_response_is_found_while_it_is_made_and_gone_when_its_client_hung_up(api):
    body = {"input": "long", "max_output_tokens": 1900, "stream": True}
    with api.http.stream("POST", "/v1/responses", json=body) as reply:
        lines = reply.iter_lines()  # the connection is closed with it
        data = next(line for line in lines if line.startswith("data: "))
        made = json.loads(data.removeprefix("data: "))["response"]["id"]
        assert api.get(made)["status"] == "in_progress"
        error = api.refused(400, "previous_response_id", previous_response_id=made)
        assert "in_progress" in error["message"]
    deadline = time.monotonic() + 10
    while api.http.get(f"/v1/responses/{made}").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_responses_expire(api):
    made = api.create("expire")
    moved = api.http.post("/debug/clock", json={"advance_s": 90_000}, headers={"authorization": "Bearer root"})
    assert moved.status_code == 200
    api.refused(404, "previous_response_id", previous_response_id=made["id"])


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": "a"}, {"type": "mcp_call"}]}, "input[1].type"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"session": "s"}, "session"),
        ({"truncation": "sometimes"}, "truncation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"tools": [{"type": "file_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}, {**TOOL, "parameters": 1}]}, "tools[1].parameters"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "no"}}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": 1}}}, "text.format.schema"),
        ({"n": 2}, "n"),
        ({"input": LONG * 200}, "input"),
    ],
)
def test_what_is_wrong_is_named_as_the_client_named_it(api, fields, param):
    error = api.refused(400, param, **{"input": "hello", **fields})
    assert "messages" not in error["message"]


def test_other_models_are_not_found(api):
    api.refused(404, "model", model="gpt-6")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"reasoning": {"effort": 3}}, "reasoning.effort: got 3, expected text"),
        ({"text": {"verbosity": []}}, "text.verbosity: got [], expected text"),
        (
            {"prompt_cache_options": {"prewarm": "no"}},
            'prompt_cache_options.prewarm: got "no", expected true or false: prepare the cache and generate nothing',
        ),
    ],
)
def test_a_field_inside_another_is_told_what_is_expected_of_itself(api, fields, told):
    assert api.post(**fields).json()["error"]["message"] == told


@pytest.mark.parametrize(
    ("params", "field"), [({"limit": 0}, "limit"), ({"limit": "all"}, "limit"), ({"order": "up"}, "order")]
)
def test_what_is_wrong_in_a_query_is_named_with_what_was_got(api, params, field):
    error = api.http.get("/v1/responses/resp_1/input_items", params=params).json()["error"]
    assert error["param"] == field
    assert error["message"].startswith(f'{field}: got "{params[field]}", input should be ')
