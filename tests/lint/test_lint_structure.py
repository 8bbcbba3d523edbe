"""What the rules about structure share: who goes on with what, what comes again, which change of a text is small."""

from __future__ import annotations

import pytest
from twin_parts import REPLIES, TASKS, TOOLS, assistant, call, result, steps, system, tool, user

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.parting import Parting, part
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.records import Record
from agentcache.lint.structure.conversations import agent_of, goes_on, renders_further, same_agent
from agentcache.lint.structure.histories import Change, shift_of
from agentcache.lint.structure.replays import replayed, same_value
from agentcache.lint.structure.settings import changed_fields, changed_options, with_options_of
from agentcache.lint.structure.small_changes import is_small
from agentcache.lint.structure.tool_lists import in_order_of, names_of, tools_parting, with_tools
from agentcache.lint.structure.words import brief, counted, cut, line_of, listed

SAID = steps(3)  # system, user, reply, user, reply, user
THANKS = [assistant(REPLIES[2]), user("Thanks.")]


@pytest.fixture(scope="module")
def maker(tokenizer_folder) -> PromptMaker:
    return PromptMaker(ChatRenderer(Tokenizer.from_folder(tokenizer_folder)), 16)


def parting(maker, earlier, later, *, session: int | None = 0, replay: bool = False, more=(None, None)) -> Parting:
    prompts = [
        maker.make(Record("run.jsonl", line, {"messages": messages, **(fields or {})}))
        for line, (messages, fields) in enumerate(zip((earlier, later), more), 1)
    ]
    found = part(*prompts, session, replay=replay)
    assert found is not None
    return found


OTHER_TASK = user("Mend the parser.")


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        pytest.param(SAID[:2], [SAID[0], OTHER_TASK, *SAID[2:4]], False, id="another conversation of the agent"),
        pytest.param(SAID[:4], [SAID[0], OTHER_TASK, *SAID[2:]], True, id="an edited question"),
        pytest.param(SAID[:4], [*SAID[:3], user("Stop.")], False, id="a fork"),
        pytest.param(SAID[:4], [*SAID[:3], user("Stop."), assistant("I stop."), user("Go on.")], True, id="a longer fork"),
        pytest.param(SAID, [system("Be brief."), *SAID[1:], *THANKS], True, id="another system text"),
        pytest.param(SAID, [system("Be brief."), SAID[1]], False, id="another agent is asked the same"),
        pytest.param(SAID[:4], [SAID[0], *SAID[3:]], True, id="a window"),
    ],
)  # fmt: skip
def test_a_conversation_that_goes_on_repeats_a_reply_and_is_longer(maker, earlier, later, expected):
    assert goes_on(parting(maker, earlier, later)) is expected
    assert not goes_on(parting(maker, earlier, later, session=None))


def test_agents_are_known_by_their_system_text_whatever_the_time(maker):
    found = parting(
        maker, [system("It is 10:30:05. Be brief."), user("A")], [system("It is 10:31:07. Be brief."), user("A")]
    )
    assert same_agent(found) and agent_of(found.later) != 0
    assert not same_agent(parting(maker, [system("Be brief."), user("A")], [system("Be long."), user("A")]))
    assert agent_of(parting(maker, [user("A")], [user("B")]).later) == 0


def test_a_candidate_must_bring_the_prompts_further_together(maker):
    found = parting(maker, SAID, [SAID[0], OTHER_TASK, *SAID[2:]])
    assert renders_further(found, {"messages": SAID})
    assert not renders_further(found, {"messages": [SAID[0], user("Nothing.")]})
    assert not renders_further(found, {"messages": []})


@pytest.mark.parametrize(
    ("earlier", "later", "change"),
    [
        pytest.param(SAID, [SAID[0], *SAID[3:], assistant(REPLIES[2]), user(TASKS[3])], Change.DROPPED, id="dropped"),
        pytest.param(
            SAID, [*SAID[:1], user("[2 earlier messages omitted]"), *SAID[3:], *THANKS], Change.DROPPED, id="marked"
        ),
        pytest.param(SAID[:4], [*SAID[:1], user("Be brief."), *SAID[1:]], Change.INSERTED, id="put in"),
        pytest.param(
            [*SAID[:3], user("Be brief."), SAID[3]], [*SAID, user("Be brief."), user("Now.")], Change.MOVED, id="wandering"
        ),
        pytest.param([*SAID[:3], user("Be brief."), SAID[3]], SAID, Change.MOVED, id="taken out again"),
        pytest.param(
            SAID, [SAID[0], user("Summary of our conversation: all is mended."), *SAID[5:], assistant("Yes."), user("Good.")],
            Change.COMPACTED, id="compacted",
        ),
        pytest.param(SAID, [SAID[0], user("Summary of what was done: all is mended.")], Change.COMPACTED, id="nothing is kept"),
        pytest.param(SAID, [SAID[0], user("Please write a summary of our work.")], None, id="asked for a summary"),
        pytest.param(SAID, [*SAID[:2], assistant("No."), *SAID[3:4]], None, id="another reply"),
        pytest.param(SAID, [SAID[0], user("What is a page?"), assistant("Tokens."), SAID[3]], None, id="other talk"),
    ],
)  # fmt: skip
def test_what_became_of_the_history(maker, earlier, later, change):
    shift = shift_of(parting(maker, earlier, later))
    assert (None if shift is None else shift.change) is change


