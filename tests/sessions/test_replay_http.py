"""Replies with reasoning and tool calls, over HTTP: what was drawn is found in the cache, whoever sends it back and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live import drain, live_server
from replay_templates import THINKING, TOOLS
from scripted_folder import write_scripted_folder
from session_calls import Calls, asked, cached, said
from tiny_folder import VOCAB

IM_START, IM_END = VOCAB - 2, VOCAB - 1
PIECES = (
    "<think>\n", "I must ", "look.", "\n</think>\n\n", "I will.",
    "<tool_call> {", ' "arguments":{ ', '"path" :"a.py",\t', '"line":7.0', "} , ", '"name":"read"', ' }</tool_call>',
)  # fmt: skip
ARGUMENTS = '{ "path" :"a.py",\t"line":7.0}'
SYSTEM = {"role": "system", "content": "You are a careful agent."}


def _name_fillers(folder: Path) -> list[int]:
    """Give tokens of no use the pieces as their text, so that a reply can be drawn in a way of its own; their ids."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text("utf-8"))
    ids = []
    for piece, token in zip(PIECES, (t for t in data["added_tokens"] if "filler" in t["content"]), strict=False):
        token["content"] = piece
        ids.append(token["id"])
    path.write_text(json.dumps(data), "utf-8")
    assert len(ids) == len(PIECES)
    return ids


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_scripted_folder(folder, [0], THINKING)
    ids = _name_fillers(folder)
    from agentcache.chat.tokenizer import Tokenizer

    last = Tokenizer.from_folder(folder).encode("<|im_start|>assistant\n")[-1]
    write_scripted_folder(folder, [last, *ids, IM_END], THINKING, IM_END)
    assert _name_fillers(folder) == ids
    with live_server(folder, num_pages=512, home=tmp_path_factory.mktemp("home")) as server:
        yield Calls(server)
        drain(server)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def ask(client, messages, **fields):
    return client.chat(messages, tools=TOOLS, max_tokens=40, **fields)


def continues(reply, before) -> bool:
    """Everything that was read and drawn before is there again, and all but its last token was cached."""
    whole = [*asked(before), *said(before), IM_END]
    return asked(reply)[: len(whole)] == whole and cached(reply) == len(whole) - 1


def message_of(reply):
    return reply["choices"][0]["message"]


def test_a_whole_history_with_calls_and_reasoning_is_read_from_the_cache(client):
    messages = [SYSTEM, user("go")]
    before = ask(client, messages)
    message = message_of(before)
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "read", "arguments": ARGUMENTS} and message["content"] == "I will."
    for turn in range(4):
        rewritten = {"name": "read", "arguments": json.dumps(json.loads(ARGUMENTS))}
        sent = {"id": f"toolu_{turn}", "type": "function", "function": rewritten}
        messages += [{"role": "assistant", "content": "I will.", "tool_calls": [sent]}]
        last = len(messages) - 1  # the token that ended it was never computed
        messages += [{"role": "tool", "tool_call_id": sent["id"], "content": f"line {turn}"}]
        if turn % 2:
            messages.append(user("and?"))
        body = {"messages": messages, "tools": TOOLS}
        rendered = client.call("POST", "/v1/chat/completions/render", body)
        reply = ask(client, messages)
        assert continues(reply, before) and reply["agentcache"]["source"] == "transcript"
        miss = reply["agentcache"]["miss"]
        assert miss is None or (miss["code"], miss["message_index"]) == ("cold", last)
        assert rendered["token_ids"] == asked(reply) and rendered["source"] == "transcript"
        before = reply
    edited = json.loads(json.dumps(messages))
    edited[2]["tool_calls"][0]["function"]["arguments"] = '{"path": "b.py"}'
    other = ask(client, edited)
    assert other["agentcache"]["source"] == "template" and other["agentcache"]["miss"]["code"] == "diverged"
    assert other["agentcache"]["miss"]["message_index"] in (2, 3)
    elsewhere = ask(client, messages, cache_salt="s")
    assert elsewhere["agentcache"]["source"] == "template"


