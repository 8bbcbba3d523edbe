"""What in a prompt's own text kept it from being reused, told with the answer."""

from __future__ import annotations

import json

import pytest
from findings_calls import (
    INTRO,
    KEYS,
    RULES,
    SYSTEM,
    Tenant,
    assistant,
    codes,
    findings,
    system,
    tool,
    user,
    waste,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live import live_server

from agentcache.chat.text import common_length
from agentcache.lint.finding import Finding
from agentcache.lint.rules import RULES as LINT_RULES
from agentcache.server.findings.codes import HELP, NAMES
from agentcache_sdk._codes import CODES


@pytest.fixture(scope="module")
def server(tiny):
    with live_server(tiny.folder, page_size=16, num_pages=4096, api_keys=KEYS) as running:
        yield running


def test_names_are_those_of_the_linter_and_of_the_client():
    assert {code: CODES[code].name for code in NAMES} == dict(NAMES)
    assert all(NAMES[rule.code] == rule.name for rule in LINT_RULES if rule.code in NAMES)
    assert set(NAMES) - set(HELP) == {"AC501"}


SLOTS = {
    "second": ("It is 10:30:05.", "It is 10:31:47.", "AC101", "error"),
    "minute": ("Now: 2026-05-04 10:30.", "Now: 2026-05-04 10:42.", "AC101", "error"),
    "day": ("Today is 2026-05-04.", "Today is 2026-05-05.", "AC101", "info"),
    "uuid": (
        "Run 3f2a1b4c-1111-4222-8333-444455556666.",
        "Run 9e8d1b4c-7777-4222-8333-444455556666.",
        "AC102",
        "error",
    ),
    "path": ("Work in /tmp/tmpab12cd34.", "Work in /tmp/tmpzz98yx76.", "AC102", "error"),
    "counter": ("[49% - 1,085/2,200 chars]", "[51% - 1,122/2,200 chars]", "AC103", "warning"),
    "name": ("You help Alice.", "You help Bob.", "AC103", "warning"),
    "blank": ("Be brief. ", "Be brief.", "AC204", "warning"),
    "line ends": ("Be brief.\r\nSo", "Be brief.\nSo", "AC204", "warning"),
    "accents": ("Meet at the caf\u00e9.", "Meet at the cafe\u0301.", "AC205", "warning"),
}


def placed(slot: str, place: str) -> str:
    return {"head": slot + RULES, "middle": INTRO + RULES + " " + slot + RULES, "end": INTRO + RULES + " " + slot}[
        place
    ]


@pytest.mark.parametrize("place", ["head", "middle", "end"])
@pytest.mark.parametrize("kind", SLOTS)
def test_what_changes_in_the_system_text_is_named_where_it_stands(tenant, kind, place):
    was, now, code, severity = SLOTS[kind]
    history = [user("What fails?"), assistant("The parser fails on the second line of the file."), user("Why?")]
    assert findings(tenant.chat(system(placed(was, place)), *history)) == []
    reply = tenant.chat(system(placed(now, place)), *history)
    (found,) = [Finding.model_validate(finding) for finding in findings(reply)]
    assert (found.code, found.severity, found.name) == (code, severity, NAMES[code])
    assert found.location.path == "messages[0].content" and found.location.char is not None
    miss = reply["agentcache"]["miss"]
    assert found.location.token == miss["at_token"] and found.location.page == miss["at_token"] // 16
    assert abs(found.location.char - common_length(placed(was, place), placed(now, place))) <= 2
    assert found.before != found.after and found.before and found.after
    assert found.tokens_lost_kind == "estimate"
    assert 16 <= found.tokens_lost <= reply["usage"]["prompt_tokens"] - miss["at_token"]


@pytest.mark.parametrize("kind", SLOTS)
def test_the_same_in_the_newest_message_is_no_finding(tenant, kind):
    was, now, _, _ = SLOTS[kind]
    assert findings(tenant.chat(system(SYSTEM), user(was + RULES))) == []
    assert waste(tenant.chat(system(SYSTEM), user(now + RULES))) == []


def test_a_slot_behind_which_nothing_is_equal_costs_nothing(tenant):
    tenant.chat(system(SYSTEM + " It is 10:30:05."), user("Why does it fail?"))
    assert waste(tenant.chat(system(SYSTEM + " It is 10:31:47."), user("Run the tests."))) == []


def test_plainly_different_prompts_may_begin_alike(tenant):
    tenant.chat(system("You are a pirate who sings of the sea all day and all night long."), user("hi"))
    other = "You are a poet. On 2026-05-04 you wrote about cake and rain and what comes after."
    assert codes(tenant.chat(system(other), user("hi"))) == []


def test_the_same_request_again_has_no_finding(tenant):
    messages = system("It is 10:30:05." + RULES), user("hi")
    assert [codes(tenant.chat(*messages)) for _ in range(3)] == [[], [], []]


TOOLS = [tool("read_file"), tool("run_tests", "runs the tests"), tool("say", "says what is wrong")]
TURNED = {"required": [], "properties": {"path": {"type": "string"}}, "type": "object"}
CHANGED = {
    "order": (TOOLS, TOOLS[::-1], "AC202", "tools"),
    "added": (TOOLS[:2], TOOLS, "AC301", "tools"),
    "removed": (TOOLS, TOOLS[:2], "AC301", "tools"),
    "schema": (TOOLS, [TOOLS[0], tool("run_tests", "runs all of the tests"), TOOLS[2]], "AC302", "tools[1]"),
    "numbers": ([tool("read", limit={"maximum": 1})], [tool("read", limit={"maximum": 1.0})], "AC201", "tools[0]"),
    "date": ([tool("read", "as of 2026-05-04 10:30")], [tool("read", "as of 2026-05-04 10:35")], "AC101", "tools[0]"),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_what_changes_in_the_tools_is_named(tenant, kind):
    was, now, code, path = CHANGED[kind]
    assert findings(tenant.chat(system(SYSTEM), user("hi"), tools=was)) == []
    (found,) = findings(tenant.chat(system(SYSTEM), user("and what else?"), tools=now))
    assert (found["code"], found["location"]["path"]) == (code, path)
    assert found["before"] != found["after"] and found["tokens_lost"] > 16


def test_the_keys_of_a_schema_in_another_order_are_told_from_another_schema(tenant):
    turned = json.loads(json.dumps(TOOLS))
    turned[1]["function"]["parameters"] = TURNED
    tenant.chat(system(SYSTEM), user("hi"), tools=TOOLS)
    (found,) = findings(tenant.chat(system(SYSTEM), user("hi"), tools=turned))
    assert (found["code"], found["location"]["path"]) == ("AC201", "tools[1]")
    assert "properties" in found["before"] and "required" in found["after"]


def test_tools_that_a_conversation_loses_are_named_and_other_agents_are_not(tenant):
    history = [user("What fails?"), assistant("The parser fails on the second line of the file."), user("Why?")]
    tenant.chat(system(SYSTEM), *history, tools=TOOLS)
    (found,) = findings(tenant.chat(system(SYSTEM), *history))
    assert found["code"] == "AC301" and "read_file, run_tests, say removed" in found["message"]
    assert waste(tenant.chat(system(SYSTEM), user("book a flight"), tools=[tool("search"), tool("book")])) == []


TURNS = [
    user("Why does the parser fail? Please say it in short words."),
    assistant("The parser fails on the second line of the file that you have read to me today."),
    user("Run the tests again and tell me which of them fail now, please."),
    assistant("Of the tests, the one that reads the whole file fails; the others keep on going."),
]
EDITED = user("Why does the lexer fail? Please say it in short words.")


def test_examples_with_something_else_before_them_are_no_history_that_was_edited(tenant):
    """Nobody generated these replies here, so they may be examples: then what varies stands before what does not."""
    assert findings(tenant.chat(system(SYSTEM), *TURNS, user("and now?"))) == []
    varied = user("Why does the lexer fail? Please say it in short words.")
    assert waste(tenant.chat(system(SYSTEM), varied, *TURNS[1:], user("and then?"))) == ["AC103"]


def test_reasoning_that_is_left_out_of_the_history_is_named(tenant):
    thought = assistant("<think>It may be the second line.</think>" + TURNS[1]["content"])
    assert findings(tenant.chat(system(SYSTEM), TURNS[0], thought, user("and now?"))) == []
    (found,) = findings(tenant.chat(system(SYSTEM), TURNS[0], TURNS[1], user("so what follows?")))
    assert found["code"] == "AC405" and found["location"]["path"] == "messages[2].content"


def test_another_conversation_with_the_same_first_words_is_none_that_changed(tenant):
    tenant.chat(system(SYSTEM), *TURNS, user("and now?"))
    other = [user("Why do cats sleep?"), assistant("They like it."), user("Run home again and tell me more.")]
    assert waste(tenant.chat(system(SYSTEM), *other)) == []
    same = [TURNS[0], assistant("Nobody can tell."), user("A pity, that."), assistant("It is."), user("Well?")]
    assert waste(tenant.chat(system(SYSTEM), *same)) == []


def test_prompts_of_children_whose_task_stands_before_the_shared_rules_are_told(tenant):
    tasks = (
        "Task: find out why the parser fails.",
        "Task: list the files that nobody reads.",
        "Task: say what the agent sends.",
    )
    told = [codes(tenant.chat(system(f"{task}\n\n{RULES}{RULES}"), user("begin"))) for task in tasks]
    assert told == [[], ["AC103"], ["AC103"]]
    behind = [waste(tenant.chat(system(f"{RULES}{RULES}\n\n{task}"), user("begin"))) for task in tasks]
    assert behind == [[], [], []]


def grown(reply, turn):
    return [reply["choices"][0]["message"], user(f"and then, {turn}?")]


def called(reply, turn):
    message = reply["choices"][0]["message"]
    return [
        message,
        {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": f"It is 10:30:0{turn}."},
    ]


def in_parts(reply, turn):
    message = reply["choices"][0]["message"]
    return [
        {"role": "assistant", "content": [{"type": "text", "text": message["content"]}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": f"It is 10:3{turn}. "}, {"type": "text", "text": "And now?"}],
        },
    ]


SHAPES = {
    "plain": (grown, [system(SYSTEM + " Today is 2026-05-04."), user("Why does it fail?")], {}),
    "no system": (grown, [user("Why does it fail at 10:30:05?")], {}),
    "developer": (grown, [{"role": "developer", "content": SYSTEM}, user("Why does it fail?")], {}),
    "parts": (in_parts, [system(SYSTEM), user("Why does it fail?")], {}),
    "tools": (
        called,
        [system(SYSTEM), user("Read it.")],
        {"tools": TOOLS[1:2], "tool_choice": "required", "max_tokens": 48},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_conversation_that_only_grows_has_no_finding(tenant, shape):
    go_on, messages, fields = SHAPES[shape]
    for turn in range(4):
        reply = tenant.chat(*messages, **{"max_tokens": 6, **fields})
        assert codes(reply) == [], reply["agentcache"]
        messages = [*messages, *go_on(reply, turn)]


def test_text_that_comes_back_as_other_tokens_is_named(tenant):
    prompt = "the cache keeps pages of keys"
    generated = tenant.complete(prompt, max_tokens=32)["choices"][0]["text"]
    (found,) = findings(tenant.complete(prompt + generated + " and values"))
    assert found["code"] == "AC703" and found["location"]["path"] == "prompt" and found["tokens_lost"] > 4


def test_ids_that_go_on_where_they_ended_have_no_finding(tenant):
    prompt = tenant.post("/tokenize", {"prompt": SYSTEM})["tokens"]
    for _ in range(4):
        reply = tenant.complete(prompt, max_tokens=20, return_token_ids=True)
        assert codes(reply) == []
        prompt = [*prompt, *reply["choices"][0]["token_ids"], 40, 41, 42]


WORDS = st.lists(
    st.sampled_from((SYSTEM + " It is 10:30:05 on 2026-05-04; run 3f2a1b4c-77.").split()), min_size=1, max_size=20
)
HEADS = (
    SYSTEM,
    "Nobody speaks here. It is 2026-05-04.",
    "You sing songs of the sea, run 3f2a1b4c.",
    "what is computed stays",
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(new=st.lists(st.tuples(st.integers(0, 3), WORDS.map(" ".join)), max_size=9))
def test_traffic_that_only_appends_has_no_finding(server, keys, new):
    """Two stateless chats and two sessions of one tenant, in any order, with whatever times and ids in their messages."""
    tenant = Tenant(server, next(keys))
    chats = [[system(head)] for head in HEADS[:2]]
    sessions = [tenant.session(system=head) for head in HEADS[2:]]
    for place, text in new:
        if place >= 2:
            reply = tenant.say(sessions[place - 2], text, max_tokens=5)
        else:
            chats[place].append(user(text))
            reply = tenant.chat(*chats[place], max_tokens=5)
            chats[place].append(reply["choices"][0]["message"])
        assert codes(reply) == [], reply["agentcache"]


FILE_TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} a file of the project. " * 4}}
    for name in ("read", "write", "search", "run")
]


def test_two_agents_with_the_same_tools_are_two_agents(tenant):
    agents = ("You are a coding agent. Read before you write.", "You triage tickets of a small shop, politely.")
    for text in (*agents, *agents):
        assert waste(tenant.chat(system(text), user("Hello"), tools=FILE_TOOLS)) == []
        session = tenant.session(system=text, tools=FILE_TOOLS)
        assert waste(tenant.say(session, "Hello")) == []
