"""Conversations that only grow never warn, however they branch, interleave and call tools."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from look_prompts import RULES, TOOLS, assistant, call, result, system, user

from agentcache_sdk import Turn
from agentcache_sdk._look import ClientLook
from agentcache_sdk._look.memory import MAX_TEXTS
from agentcache_sdk.types import Usage

Message = dict[str, Any]
LONG = "Please go on with the next file, and say for each function what it returns when it is given nothing. "
"""Long enough to be missed if it had to be computed again."""
TEXTS = st.sampled_from(["go on", "and the lexer?", LONG, LONG * 3, f"{LONG}\nNow: 10:31:07", "1 2 3", "naïve\r\n", ""])
REPLIES = st.sampled_from(["Done.", LONG, LONG * 2, "It is 10:31:07.", "", "call"])
SYSTEMS = st.sampled_from([None, RULES, "You write release notes. " * 20, "Be brief."])


class Conversation:
    """One that sends its whole history with every turn, as it was said."""

    def __init__(self, look: ClientLook, messages: list[Message], tools: list[Any] | None) -> None:
        self.look, self.messages, self.tools = look, messages, tools

    def turn(self, said: list[Message], reply: Message, choices: int = 1) -> list[Any]:
        self.messages = [*self.messages, *said]
        glance = self.look.glance(json.loads(json.dumps(self.messages)), self.tools, {"model": "tiny"})
        glance.sending()
        found = list(glance.findings)
        turn = Turn(message=reply, usage=Usage(prompt_tokens=500, completion_tokens=9, total_tokens=509))
        others = [Turn(message=assistant(f"another {n}")) for n in range(1, choices)]
        found += glance.ended(turn.model_copy(update={"choices": [turn, *others]}))
        self.messages = [*self.messages, reply]
        return [*found, *(doubt.finding for doubt in glance.doubts)]

    def fork(self) -> Conversation:
        return Conversation(self.look, list(self.messages), self.tools)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_growing_conversations_never_warn(data: st.DataObject) -> None:
    look = ClientLook()
    conversations: list[Conversation] = []
    for _ in range(data.draw(st.integers(5, 14), "steps")):
        kind = data.draw(st.sampled_from(["new", "turn", "turn", "turn", "fork", "tools", "again", "back"]), "kind")
        if kind == "new" or not conversations:
            text = data.draw(SYSTEMS, "system")
            tools = data.draw(st.sampled_from([None, TOOLS]), "tools") if text != RULES else TOOLS
            conversations.append(Conversation(look, [system(text)] if text else [], tools))
        chosen = data.draw(st.sampled_from(conversations), "conversation")
        if kind == "fork":
            chosen = chosen.fork()
            conversations.append(chosen)
        if kind == "back":
            keep = data.draw(st.integers(0, len(chosen.messages)), "keep")
            ends = [n for n in range(keep + 1) if n == 0 or chosen.messages[n - 1]["role"] in ("assistant", "system")]
            chosen.messages = chosen.messages[: ends[-1]]
            if not chosen.messages:
                continue
        found = _one_step(data, chosen, kind)
        assert found == []


def _one_step(data: st.DataObject, chosen: Conversation, kind: str) -> list[Any]:
    text = data.draw(TEXTS, "text")
    if kind == "tools" and chosen.tools:
        ids = [f"call_{len(chosen.messages)}_{n}" for n in range(data.draw(st.integers(1, 3), "calls"))]
        calls = [call('{"path":  "a.py"}', call_id) for call_id in ids]
        found = chosen.turn([user(text)], assistant(None, tool_calls=calls, reasoning_content="Let me look. " * 20))
        return found + chosen.turn([result(LONG, call_id) for call_id in ids], assistant(data.draw(REPLIES, "reply")))
    found = chosen.turn([user(text)], assistant(data.draw(REPLIES, "reply")), data.draw(st.integers(1, 3), "choices"))
    if kind == "again":
        chosen.messages = chosen.messages[:-2]
        found += chosen.turn([user(text)], assistant(data.draw(REPLIES, "another reply")))
    return found


def test_calls_of_the_same_name_in_many_conversations_are_their_own() -> None:
    """Ids that are counted from 0 in each conversation, and tools that return the same to each."""
    look, found = ClientLook(), []
    conversations = [Conversation(look, [system(RULES)], TOOLS) for _ in range(MAX_TEXTS + 8)]
    for number, conversation in enumerate(conversations):
        found += conversation.turn(
            [user(f"Fix bug {number} of the parser, please.")], assistant(None, tool_calls=[call()])
        )
    for conversation in conversations:
        found += conversation.turn([result()], assistant(LONG))
    for conversation in conversations:
        found += conversation.turn([user(LONG)], assistant("Done."))
    assert found == []


def test_samples_of_one_prompt_are_all_its_replies() -> None:
    look = ClientLook()
    trunk = Conversation(look, [system(RULES), user("Name a colour.")], None)
    first, second = trunk.fork(), trunk.fork()
    assert first.turn([], assistant("Red. " * 30)) == []
    assert second.turn([], assistant("Blue. " * 30)) == []
    assert first.turn([user(LONG * 4)], assistant("Good.")) == []
    assert second.turn([user(LONG * 4)], assistant("Good.")) == []


def test_a_request_that_was_not_answered_is_no_earlier_request() -> None:
    look = ClientLook()
    old = [system(RULES), user(LONG * 4), assistant("Yes."), user(LONG * 5)]
    refused = look.glance(old, None, {})
    refused.sending()
    refused.failed()
    shorter = [old[0], *old[3:]]
    assert look.of_request(shorter, None, {}) == []
    assert [f.code for f in look.of_request([*old, assistant("No."), user("More?")], None, {})] == []


def test_memory_is_bounded_and_what_it_forgets_is_silent() -> None:
    look = ClientLook()
    for number in range(MAX_TEXTS + 8):
        look.of_request([user(f"{number} {'x' * 200_000}")], None, {})
    assert len(look.requests.texts) <= MAX_TEXTS
    assert look.requests.chars <= 4_000_000
    assert look.requests.chars == sum(request.chars for request in look.requests.texts.values())


def test_odd_bodies_are_the_servers_to_refuse() -> None:
    look = ClientLook()
    odd: list[Any] = [
        {},
        {"role": None, "content": 3},
        {"role": "user", "content": [1, {"type": "image_url", "image_url": {"url": "data:x"}}]},
        {"role": "assistant", "tool_calls": [None, {"function": None}, {"function": {"arguments": {"a": 1}}}]},
        {"role": "assistant", "tool_calls": "none"},
        {"role": "user", "content": "half \ud800 pair"},
        {"role": "user", "content": float("nan"), "extra": object()},
    ]
    loop: dict[str, Any] = {"role": "user"}
    loop["content"] = [loop]
    lists: list[Any] = [None, [], [{}], [{"type": "function", "function": None}], [3]]
    for messages in ([], odd, [*odd, loop]):
        for tools in lists:
            assert look.of_request(messages, tools, {"chat_template_kwargs": {"a": object()}}) == []


def test_examples_that_are_chosen_anew_for_each_request_are_no_history() -> None:
    look = ClientLook()
    examples = [(user(f"Sort example {n}. {LONG}"), assistant(f"Drawer {n}. {LONG}")) for n in range(6)]
    for chosen in ((0, 1, 2), (0, 3, 2), (1, 2, 5), (0, 2), (0, 4, 2), (5, 4, 3)):
        shots = [message for n in chosen for message in examples[n]]
        turn = Conversation(look, [system(RULES), *shots], None)
        assert turn.turn([user(f"Sort this. {LONG}")], assistant(f"Drawer {chosen}.")) == []
