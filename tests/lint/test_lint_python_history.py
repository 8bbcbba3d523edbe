"""What programs do to messages that they have sent, and what only looks like it."""

from __future__ import annotations

import pytest

from agentcache.lint.python import check_python

LOOP = """
def run(client, recall, summarize, tools, limit):
    messages = [{{"role": "system", "content": "You are helpful."}}]
    for step in range(10):
        messages.append({{"role": "user", "content": input()}})
        {body}
        reply = client.chat.completions.create(model="m", messages=messages)
        messages.append(reply.choices[0].message)
        {after}
"""


def in_loop(body: str = "pass", after: str = "pass") -> list[str]:
    """Codes for an agent loop with statements before and after its call."""
    indented = (part.replace("\n", "\n        ") for part in (body, after))
    source = LOOP.format(body=next(indented), after=next(indented))
    return [finding.code for finding in check_python(source, "agent.py")]


def test_an_append_only_loop_is_clean():
    assert in_loop() == []


@pytest.mark.parametrize(
    "body",
    [
        'messages[0]["content"] = recall(step)',
        'messages[0]["content"] += recall(step)',
        'messages[0]["content"] = f"You are helpful. {recall(step)}"',
        'messages[0] = {"role": "system", "content": recall(step)}',
        'messages[0].update({"content": recall(step)})',
        "messages[1].update(content=recall(step))",
        "messages[0].content = recall(step)",
        'if messages[0]["role"] == "system":\n    messages[0]["content"] = recall(step)',
    ],
)
def test_an_old_message_that_is_rewritten_in_each_turn_is_an_edit(body):
    assert in_loop(body) == ["AC401"]
    assert in_loop(after=body) == ["AC401"]


@pytest.mark.parametrize(
    "body",
    [
        'messages[-1]["content"] += recall(step)',
        'messages[0]["content"] = "You are helpful."',
        'if step == 0:\n    messages[0]["content"] = recall(step)',
        'messages[-1]["cache_control"] = {"type": "ephemeral"}',
        'messages[0]["name"] = recall(step)',
        'shown = [dict(message) for message in messages]\nshown[0]["content"] = recall(step)',
    ],
)
def test_an_edit_of_the_newest_message_or_with_the_same_text_is_none(body):
    assert in_loop(body) == []


@pytest.mark.parametrize(
    "after",
    [
        "messages = messages[-20:]",
        "messages = messages[:1] + messages[-limit:]",
        "messages = [messages[0], *messages[-20:]]",
        "messages[:] = messages[-20:]",
        "messages.pop(0)",
        "messages.pop(1)",
        "del messages[1]",
        "del messages[1:3]",
        "while len(messages) > limit:\n    messages.pop(1)",
        "if len(messages) > limit:\n    messages = messages[:1] + messages[-limit:]",
        "if len(messages) > 20:\n    messages = messages[:1] + messages[-19:]",
    ],
)
def test_messages_that_are_dropped_turn_by_turn_are_told(after):
    assert in_loop(after=after) == ["AC402"]


@pytest.mark.parametrize(
    "after",
    [
        "print(messages[-20:])",
        "last = messages[-1:]",
        "if len(messages) > 100:\n    messages = messages[:1] + messages[-10:]",
        "if len(messages) > 50:\n    messages = messages[:1] + [summarize(messages)] + messages[-25:]",
        "messages.pop()",
        "tools.pop(0)",
        "del messages[-1]",
        "recall(messages[-5:])",
    ],
)
def test_looking_at_some_messages_or_compacting_rarely_drops_none(after):
    assert in_loop(after=after) == []


@pytest.mark.parametrize(
    "body",
    [
        'messages.insert(0, {"role": "user", "content": recall(step)})',
        'messages.insert(1, {"role": "user", "content": recall(step)})',
        'messages.insert(-1, {"role": "user", "content": recall(step)})',
        'messages.insert(len(messages) - 1, {"role": "user", "content": recall(step)})',
    ],
)
def test_a_message_put_before_the_newest_one_is_told(body):
    assert in_loop(body) == ["AC404"]


@pytest.mark.parametrize(
    "body",
    [
        'messages.insert(len(messages), {"role": "user", "content": recall(step)})',
        'if messages[0]["role"] != "system":\n    messages.insert(0, {"role": "system", "content": "x"})',
        'if step == 0:\n    messages.insert(0, {"role": "system", "content": "x"})',
        "tools.insert(0, recall(step))",
    ],
)
def test_a_message_put_at_the_end_or_once_is_not(body):
    assert in_loop(body) == []


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ('for message in messages[:-4]:\n    message["content"] = "[left out]"', ["AC401"]),
        ('for index in range(len(messages) - 4):\n    messages[index]["content"] = "[left out]"', ["AC401"]),
        (
            'for index, old in enumerate(messages[1:-4]):\n    if old["role"] == "tool":\n        old["content"] = ""',
            ["AC401"],
        ),
        ('for message in messages[-4:]:\n    message["content"] = "[left out]"', []),
        ('for message in messages:\n    message["content"] = message["content"].strip()', []),
        ('if len(messages) > 50:\n    for message in messages[:-4]:\n        message["content"] = "[left out]"', []),
        ('for message in recall(step)[:-4]:\n    message["content"] = "[left out]"', []),
    ],
)
def test_texts_that_are_taken_away_message_by_message_are_edits(body, codes):
    assert in_loop(body) == codes


