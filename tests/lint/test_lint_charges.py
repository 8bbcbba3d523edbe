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
