"""No more is charged than was computed again."""

from __future__ import annotations

import pytest
from clean_traffic import tool
from lint_workloads import INSTRUCTIONS, chat


def total(findings) -> int:
    return sum(finding["tokens_lost"] for finding in findings if finding["tokens_lost_kind"] == "exact")


def test_what_was_left_out_cannot_be_lost(lint):
    """Tools that are long and missing once: the prompt without them is short, and no more of it can be computed again."""
    tools = [tool(f"tool_{number}", INSTRUCTIONS) for number in range(20)]
    requests = [{**body, "tools": tools} for body in chat(lambda turn: INSTRUCTIONS, turns=4)]
    del requests[2]["tools"]
    code, found = lint(requests, "--ignore", "AC5", "--statistics")
    assert code == 1
    [finding] = found["findings"]
    sizes = [request["prompt_tokens"] for request in found["statistics"]["predictions"]]
    reused = [request["cached_tokens"] for request in found["statistics"]["predictions"]]
    assert finding["code"] == "AC301"
    assert 0 < finding["tokens_lost"] <= sum(sizes[2:]) - sum(reused[2:])


@pytest.mark.parametrize("forms", ["AB", "ABA", "ABAB", "AABB", "ABBA"])
def test_losses_and_reuse_add_up_to_what_the_same_requests_without_the_defect_reuse(lint, forms):
    heads = {"A": f"Be brief. {INSTRUCTIONS}", "B": f"Be brief.\n{INSTRUCTIONS}"}  # as many tokens
    requests = chat(lambda turn: heads[forms[turn]], turns=len(forms))
    sound = chat(lambda turn: heads["A"], turns=len(forms))
    (_, found), (_, clean) = (lint(bodies, "--ignore", "AC5", "--statistics") for bodies in (requests, sound))
    statistics, expected = found["statistics"], clean["statistics"]
    assert clean["findings"] == []
    assert {finding["code"] for finding in found["findings"]} == {"AC204"}
    assert total(found["findings"]) + statistics["predicted_cached_tokens"] == expected["predicted_cached_tokens"]


def test_a_defect_that_stays_costs_once_whatever_stands_before_it(lint):
    """A call's arguments are written anew from the third request on; a clock before them ticks in every request."""
    head = [{"role": "user", "content": "Why does the build fail?"}]
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}
    said = [
        *head,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "x = 1  # and more text that stands in this file"},
    ]
    for number in range(5):
        said += [
            {"role": "assistant", "content": f"Step {number} is done."},
            {"role": "user", "content": f"Do step {number + 1}."},
        ]
    requests = [{"messages": [*said[: 3 + 2 * turn]], "tools": [tool("read_file")]} for turn in range(6)]
    other = {**call, "function": {"name": "read_file", "arguments": '{"path":"a.py"}'}}
    for request in requests[2:]:
        request["messages"][1] = {**request["messages"][1], "tool_calls": [other]}

    def with_system(texts):
        return [{**r, "messages": [{"role": "system", "content": t}, *r["messages"]]} for r, t in zip(requests, texts)]

    ticking = with_system(f"It is 10:3{n}:05. {INSTRUCTIONS}" for n in range(6))
    still = with_system(f"It is 10:30:05. {INSTRUCTIONS}" for n in range(6))
    (_, both), (_, one) = (lint(bodies, "--ignore", "AC5") for bodies in (ticking, still))
    lost = {finding["code"]: finding["tokens_lost"] for finding in both}
    assert [finding["code"] for finding in one] == ["AC207"] and set(lost) == {"AC101", "AC207"}
    assert lost["AC207"] == one[0]["tokens_lost"]
    second = next(finding for finding in both if finding["code"] == "AC207")
    # The clocks may take a token more or less.
    assert abs(second["location"]["token"] - one[0]["location"]["token"]) <= 2 < 100 < second["location"]["token"]


def test_ids_of_another_tokenizer_are_an_error_and_nothing_is_made_of_them(lint):
    body = {"messages": [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": "Hello."}]}
    line = {"format": "agentcache-trace", "version": 1, "route": "/v1/chat/completions", "request": body}
    lines = [{**line, "prompt_token_ids": [650 - n for n in range(90 + k)], "choices": []} for k in range(3)]
    code, found = lint(lines)
    assert code == 2
    [finding] = found
    assert (finding["code"], finding["location"]["record"]) == ("AC903", 1)
    assert "--tokenizer" in finding["message"]
