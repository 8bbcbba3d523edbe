"""Replies that come back otherwise than they were given: said when the server's answer shows that it mattered."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from look_prompts import QUESTION, RULES, TOOLS, assistant, call, result, system, user
from sdk_wire import WireServer

from agentcache_sdk import CacheWarning, Client, Finding

Message = dict[str, Any]
ARGUMENTS = '{"path": "parser.py", "limit": 40}'
CALLED = assistant(None, tool_calls=[call(ARGUMENTS)], reasoning_content="The parser first, then its tests. " * 12)
SPOKEN = assistant("  The branch for a closing bracket is entered by no test at all.\n" * 8)


def edited(change: Callable[[Message], object]) -> Message:
    message = copy.deepcopy(CALLED)
    change(message)
    return message


def function_of(message: Message) -> dict[str, Any]:
    function: dict[str, Any] = message["tool_calls"][0]["function"]
    return function


REWRITTEN = edited(lambda m: function_of(m).update(arguments='{"path":"parser.py","limit":40}'))
OTHER_ARGUMENTS = edited(lambda m: function_of(m).update(arguments='{"path": "lexer.py", "limit": 40}'))
RENAMED = edited(lambda m: m["tool_calls"][0].update(id="call_0"))
UNREASONED = edited(lambda m: m.pop("reasoning_content"))
STRIPPED = assistant(SPOKEN["content"].strip())
SHORTENED = assistant(SPOKEN["content"].replace("at all", "", 1))


def second_turn(
    client: Client, wire: WireServer, reply: Message, replayed: Message, cached: int | None
) -> list[Finding]:
    """Findings of a second turn of which the server says that ``cached`` tokens were; ``None``: as many as it finds."""
    wire.replies.append(reply)
    first = [system(RULES), user(QUESTION)]
    behind = [result(call_id=replayed["tool_calls"][0]["id"])] if replayed.get("tool_calls") else [user("More?")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.chat(first, tools=TOOLS)
        wire.reports.append({} if cached is None else {"cached_tokens": cached})
        client.chat([*first, replayed, *behind], tools=TOOLS)
    return [w.message.finding for w in caught if isinstance(w.message, CacheWarning)]


@pytest.mark.parametrize(
    ("reply", "replayed", "code", "path"),
    [
        (CALLED, REWRITTEN, "AC207", "messages[2].tool_calls[0].function.arguments"),
        (CALLED, OTHER_ARGUMENTS, "AC401", "messages[2].tool_calls[0].function.arguments"),
        (CALLED, RENAMED, "AC208", "messages[2].tool_calls[0].id"),
        (CALLED, UNREASONED, "AC405", "messages[2].reasoning_content"),
        (SPOKEN, STRIPPED, "AC204", "messages[2].content"),
        (SPOKEN, SHORTENED, "AC401", "messages[2].content"),
    ],
    ids=["arguments written anew", "other arguments", "another id", "no reasoning", "stripped", "edited"],
)
def test_a_reply_sent_back_otherwise_is_said_once_with_the_servers_figure(
    wire: WireServer, client: Client, reply: Message, replayed: Message, code: str, path: str
) -> None:
    found = second_turn(client, wire, reply, replayed, 900)
    assert [(f.code, f.location.path) for f in found] == [(code, path)]
    assert found[0].tokens_lost_kind == "exact"
    assert found[0].confidence == "confirmed"


@pytest.mark.parametrize("replayed", [REWRITTEN, RENAMED, UNREASONED], ids=["arguments", "id", "reasoning"])
def test_a_server_that_knows_the_reply_again_makes_it_no_finding(
    wire: WireServer, client: Client, replayed: Message
) -> None:
    """As agentcache does: what was said names a conversation, not how it was written."""
    assert second_turn(client, wire, CALLED, replayed, 100_000) == []


def test_a_reply_sent_back_as_it_came_is_silent_even_where_nothing_is_cached(wire: WireServer, client: Client) -> None:
    assert second_turn(client, wire, CALLED, CALLED, 0) == []
    assert second_turn(client, wire, SPOKEN, SPOKEN, 0) == []


def test_another_reply_in_its_place_is_another_conversation(wire: WireServer, client: Client) -> None:
    other = assistant("I would rather begin with the lexer, since half of the tests go through it. " * 6)
    assert second_turn(client, wire, SPOKEN, other, 900) == []


def test_evicted_pages_are_not_blamed_on_the_client(wire: WireServer, client: Client) -> None:
    wire.replies.append(CALLED)
    first = [system(RULES), user(QUESTION)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.chat(first)
        wire.reports.append({"cached_tokens": 0, "miss": {"code": "evicted", "at_token": 0}})
        client.chat([*first, UNREASONED, result()])


def test_another_reply_format_counts_where_the_server_computes_the_prompt_again(
    wire: WireServer, client: Client
) -> None:
    first = [system(RULES), user(QUESTION)]
    for cached, codes in ((900, ["AC303"]), (100_000, [])):
        wire.replies.append(SPOKEN)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client.chat(first, tools=TOOLS, tool_choice="auto")
            wire.reports.append({"cached_tokens": cached})
            client.chat([*first, SPOKEN, user("More?")], tools=TOOLS, tool_choice="none")
        found = [w.message.finding for w in caught if isinstance(w.message, CacheWarning)]
        assert [f.code for f in found] == codes
        first = [system(RULES + "Never guess."), user(QUESTION)]


SERVER_SAYS = {"name": "x", "tokens_lost": 300, "severity": "warning", "confidence": "confirmed"}


@pytest.mark.parametrize(
    ("code", "path", "codes"),
    [
        ("AC101", "messages[0].content", ["AC101"]),
        ("AC401", "messages[0].content", ["AC101"]),
        ("AC103", "messages[0]", ["AC101"]),
        ("AC501", "messages[0].content", ["AC101", "AC501"]),
        ("AC402", "messages[1]", ["AC101", "AC402"]),
    ],
)
def test_what_client_and_server_both_see_is_one_warning(
    wire: WireServer, client: Client, code: str, path: str, codes: list[str]
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.chat([system(f"Checked 10:31:07. {RULES}"), user(QUESTION)])
        wire.reports.append({"findings": [{**SERVER_SAYS, "code": code, "location": {"path": path}}]})
        client.chat([system(f"Checked 10:32:41. {RULES}"), user(QUESTION)])
    assert [w.message.finding.code for w in caught if isinstance(w.message, CacheWarning)] == codes


def test_sessions_of_one_client_are_compared_by_what_they_begin_with(client: Client) -> None:
    def codes(*, ignore: str = "AC9", **head: Any) -> list[tuple[str, str | None]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client.session(ignore=ignore, **head)
        findings = [w.message.finding for w in caught if isinstance(w.message, CacheWarning)]
        return [(f.code, f.location.path) for f in findings]

    assert codes(system=RULES, tools=TOOLS) == []
    assert codes(system=RULES, tools=TOOLS) == []
    assert codes(system=RULES, tools=TOOLS[::-1]) == [("AC202", "tools[0]")]
    assert codes(system=f"{RULES} ", tools=TOOLS) == []  # nothing stands behind it
    assert codes(system=f"Branch 17. {RULES}") == []
    assert codes(system=f"Branch 18. {RULES}") == [("AC103", "messages[0].content")]
    assert codes(system=f"Branch 19. {RULES}", ignore="AC103") == []
    assert codes(system="You write release notes. " * 20) == []
    assert codes(prompt="Once upon a time") == []