def test_other_sessions_and_other_models_are_not_compared(maker):
    later = [SAID[0], OTHER_TASK, *SAID[2:], assistant(REPLIES[2]), user("Thanks.")]
    assert shift_of(parting(maker, SAID, later)).change is Change.EDITED
    assert shift_of(parting(maker, SAID, later, session=None)) is None
    assert shift_of(parting(maker, SAID, later, more=({"model": "a"}, {"model": "b"}))) is None


def test_replies_are_paired_where_all_turns_have_one_shape(maker):
    said = [system(), user("Read."), assistant("", call(1)), result(1)]
    again = [system(), user("Read."), assistant("", call(2)), result(2), assistant("Done."), user("Thanks.")]
    template = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
    printing = PromptMaker(ChatRenderer(maker.tokenizer, template), 16)
    assert [pair.number for pair in replayed(parting(printing, said, again))] == [0, 1, 2, 3]
    assert replayed(parting(printing, said, again[:4])) == []
    other = [*again[:2], assistant("", call(2, "run_tests", "{}")), *again[3:]]
    assert replayed(parting(printing, said, other)) == []


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ('{"a":1}', '{"a": 1}', True),
        ('{"a": 1, "b": 2}', '{"b": 2.0, "a": 1}', True),
        ('{"a": 1}', {"a": 1}, True),
        (None, "{}", True),
        ("", "{}", True),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a"', '{"a"', False),
        ("[" * 100_000, "[" * 100_000, False),
    ],
)
def test_arguments_are_compared_as_values(was, now, expected):
    assert same_value(was, now) is expected


def test_settings_change_only_for_a_conversation(maker):
    later = [*SAID, *THANKS]

    def changed(one, other, messages=later):
        return set(changed_fields(parting(maker, SAID, messages, more=(one, other))))

    assert changed({"model": "a"}, {"model": "b"}) == {"model"}
    assert changed({"model": "a:x"}, {"model": "a:y"}) == {"adapter"}
    assert changed({"model": "a", "lora": "x"}, {"model": "b", "lora": "y"}) == {"model"}
    assert changed({"cache_salt": "x"}, {}) == {"cache_salt"}
    assert changed({}, {"model": "a"}) == set()
    assert changed({"model": "a"}, {"model": "b"}, SAID) == set()


def test_options_are_put_back_one_by_one():
    earlier, later = ({"chat_template_kwargs": options} for options in ({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}))
    assert sorted(changed_options(earlier, later)) == ["b", "c"]
    assert with_options_of(later, earlier, ["b", "c"]) == earlier
    assert with_options_of(later, {}, ["a", "b", "c"]) == {}
    assert later == {"chat_template_kwargs": {"a": 1, "b": 3, "c": 4}}


def test_tools_are_ordered_like_names_that_may_repeat():
    tools = [tool("b", "1"), tool("a"), tool("b", "2")]
    assert names_of(in_order_of(tools, ["b", "b", "a"])) == ("b", "b", "a")
    assert names_of(in_order_of(tools, ["a"])) == ("a", "b", "b")
    assert with_tools({"tools": tools, "x": 1}, []) == {"x": 1}


def test_tools_are_compared_within_one_program(maker):
    later = [*SAID, *THANKS]
    one, other = {"tools": TOOLS}, {"tools": TOOLS[::-1]}
    assert tools_parting(parting(maker, SAID, later, more=(one, other))).goes_on
    assert not tools_parting(parting(maker, SAID, later, session=None, more=(one, other))).goes_on
    elsewhere = [system("Be brief."), user("A")]
    assert tools_parting(parting(maker, SAID, elsewhere, session=None, more=(one, other))) is None
    assert tools_parting(parting(maker, SAID, elsewhere, more=(one, one))) is None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("Now: 2026-11-29 10:30:05.", "Now: 2026-11-29 10:31:47.", True),
        ("Run 7f3a91bc of the day.", "Run 91bc7f3a of the day.", True),
        ("At most 100 lines.", "At most 200 lines.", True),
        ("Reads a file.", "Reads a  file.\n", True),
        ("Caf\u00e9 menus.", "Cafe\u0301 menus.", True),
        ("Open: mail.", "Open: mail, calendar.", False),
        ("Reads a file.", "Writes a file.", False),
    ],
)
def test_what_is_filled_in_or_respelled_is_small(before, after, expected):
    assert is_small(before, after) is expected


def test_words_for_people():
    assert listed(list("abcdefgh"), 3) == "a, b, c and 5 more"
    assert listed(["a"]) == "a"
    assert counted(1, "message") == "1 message" and counted(2, "message") == "2 messages"
    assert cut("a\n b" * 100, 10) == "a ba ba b…"
    assert brief({"b": 1, "a": 2}) == "{b, a}" and brief([1.0]) == "[1.0]"
    assert line_of({"role": "assistant", "content": "", "tool_calls": [call(1)]}) == "assistant: calls read_file"