def test_a_list_made_anew_for_each_conversation_is_no_history():
    source = """
def score(client, rows):
    for row in rows:
        messages = [{"role": "user", "content": row}]
        messages.insert(0, {"role": "system", "content": row.rules})
        messages[0]["content"] = row.rules + "x"
        client.chat.completions.create(model="m", messages=messages)
"""
    assert check_python(source, "agent.py") == []


def test_the_window_is_found_in_a_helper_and_behind_names():
    source = """
def recent(items):
    return items[-12:]

def ask(client, history):
    kept = recent(history)
    messages = [{"role": "system", "content": "x"}] + kept
    return client.chat.completions.create(model="m", messages=messages)
"""
    (finding,) = check_python(source, "agent.py")
    assert (finding.code, finding.location.record, finding.location.path) == ("AC402", 3, "recent")


@pytest.mark.parametrize(
    "call",
    [
        'client.chat.completions.create(model="m", messages=[{"role": "user", "content": str(history[-5:])}])',
        'client.messages.create(model="m", system=history[0]["content"], messages=history[1:])',
        'client.responses.create(model="m", input=history[-3:], previous_response_id=last)',
        "count_tokens(messages=history[-5:])",
        "save(messages=history[-5:])",
        'client.chat.completions.create(model="m", messages=history[-len(results):])',
    ],
)
def test_a_slice_that_is_no_window_of_the_conversation_is_not_told(call):
    assert check_python(f"def ask(client, history, last, results):\n    return {call}\n", "agent.py") == []


def test_a_system_message_taken_from_the_front_is_sent_apart():
    source = """
def ask(client, messages):
    system = messages.pop(0)
    return client.messages.create(model="m", system=system["content"], messages=messages)
"""
    assert check_python(source, "agent.py") == []


def test_a_body_that_is_written_out_is_a_request():
    source = """
import requests

class Chat:
    def ask(self, text):
        self.messages.append({"role": "user", "content": text})
        body = {"model": "m", "messages": self.messages[-9:], "stream": True}
        return requests.post("http://localhost", json=body)
"""
    assert [finding.code for finding in check_python(source, "agent.py")] == ["AC402"]


def test_tools_chosen_by_the_turn_are_told_and_chosen_before_it_are_not():
    source = """
def run(client, messages, tools):
    usable = [tool for tool in tools if tool.enabled]
    for step in range(9):
        offered = [tool for tool in tools if tool.level <= step]
        reply = client.chat.completions.create(model="m", messages=messages, tools=offered)
        messages.append(reply.choices[0].message)
"""
    assert [finding.code for finding in check_python(source, "agent.py")] == ["AC301"]
    assert check_python(source.replace("tools=offered", "tools=usable"), "agent.py") == []


@pytest.mark.parametrize(
    ("model", "codes"),
    [
        ("random.choice(models)", ["AC601"]),
        ("models[step % len(models)]", ["AC601"]),
        ("next(ring)", ["AC601"]),
        ("models[0]", []),
        ("chosen", []),
        ("models.get(step)", []),
    ],
)
def test_models_that_take_turns_in_one_conversation_are_told(model, codes):
    source = f"""
import itertools, random

def run(client, messages, models):
    ring = itertools.cycle(models)
    chosen = random.choice(models)
    for step in range(9):
        messages.append(client.chat.completions.create(model={model}, messages=messages))
"""
    assert [finding.code for finding in check_python(source, "agent.py")] == codes


@pytest.mark.parametrize(
    ("between", "codes"),
    [
        ('messages[0]["content"] += " Be brief."', ["AC401"]),
        ('messages.insert(1, {"role": "user", "content": "Be brief."})', ["AC404"]),
        ('messages.append({"role": "user", "content": "Be brief."})', []),
        ("messages = messages[:1] + messages[-10:]", ["AC402"]),
        ("messages.pop(1)", []),
        ('messages = [{"role": "user", "content": text}]\n    messages[0]["content"] += "!"', []),
    ],
)
def test_between_two_calls_old_messages_stay_as_they_were(between, codes):
    source = f"""
def ask(client, text):
    messages = [{{"role": "system", "content": "You are helpful."}}, {{"role": "user", "content": text}}]
    messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
    {between}
    return client.chat.completions.create(model="m", messages=messages)
"""
    assert [finding.code for finding in check_python(source, "agent.py")] == codes


@pytest.mark.parametrize(
    ("argument", "codes"),
    [
        ('state["messages"][-8:]', ["AC402"]),
        ('[head] + state["messages"][-8:]', ["AC402"]),
        ('[head, *state["messages"][-8:]]', ["AC402"]),
        ('[head, *state["messages"]]', []),
        ('state["documents"][-8:]', []),
        ("str(state['messages'][-8:])", []),
    ],
)
def test_a_window_of_a_graphs_state_is_one_too(argument, codes):
    source = f"def call(llm, state, head):\n    return {{'messages': [llm.invoke({argument})]}}\n"
    assert [finding.code for finding in check_python(source, "agent.py")] == codes