def test_a_miss_behind_replayed_replies_names_its_message(client):
    messages = [SYSTEM, user("one")]
    first = ask(client, messages)
    call = message_of(first)["tool_calls"][0]
    told = {"role": "assistant", "content": "I will.", "tool_calls": [call]}
    answers = [
        {"role": "tool", "tool_call_id": call["id"], "content": text} for text in ("keys and values", "keys and pages")
    ]
    ask(client, [*messages, told, answers[0]])
    reply = ask(client, [*messages, told, answers[1]])
    miss = reply["agentcache"]["miss"]
    assert miss["code"] == "diverged" and (miss["message_index"], miss["path"]) == (3, "messages[3].content")
    points = reply["agentcache"]["alignment"]["share_points"]
    assert points[-1]["path"] == "messages[3].content"
    (later,) = {message_of(reply)["tool_calls"][0]["id"]}
    more = [*messages, told, answers[1], {**told, "tool_calls": [{**call, "id": later}]}]
    more += [{"role": "tool", "tool_call_id": later, "content": "one"}]
    third = ask(client, more)
    fourth = ask(client, [*more[:-1], {**more[-1], "content": "another"}])
    assert continues(third, reply)
    assert fourth["agentcache"]["miss"]["message_index"] == 5


def test_a_session_goes_on_from_calls_and_reasoning(client):
    session = client.create(system=SYSTEM["content"], tools=TOOLS)
    before = client.say(session, "begin", max_tokens=40)
    told = message_of(before)
    assert client.call("GET", f"/v1/sessions/{session}?include=messages")["messages"][-1] == told
    history = [SYSTEM, user("begin"), told]
    for turn in range(3):
        new = [{"role": "tool", "tool_call_id": told["tool_calls"][0]["id"], "content": f"other {turn}"}]
        if turn == 1:
            new.append(user("and?"))
        reply = client.chat(new, session=session, max_tokens=40)
        assert continues(reply, before) and reply["agentcache"]["findings"] == []
        before, told = reply, message_of(reply)
        history += [*new, told]
    (fork,) = client.fork(session)
    client.do(session, "snapshot", name="calls")
    restored = client.create(from_snapshot="calls")
    whole = ask(client, [*history, user("more")])
    assert continues(whole, before)
    for each in (fork, restored, session):
        assert asked(client.say(each, "more", max_tokens=40)) == asked(whole)
    client.do(session, "rollback", to_turn=2)
    again = client.chat([{"role": "tool", "tool_call_id": history[4]["tool_calls"][0]["id"], "content": "x"}, user("and?")],
                        session=session, max_tokens=40)  # fmt: skip
    assert again["agentcache"]["findings"] == [] and again["agentcache"]["source"] == "transcript"


@pytest.mark.parametrize("form", [1, 2])
def test_a_snapshot_of_an_older_format_still_loads(client, form):
    session = client.create(system=SYSTEM["content"], tools=TOOLS)
    first = client.say(session, "old", max_tokens=40)
    client.do(session, "snapshot", name="old")
    (path,) = Path(client.server.settings.home).glob("snapshots/*/old.json")
    data = json.loads(path.read_text("utf-8"))
    assert data["format"] == 3 and len(data["transcript"]["replies"]) == 1
    if form == 1:
        del data["transcript"]["replies"], data["head"]["transcript"]["replies"]
    for turn in data["turns"]:
        del turn["added"], turn["turn_id"]
    path.write_text(json.dumps(data | {"format": form}), "utf-8")
    restored = client.create(from_snapshot="old")
    reply = client.say(restored, "more", max_tokens=40)
    assert asked(reply)[: len(asked(first))] == asked(first)
    path.write_text(json.dumps(data | {"format": 4}), "utf-8")
    assert "another format" in client.refused(500, "POST", "/v1/sessions", {"from_snapshot": "old"})["message"]


def test_every_choice_is_known_and_a_stop_string_cuts_where_it_was_shown(client):
    messages = [SYSTEM, user("twice")]
    reply = ask(client, messages, n=2)
    for choice in reply["choices"]:
        told = choice["message"]
        answer = {"role": "tool", "tool_call_id": told["tool_calls"][0]["id"], "content": "yes"}
        after = ask(client, [*messages, told, answer])
        assert asked(after)[: len(asked(reply))] == asked(reply) and cached(after) > len(asked(reply))
    messages = [SYSTEM, user("stop")]
    cut = ask(client, messages, stop=["will."])
    assert message_of(cut)["content"] == "I "
    after = ask(client, [*messages, message_of(cut), user("more")])
    kept = [*asked(cut), *said(cut)[:4]]
    assert asked(after)[: len(kept)] == kept and after["agentcache"]["source"] == "transcript"
