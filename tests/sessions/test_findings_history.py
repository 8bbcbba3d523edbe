"""A conversation whose earlier messages are no longer what they were: told by the reply that was generated in it."""

from __future__ import annotations

import pytest
from scripted_folder import CORPUS, write_scripted_folder
from session_calls import Calls
from tiny_folder import VOCAB
from tiny_tokenizer import train_tokenizer

IM_END = VOCAB - 1
SYSTEM = {"role": "system", "content": "the agent sends the same long beginning again and again"}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """After its prompt it says the first half of the corpus, and after some of that the rest of it."""
    tokenizer = train_tokenizer(CORPUS, VOCAB)
    reply = list(dict.fromkeys(tokenizer.encode(CORPUS[0][:58]).ids))
    last = tokenizer.encode("<|im_start|>assistant\n").ids[-1]
    return write_scripted_folder(tmp_path_factory.mktemp("said"), [last, *reply, IM_END], eos=IM_END)


def talked(client: Calls, *questions: str) -> list[dict[str, str]]:
    """The first reply is begun by the client, so that it is another one than those behind it."""
    body = {
        "model": client.server.engine.info.model_name,
        "system": SYSTEM["content"],
        "max_tokens": 60,
        "temperature": 0,
    }
    begun = [user(questions[0]), {"role": "assistant", "content": "values and"}]
    first = client.call("POST", "/v1/messages", {**body, "messages": begun})
    assert first["agentcache"]["findings"] == []
    messages = [
        SYSTEM,
        user(questions[0]),
        {"role": "assistant", "content": "values and" + first["content"][0]["text"]},
    ]
    for question in questions[1:]:
        messages.append(user(question))
        reply = client.chat(messages, max_tokens=60)
        assert reply["agentcache"]["findings"] == []
        messages.append(reply["choices"][0]["message"])
    return messages


FIRST, SECOND = "Why does the parser fail? Say it in short words.", "Run the tests again and tell me what fails."


def edited(history):
    return [SYSTEM, user(FIRST.replace("parser", "lexer")), *history[2:]]


def dropped(history):
    return [SYSTEM, *history[3:]]


def compacted(history):
    return [SYSTEM, user("Before that, much was said."), *history[4:]]


def inserted(history):
    return [SYSTEM, user("Mind the rules of this house."), *history[1:]]


def spaced(history):
    return [SYSTEM, user(FIRST.replace(" parser", "  parser")), *history[2:]]


CHANGES = {
    "AC401": (edited, "warning", "waste"),
    "AC402": (dropped, "warning", "waste"),
    "AC403": (compacted, "info", "legitimate"),
    "AC404": (inserted, "warning", "waste"),
    "AC204": (spaced, "warning", "waste"),
}


@pytest.mark.parametrize("code", CHANGES)
def test_a_history_that_changed_is_named(serve, folder, code):
    change, severity, verdict = CHANGES[code]
    with serve(folder) as client:
        history = talked(client, FIRST, SECOND)
        reply = client.chat([*change(history), user("and then?")], max_tokens=2)
        (found,) = [finding for finding in reply["agentcache"]["findings"] if finding["code"] != "AC501"]
        assert (found["code"], found["severity"], found["verdict"]) == (code, severity, verdict)
        assert found["location"]["path"] == "messages[1].content" and found["tokens_lost"] > 16


def test_a_stamp_that_is_not_replayed_as_it_was_sent_is_a_time(serve, folder):
    with serve(folder) as client:
        history = talked(client, "[10:30:05] " + FIRST, SECOND)
        for text, code in (("[10:31:47] " + FIRST, "AC101"), (FIRST, "AC401")):
            reply = client.chat([SYSTEM, user(text), *history[2:], user("and then?")], max_tokens=2)
            told = [finding["code"] for finding in reply["agentcache"]["findings"]]
            assert [each for each in told if each != "AC501"] == [code]


def test_another_conversation_in_which_the_same_was_replied_is_none_that_changed(serve, folder):
    """Both were answered here, each grows, and neither is the other with an edit."""
    with serve(folder) as client:
        one, other = talked(client, FIRST, SECOND), [SYSTEM]
        for question in ("Which file is it?", SECOND, "and then?"):
            other.append(user(question))
            reply = client.chat(other, max_tokens=60)
            assert {finding["code"] for finding in reply["agentcache"]["findings"]} <= {"AC501"}
            other.append(reply["choices"][0]["message"])
        assert len(one) == 5
