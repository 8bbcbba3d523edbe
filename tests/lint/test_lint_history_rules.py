"""AC207, AC208 and AC401 to AC405: histories and replies that are not what they were."""

from __future__ import annotations

import json

import pytest
from explained import explained, loss, told
from twin_parts import (
    REPLIES,
    TASKS,
    TOOLS,
    assistant,
    call,
    called,
    from_request,
    growing,
    only_request,
    result,
    sent,
    steps,
    system,
    user,
)

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.parting import part
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.records import Record
from agentcache.lint.structure.histories import Change, shift_of
from agentcache.lint.structure.recomputed import tokens_between

ARGUMENTS = '{"path":"parser.py","limit":3}'


def edit(index, content):
    return lambda request: request["messages"][index].update(content=content)


def insert(index, message):
    return lambda request: request["messages"].insert(index, message)


# -- what is lost


def test_an_edit_costs_what_stands_behind_it(tokenizer_folder):
    sound = growing()
    defective = from_request(sound, 2, edit(1, "Mend the parser."))
    [finding] = explained(tokenizer_folder, defective)
    assert told([finding]) == [("AC401", 3, "messages[1].content")]
    assert (finding.before, finding.after) == ("Fix the parser.", "Mend the parser.")
    assert finding.tokens_lost == pytest.approx(loss(tokenizer_folder, sound, defective), abs=3)


def test_an_edit_is_told_once_for_a_conversation_however_long_it_goes_on(tokenizer_folder):
    defective = from_request(growing(5), 2, edit(1, "Mend the parser."))
    [finding] = explained(tokenizer_folder, defective)
    assert finding.location.record == 3


def test_a_window_costs_what_it_keeps_each_time_that_it_moves(tokenizer_folder):
    requests = growing(5)
    for request in requests:
        request["messages"] = request["messages"][:1] + request["messages"][1:][-5:]
    [finding] = explained(tokenizer_folder, requests)
    assert (finding.code, finding.severity, finding.location.record) == ("AC402", "warning", 4)
    kept = [assistant(REPLIES[1]), user(TASKS[2]), assistant(REPLIES[2]), user(TASKS[3])]
    again = [
        rendered_tokens(tokenizer_folder, messages)
        for messages in ([user(TASKS[1]), *kept[:2]], [user(TASKS[2]), *kept[2:]])
    ]
    assert finding.tokens_lost == pytest.approx(sum(again), abs=12)  # two questions begin alike
    assert "2 earlier messages are left out" in finding.message


def rendered_tokens(folder, messages):
    return len(ChatRenderer(Tokenizer.from_folder(folder)).render(messages, add_generation_prompt=False).token_ids)


def test_most_of_a_history_left_out_at_once_is_a_note(tokenizer_folder):
    whole = growing(5)
    said = steps(5)
    cut = {"messages": [*said[:1], *said[-2:], assistant("They are in order."), user("Thanks.")]}
    [finding] = explained(tokenizer_folder, [*whole, cut])
    assert (finding.code, finding.severity) == ("AC402", "info")
    assert "in one go" in finding.message


def test_what_is_compacted_is_priced_once_and_then_appended_to(tokenizer_folder):
    said = steps(5)
    summary = user("Summary of the conversation: the parser, the lexer and the printer are mended.")
    short = [
        *said[:1],
        summary,
        *said[-2:],
        assistant("They are in order."),
        user("Thanks."),
        assistant("Bye."),
        user("Bye."),
    ]
    requests = [*growing(5), *sent(*short)[-2:]]
    [finding] = explained(tokenizer_folder, requests, codes=frozenset({"AC403"}))
    assert (finding.verdict, finding.severity, finding.location.record) == ("legitimate", "info", 6)
    assert finding.tokens_lost == pytest.approx(rendered_tokens(tokenizer_folder, [summary, *said[-2:]]), abs=3)
    assert told(explained(tokenizer_folder, requests)) == []


