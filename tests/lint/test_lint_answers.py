"""What was answered beside a request: whole, streamed, wrapped, refused; and whose request it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_bodies import ANTHROPIC, CHAT, RESPONSES

from agentcache.lint.readers import read_records
from agentcache.lint.records import Place, Record, Reply, Unreadable, Usage
from agentcache.lint.rules.ac904_usage import RULE
from agentcache.lint.usage_watch import UsageWatch

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
SAID = {"role": "assistant", "content": "Hello."}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path":  "a.py"}'}}
USAGE = {"prompt_tokens": 90, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}}
WHOLE = {"id": "chatcmpl-1", "choices": [{"index": 0, "message": SAID, "finish_reason": "stop"}], "usage": USAGE}


def read(*values: Any) -> list[Record | Unreadable]:
    return list(read_records([json.dumps(value).encode() for value in values], "x.jsonl"))  # type: ignore[arg-type]


def one(value: Any) -> Record:
    (found,) = read(value)
    assert isinstance(found, Record), found
    return found


def answered(answer: Any, body: Any = ASKED) -> Record:
    return one({"body": body, "response": answer})


def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta}], **more}


@pytest.mark.parametrize(
    "line",
    [
        {**ASKED, "response": WHOLE},
        {"request": ASKED, "response": WHOLE},
        {"request": {"url": "/v1/chat/completions", "body": ASKED}, "response": {"status": 200, "body": WHOLE}},
        {"custom_id": "1", "url": "/v1/chat/completions", "body": ASKED, "response": {"status_code": 200, "body": WHOLE}},
        {"body": ASKED, "response": json.dumps(WHOLE)},
        {"body": ASKED, "response": [
            chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo."}),
            {"choices": [], "usage": USAGE},
        ]},
        {"body": ASKED, "response": "".join(
            f"data: {text}\n\n" for text in (json.dumps(chunk({"content": "Hello."}, usage=USAGE)), "[DONE]")
        )},
    ],
)  # fmt: skip
def test_an_answer_is_found_however_it_was_recorded(line):
    found = one(line)
    assert found.reply == Reply(SAID)
    assert found.usage == Usage(90, 80)


@pytest.mark.parametrize("key", ["reply", "completion", "response"])
def test_a_reply_alone_is_text_or_a_message(key):
    for reply in ("Hello.", SAID, {"message": SAID}):
        found = one({**ASKED, key: reply})
        assert found.reply == Reply(SAID)
        assert found.usage == Usage()
    assert one({**ASKED, key: '{"a": 1}'}).reply.message["content"] == '{"a": 1}'  # a reply may be JSON
    assert one({**ASKED, key: "[1, 2]"}).reply.message["content"] == "[1, 2]"


def test_requests_without_an_answer_have_neither_reply_nor_usage():
    refused = {"status_code": 429, "body": {"error": {"message": "slow down"}}}
    for line in (ASKED, {"body": ASKED}, {"body": ASKED, "response": None}, {"body": ASKED, "response": refused}):
        found = one(line)
        assert (found.reply, found.usage) == (None, None)
    for odd in ({"choices": []}, {"choices": [{"message": {"content": 5}}]}, {"output": [{"type": 5}]}, [], {}, [1], 7):
        assert answered(odd).reply is None


def test_calls_and_reasoning_are_kept_as_they_were_generated():
    message = {**SAID, "content": None, "reasoning_content": "so", "tool_calls": [CALL]}
    assert answered({"choices": [{"message": message}]}).reply.message == message
    streamed = [
        chunk({"reasoning": "s"}),
        chunk({"reasoning": "o"}),
        chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "read", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"path":  '}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "list", "arguments": "{}"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"a.py"}'}}]}),
    ]
    reply = answered(streamed).reply.message
    assert reply["reasoning"] == "so"
    assert reply["tool_calls"][0] == CALL
    assert reply["tool_calls"][1]["function"] == {"name": "list", "arguments": "{}"}


def test_token_ids_are_read_where_they_are():
    whole = {**WHOLE, "prompt_token_ids": [1, 2, 3]}
    whole["choices"] = [{**WHOLE["choices"][0], "token_ids": [4, 5]}]
    found = answered(whole)
    assert (found.prompt_ids, found.reply.token_ids) == ([1, 2, 3], [4, 5])
    streamed = [{**chunk({"content": "a"}), "prompt_token_ids": [1, 2, 3]}, chunk({"content": "b"})]
    streamed[0]["choices"][0]["token_ids"], streamed[1]["choices"][0]["token_ids"] = [4], [5]
    found = answered(streamed)
    assert (found.prompt_ids, found.reply.token_ids) == ([1, 2, 3], [4, 5])
    for odd in ([1, "2"], [True], [-1], "12", []):
        assert answered({**WHOLE, "prompt_token_ids": odd}).prompt_ids is None


BLOCKS = [
    {"type": "thinking", "thinking": "so", "signature": "s"},
    {"type": "text", "text": "Hello."},
    {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}},
]
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "content": BLOCKS,
    "usage": {"input_tokens": 4, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 6, "output_tokens": 5},
}  # fmt: skip


def events() -> list[dict[str, Any]]:
    """``MESSAGE`` as a stream."""
    usage = {"input_tokens": 4, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 6, "output_tokens": 1}
    pieces = [
        ({"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "so"}),
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello."}),
        ({**BLOCKS[2], "input": {}}, {"type": "input_json_delta", "partial_json": '{"path": "a.py"}'}),
    ]
    told: list[dict[str, Any]] = [{"type": "message_start", "message": {**MESSAGE, "content": [], "usage": usage}}]
    for index, (block, delta) in enumerate(pieces):
        told.append({"type": "content_block_start", "index": index, "content_block": block})
        told.append({"type": "content_block_delta", "index": index, "delta": delta})
        told.append({"type": "content_block_stop", "index": index})
    return [*told, {"type": "message_delta", "usage": {"output_tokens": 5}}, {"type": "message_stop"}]


@pytest.mark.parametrize(
    "answer", [MESSAGE, events(), "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events())]
)
def test_anthropics_answers_are_messages_of_a_chat(answer):
    found = answered(answer, ANTHROPIC)
    arguments = {"path": "a.py"}
    assert found.reply.message == {
        "role": "assistant", "content": "Hello.", "reasoning_content": "so",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}}],
    }  # fmt: skip
    assert found.usage == Usage(90, 80)  # three kinds of input


def test_a_batch_of_anthropics_keeps_requests_under_params():
    found = one({"custom_id": "1", "params": ANTHROPIC, "result": {"type": "succeeded", "message": MESSAGE}})
    assert (found.dialect, found.usage) == ("anthropic", Usage(90, 80))
    assert found.places.find(("messages", 0, "content"), 0) == Place("params.system[1].text", 0)


# -- responses that go on from others


def response(name: str, *output: dict[str, Any]) -> dict[str, Any]:
    figures = {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 80}}
    return {"id": name, "object": "response", "status": "completed", "output": list(output), "usage": figures}


def told(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def test_a_response_goes_on_from_an_earlier_line():
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    completed = [{"type": "response.completed", "response": response("resp_2", told("Done.", id="msg_2"))}]
    first, second, third, branch = read(
        {
            "body": {"input": "Look.", "instructions": "Be brief."},
            "response": response("resp_1", told("I look."), call),
        },
        {"body": {"input": [output], "previous_response_id": "resp_1"}, "response": completed},
        {"body": {"input": "And?", "previous_response_id": "resp_2", "instructions": "Be kind."}},
        {"body": {"input": [output, {"type": "item_reference", "id": "msg_2"}], "previous_response_id": "resp_1"}},
    )
    assert (first.usage, first.reply.message["content"]) == (Usage(90, 80), "I look.")
    assert [message["role"] for message in second.body["messages"]] == ["user", "assistant", "tool"]
    assert [m.get("content") for m in third.body["messages"]] == ["Be kind.", "Look.", "I look.", "x", "Done.", "And?"]
    assert third.places.find(("messages", 2, "content"), 1) == Place("body.previous_response_id")
    assert third.places.find(("messages", 5, "content"), 1) == Place("body.input", 1)
    assert [m["content"] for m in branch.body["messages"]][-1] == "Done."
    assert branch.places.find(("messages", 3, "content"), 1) == Place("body.input[1]")


def test_a_response_that_no_line_has_is_named_and_the_rest_is_read():
    found = read(
        {"body": {"input": "a", "previous_response_id": "resp_9"}},
        {"body": RESPONSES},
        {"body": {"input": [{"type": "item_reference", "id": "x"}]}},
    )
    assert [type(one) for one in found] == [Unreadable, Record, Unreadable]
    assert found[0].reason.startswith('body.previous_response_id: got "resp_9"')
    assert found[2].reason.startswith("body.input[0].id")


# -- whose request it is


@pytest.mark.parametrize(
    "line",
    [
        {**ASKED, "session": "s1"},
        {**ASKED, "metadata": {"session_id": "s1"}},
        {"session_id": "s1", "body": ASKED},
        {"session": "s1", "request": ASKED},
        {"headers": {"X-Session-Id": "s1"}, "body": ASKED},
        {"request": {"headers": {"X-Claude-Code-Session-Id": "s1"}, "body": ASKED}},
        {**ASKED, "max_tokens": 1, "metadata": {"user_id": '{"device_id": "d", "session_id": "s1"}'}},
    ],
)
def test_the_session_is_read_where_clients_name_it(line):
    assert one(line).session == "s1"


def test_claude_codes_user_id_ends_with_the_session():
    user = "user_0a1b_account_1234_session_0f8fad5b-d9cb-469f-a165-70867728950e"
    found = one({**ANTHROPIC, "metadata": {"user_id": user}})
    assert (found.session, found.scope) == ("0f8fad5b-d9cb-469f-a165-70867728950e", None)


def test_keys_and_users_keep_requests_apart():
    assert one({**ASKED, "prompt_cache_key": "k"}).scope == "k"
    assert one({**ASKED, "user": "u"}).scope == "u"
    assert one({**ASKED, "prompt_cache_key": "k", "user": "u"}).scope not in ("k", "u", None)
    assert one({**ANTHROPIC, "metadata": {"user_id": "u"}}).scope == "u"
    assert one(ASKED).scope is one(ASKED).session is None


def test_a_record_may_ask_not_to_be_told_of_something():
    wanted = {"ignore": {"AC101": "a test of clocks"}}
    for line in ({"agentcache_lint": wanted, "body": ASKED}, {"body": {**ASKED, "agentcache_lint": wanted}}):
        assert one(line).ignored == {"AC101": "a test of clocks"}
    assert one({**ASKED, "agentcache_lint": {"ignore": ["AC1", "AC5"]}}).ignored == {"AC1": "", "AC5": ""}
    for odd in (5, {"ignore": 5}, {"ignore": [5]}, None):
        assert one({**ASKED, "agentcache_lint": odd}).ignored == {}


# -- AC904


def watched(*records: Record) -> list[Any]:
    watch = UsageWatch()
    for record in records:
        watch.add(record)
    return watch.findings()


def test_usage_is_missed_once_a_file_and_only_where_there_are_answers():
    full, silent = answered(WHOLE), answered({"choices": WHOLE["choices"]})
    vague = answered({**WHOLE, "usage": {"prompt_tokens": 90}})
    assert watched(one(ASKED), one(CHAT)) == watched(full, one(ASKED), full) == []
    (finding,) = watched(full, silent, vague, silent)
    assert (finding.code, finding.name, finding.severity) == (RULE.code, "usage-not-reported", "info")
    assert "4, 2 without usage, 1 without cached tokens" in finding.message
    assert finding.location.record == 1 and finding.tokens_lost is None
