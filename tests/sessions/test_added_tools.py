"""Where templates of different families take what is told of tools that come later, and that every later turn repeats it."""

from __future__ import annotations

from typing import Any

import pytest
from replay_talk import write_replay_tokenizer
from replay_templates import FAMILIES, HEADERS, STRICT, TOOLS, Family, call, result
from tiny_tokenizer import CHATML

from agentcache.chat.messages import normalize_messages
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.replies.formats import choose_format
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.splice import ChatInput
from agentcache.chat.tool_text import Announcement, announcement, with_announcement
from agentcache.sessions.added_tools import AddedTools
from agentcache.sessions.naming import name_conversation
from agentcache.sessions.session import Figures, Head, Home, Session
from agentcache.sessions.transcript import Reply, render_fresh, text_around

SYSTEM = {"role": "system", "content": "You are a careful agent."}
READ, RUN = TOOLS
EOM = (
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{%- for call in message.tool_calls %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}"
    "{%- if message.tool_calls %}<eom>{% else %}<|im_end|>{% endif %}\n{% endfor %}"
    "{%- if tools %}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Ends a message that calls in another way than one that does not."""
PAIRING = EOM.replace(
    "{%- for message in messages %}",
    "{%- for message in messages %}{% if message.role != 'tool' or messages[loop.index0 - 1].tool_calls %}",
    1,
).replace("<|im_end|>{% endif %}\n{% endfor %}", "<|im_end|>{% endif %}\n{% endif %}{% endfor %}")
"""And leaves out a result without a call."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_replay_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Life:
    """A session without a server; every prompt must go on from what was read and drawn before."""

    def __init__(self, family: Family, tokenizer: Any, tools: list[dict[str, Any]] | None = None) -> None:
        self.family = family
        self.renderer = ChatRenderer(tokenizer, family.template)
        self.format = choose_format(family.template)
        head = Head(False, (SYSTEM,), tools)
        self.session = Session("s", Home(b"owner", b"root"), head, 60, 0.0, head.transcript)

    def turn(
        self, messages: list[dict[str, Any]], said: ReplyMessage, new: list[dict[str, Any]] | None = None, *, breaks: bool = False
    ) -> str:  # fmt: skip
        """The text of the prompt."""
        session, tokenizer = self.session, self.renderer.tokenizer
        known = session.transcript
        added = None
        if new:
            added = AddedTools(tuple(new), announcement(new, None if session.tools else self.format.example()))
        with session.begin(messages, added=added) as turn:
            prompt = turn.make_prompt(self.renderer)
            if not breaks and session.turns:
                assert prompt.broken_at is None and prompt.transcript.ids[: len(known)] == known.ids
            raw = self.family.write(said)
            reply = Reply(raw, tokenizer.encode(raw), tokenizer.special_tokens.get(self.family.end), said)
            transcript = prompt.transcript.with_reply(len(turn.all_messages), prompt.header, reply, tokenizer)
            turn.commit(reply, transcript, Figures(1, 0, 1, 1, None), 0.0)
        return prompt.transcript.text


def said(text: str) -> ReplyMessage:
    return ReplyMessage(text)


def calls(*numbers: int, name: str = "read") -> ReplyMessage:
    return ReplyMessage("", "", [call(number, name) for number in numbers])


@pytest.mark.parametrize("head", [None, [READ]], ids=["no tools before", "tools before"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_later_turn_repeats_what_was_told_with_a_question(name, head, tokenizer):
    life = Life(FAMILIES[name], tokenizer, head)
    life.turn([user("one")], said("first"))
    text = life.turn([user("two")], calls(1, name="run"), [RUN])
    (added,) = [turn.added for turn in life.session.turns if turn.added]
    told = text.index(added.told)
    assert text.count(added.told) == 1 and text.index("two", told) > told
    life.turn([result(call(1, "run"), "it ran")], said("second"))
    last = life.turn([user("three")], said("third"))
    assert last.count(added.told) == 1 and "it ran" in last and last.startswith(text)


@pytest.mark.parametrize("head", [None, [READ]], ids=["no tools before", "tools before"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_later_turn_repeats_what_was_told_behind_results(name, head, tokenizer):
    family = FAMILIES[name]
    life = Life(family, tokenizer, head)
    numbers = (1, 2) if family.many_calls else (1,)
    life.turn([user("one")], calls(*numbers))
    results = [result(call(number), f"result {number}") for number in numbers]
    text = life.turn(results, calls(3, name="run"), [RUN])
    assert text.index('"run"') > text.index(f"result {numbers[-1]}") > 0
    life.turn([result(call(3, "run"), "it ran")], said("second"), [])
    last = life.turn([user("three")], said("third"))
    assert "it ran" in last and last.count("From now on you can call") == 1 and last.startswith(text)
    assert [turn.messages[:-1] for turn in life.session.turns][1] == tuple(results)


def test_where_no_user_may_speak_behind_a_result_the_result_tells(tokenizer):
    messages = [SYSTEM, user("one"), calls_message(1), result(call(1), "done")]
    told = announcement([RUN], None)
    announced = [*messages[:3], *with_announcement(messages[3:], told)]
    strict = ChatRenderer(tokenizer, STRICT).render_text(announced).text
    assert f"[CONTENT]done\n\n{told}[/RESULT]" in strict
    own = ChatRenderer(tokenizer, HEADERS).render_text(announced).text
    assert f'"done"<|eot|><|header|>user<|end_header|>\n\n{told}<|eot|>' in own
    plain = ChatRenderer(tokenizer, "{% for m in messages %}{% if m.role in ['user', 'assistant', 'system'] %}"
                                    "<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}")  # fmt: skip
    assert plain.render_text(announced).text.endswith(f"<tool_response>done</tool_response>\n\n{told}")


def calls_message(number: int) -> dict[str, Any]:
    made = call(number)
    function = {"name": made.name, "arguments": '{"path": "a.py"}'}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": made.id, "type": "function", "function": function}],
    }


@pytest.mark.parametrize(
    "messages,place",
    [
        ([user("a"), user("b")], 0),
        ([result(call(1)), result(call(2))], 1),
        ([result(call(1)), user("b"), user("c")], 1),
        ([{"role": "system", "content": "x"}], 0),
    ],
)
def test_the_first_words_of_a_user_carry_it_or_else_the_last_message(messages, place, tokenizer):
    told = Announcement("TOLD")
    announced = with_announcement(messages, told)
    assert ["agentcache_announced" in message for message in announced] == [n == place for n in range(len(messages))]
    text = ChatRenderer(tokenizer, CHATML).render_text(announced).text
    assert text.count("TOLD") == 1 and "agentcache" not in text
    if messages[place]["role"] == "user":
        assert f"TOLD\n\n{messages[place]['content']}<|im_end|>" in text
    else:
        assert text.endswith("<|im_start|>user\nTOLD<|im_end|>\n<|im_start|>assistant\n") or "\n\nTOLD" in text


def test_it_stands_before_parts_and_alone_where_nothing_else_is_said(tokenizer):
    renderer = ChatRenderer(tokenizer, CHATML)
    for content, shown in (([{"type": "text", "text": "a"}], "TOLD\n\na"), (None, "TOLD"), ("", "TOLD")):
        announced = with_announcement([{"role": "user", "content": content}], Announcement("TOLD"))
        assert f"user\n{shown}<|im_end|>" in renderer.render_text(announced).text


def test_a_template_that_counts_messages_is_rendered_anew_with_what_was_told(tokenizer):
    family = Family("{{ messages | length }} messages\n" + CHATML, "<|im_end|>")
    life = Life(family, tokenizer)
    life.turn([user("one")], said("first"), [READ])
    text = life.turn([user("two")], said("second"), [RUN], breaks=True)
    assert life.session.turns[1].replaced is not None
    assert [text.count(turn.added.told) for turn in life.session.turns if turn.added] == [1, 1]
    with life.session.begin([user("three")]) as turn:
        prompt = turn.make_prompt(life.renderer)
        assert prompt.broken_at is not None and prompt.transcript.text.count("From now on") == 2


def test_the_messages_of_a_prompt_are_found_with_what_was_told_beside_them(tokenizer):
    life = Life(FAMILIES["plain"], tokenizer)
    life.turn([user("one")], said("first"))
    life.turn([user("two")], said("second"), [READ])
    with life.session.begin([user("three")]) as turn:
        prompt = turn.make_prompt(life.renderer)
        first = ChatInput(turn.all_messages[:4], add_generation_prompt=False)
        text = text_around(prompt.transcript, first, life.renderer)
    assert prompt.transcript.text.startswith(text) and "From now on" in text and text.endswith("two<|im_end|>\n")


def test_a_conversation_with_news_is_another_one_than_the_same_without():
    messages = [SYSTEM, user("one")]
    told = [SYSTEM, *with_announcement([user("one")], announcement([READ], None))]
    plain, news = (name_conversation(b"root", None, normalize_messages(each)) for each in (messages, told))
    assert plain[:2] == news[:2] and plain[2] != news[2]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_example_of_a_call_is_one(name):
    call_format = choose_format(FAMILIES[name].template)
    known = [{"type": "function", "function": {"name": "name_of_the_tool"}}]
    parser = call_format.parser(known)
    reply = ReplyMessage()
    for piece in [*parser.push(call_format.example()), *parser.flush()]:
        reply.add(piece)
    assert [(call.name, call.arguments) for call in reply.calls] == [("name_of_the_tool", '{"argument": "value"}')]
    assert not reply.content


@pytest.mark.parametrize("template", [EOM, PAIRING], ids=["ends", "pairs"])
def test_results_reach_the_prompt_where_a_message_with_calls_ends_in_another_way(template, tokenizer):
    life = Life(Family(template, "<|im_end|>"), tokenizer)
    life.turn([user("one")], calls(1))
    text = life.turn([result(call(1), "what came back")], said("so"), breaks=True)
    assert "what came back" in text
    assert "what came back" in life.turn([user("two")], said("done"), breaks=True)
    with life.session.begin([user("three")]) as turn:
        chat_text = render_fresh(life.renderer, ChatInput(turn.all_messages)).transcript.text
    assert "what came back" in chat_text