def test_a_summary_that_is_written_anew_for_each_turn_is_a_window(tokenizer_folder):
    requests = growing(5)
    for number, request in enumerate(requests[3:], 3):
        summary = user(f"Summary of the conversation: {', '.join(TASKS[: number - 1])}")
        request["messages"] = [request["messages"][0], summary, *request["messages"][-5:]]
    [finding] = explained(tokenizer_folder, requests)
    assert (finding.code, finding.verdict) == ("AC402", "waste")


def test_a_note_that_is_put_in_and_taken_out_again_is_one_finding(tokenizer_folder):
    requests = only_request(growing(), 2, insert(3, user("Reminder: never edit generated files.")))
    assert [(f.code, f.location.record) for f in explained(tokenizer_folder, requests)] == [("AC404", 3)]


# -- replies


def replied(reply, *more):
    """A request, its reply, and the request that sends ``more`` back."""
    head = [system(), user("Why does the build fail?")]
    return [{"messages": head, "tools": TOOLS}, {"messages": [*head, *more], "tools": TOOLS}], [reply]


def test_arguments_are_compared_with_what_was_generated(tokenizer_folder):
    requests, replies = replied(
        assistant("", call(1, arguments=ARGUMENTS)),
        assistant("", call(1, arguments=json.dumps(dict(sorted(json.loads(ARGUMENTS).items()))))),
        result(1),
    )
    [finding] = explained(tokenizer_folder, requests, replies=replies)
    assert told([finding]) == [("AC207", 2, "messages[2].tool_calls[0].function.arguments")]
    assert finding.fix.applicability == "safe"


def test_other_arguments_are_an_edit_and_not_another_writing(tokenizer_folder):
    requests, replies = replied(
        assistant("Let me look.", call(1, arguments=ARGUMENTS)),
        assistant("Let me look.", call(1, arguments='{"path":"parser.py","limit":4}')),
        result(1),
    )
    findings = explained(tokenizer_folder, requests, replies=replies)
    assert "AC207" not in {finding.code for finding in findings}


def test_ids_are_compared_with_those_that_the_calls_came_with(tokenizer_folder):
    requests, replies = replied(
        assistant("", call(1), call(2, "run_tests", "{}")),
        assistant("", call(7), call(8, "run_tests", "{}")),
        result(7),
        result(8),
    )
    [finding] = explained(tokenizer_folder, requests, replies=replies)
    assert told([finding]) == [("AC208", 2, "messages[2].tool_calls[0].id")]
    assert (finding.before, finding.after, finding.fix.applicability) == ("call_1", "call_7", "safe")


def test_reasoning_is_compared_with_what_was_generated(tokenizer_folder):
    thought = "It splits at blanks, so tabs stay in the words, and the tests with tabs fail."
    requests, replies = replied(assistant("A tab.", reasoning=thought), assistant("A tab."), user("Mend it."))
    [finding] = explained(tokenizer_folder, requests, replies=replies)
    assert told([finding]) == [("AC405", 2, "messages[2].content")]
    assert finding.before == thought


def test_reasoning_that_the_template_does_not_print_may_be_left_out(tokenizer_folder):
    requests, replies = replied(assistant("A tab.", reasoning="I think."), assistant("A tab."), user("Mend it."))
    assert told(explained(tokenizer_folder, requests, replies=replies, template=None)) == []


def test_a_reply_that_was_edited_is_told_and_one_that_was_generated_anew_is_not(tokenizer_folder):
    generated = assistant(REPLIES[0])
    edited, replies = replied(generated, assistant(REPLIES[0].replace("It splits", "It now splits")), user("Thanks."))
    assert [f.code for f in explained(tokenizer_folder, edited, replies=replies)] == ["AC401"]
    other, _ = replied(generated, assistant("Hard to say; I would need to see a log of it."), user("Thanks."))
    assert told(explained(tokenizer_folder, other, replies=replies)) == []


# -- what is no defect


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([*growing(4), *growing(4)[1:]], id="asked again from the second turn on"),
        pytest.param(
            [*growing(3), *sent(*steps(2), assistant("Another reply to the same question."), user("Good."))[-2:]],
            id="another reply to the second question",
        ),
        pytest.param(
            [*growing(3), *sent(system(), user(TASKS[0]), assistant("No."), user(TASKS[1]), assistant(REPLIES[1]), user("Why?"))],
            id="the same questions in another branch",
        ),
        pytest.param([*growing(4), {"messages": [*steps(2)[:-1], user("Forget it.")]}], id="back to the first reply"),
        pytest.param([*growing(4), {"messages": [steps(1)[0], user("What is a lexer?")]}], id="a new question"),
        pytest.param(
            [body for pair in zip(growing(4), growing(4, tools=TOOLS)) for body in pair][::2], id="every second request"
        ),
        pytest.param(
            [
                body
                for words in ("pear apple", "kiwi lime")
                for body in sent(
                    system(), user(f"Sort: {words}"), assistant(" ".join(sorted(words.split()))),
                    user("Sort: fig date"), assistant("date fig"), user("More?"),
                )
            ],
            id="two conversations with a question in common",
        ),
    ],
)  # fmt: skip
def test_forks_retries_and_other_conversations_are_in_order(tokenizer_folder, requests):
    assert told(explained(tokenizer_folder, requests)) == []


def test_branches_of_a_search_that_take_turns_are_in_order(tokenizer_folder):
    head = steps(2)
    branches = [
        sent(
            *head,
            assistant(f"Plan {n}: start with the {word}."),
            user("Go on."),
            assistant(f"Done with {word}."),
            user("Go on."),
        )[-2:]
        for n, word in enumerate(("lexer", "parser", "printer"))
    ]
    requests = [*growing(2), *(body for bodies in zip(*branches) for body in bodies)]
    assert told(explained(tokenizer_folder, requests, sessions=["s"] * len(requests))) == []


def test_calls_of_parallel_branches_have_their_own_ids(tokenizer_folder):
    head = [system(), user("Read it.")]
    requests = [
        {"messages": [*head, assistant("", call(number)), result(number)], "tools": TOOLS} for number in (1, 2, 3)
    ]
    assert told(explained(tokenizer_folder, [{"messages": head, "tools": TOOLS}, *requests])) == []


# -- parts


def test_shifts_are_named(tokenizer_folder):
    maker = PromptMaker(ChatRenderer(Tokenizer.from_folder(tokenizer_folder)), 16)
    said = steps(4)
    whole = maker.make(Record("a", 1, {"messages": said[:6]}))
    later = {
        Change.EDITED: [*said[:1], user("Mend the parser."), *said[2:]],
        Change.DROPPED: [*said[:1], *said[3:]],
        Change.INSERTED: [*said[:1], user("Be brief."), *said[1:]],
        None: [*said[:3], user("Stop.")],
    }
    for change, messages in later.items():
        parting = part(whole, maker.make(Record("a", 2, {"messages": messages})), 0)
        shift = shift_of(parting)
        assert (None if shift is None else shift.change) == change
    [dropped] = [m for c, m in later.items() if c is Change.DROPPED]
    parting = part(whole, maker.make(Record("a", 2, {"messages": dropped})), 0)
    assert tokens_between(parting, 1, len(dropped)) <= len(parting.later.tokens) - parting.token
    counts = [tokens_between(parting, 1, end) for end in range(1, len(dropped) + 1)]
    assert counts == sorted(counts) and counts[0] == 0


def test_called_conversations_with_a_window_lose_their_oldest_exchange(tokenizer_folder):
    requests = called(4)
    for request in requests:
        request["messages"] = request["messages"][:2] + request["messages"][2:][-4:]
    assert [f.code for f in explained(tokenizer_folder, requests)] == ["AC402"]
