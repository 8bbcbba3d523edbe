"""AC303 and AC601 to AC604: a conversation that goes on under another setting."""

from __future__ import annotations

import pytest
from explained import cached, explained, told
from twin_parts import TOOLS, called, from_request, growing, sent, system, user

from agentcache.lint.structure.settings import Named, named


def each(requests, **fields):
    return [
        {**body, **{name: values[n] for name, values in fields.items() if values[n] is not None}}
        for n, body in enumerate(requests)
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, Named(None, None)),
        ({"model": ""}, Named(None, None)),
        ({"model": 7}, Named(None, None)),
        ({"model": "base"}, Named("base", None)),
        ({"model": "base:sql"}, Named("base", "sql")),
        ({"model": "base:sql", "lora": "x"}, Named("base:sql", "x")),
        ({"model": "llama3:8b"}, Named("llama3:8b", None)),
        ({"model": "llama3.1:70b-instruct-q4_K_M"}, Named("llama3.1:70b-instruct-q4_K_M", None)),
        ({"model": "hf.co/org/name:Q4_K_M"}, Named("hf.co/org/name:Q4_K_M", None)),
        ({"model": "org/name:free"}, Named("org/name:free", None)),
        ({"model": "maker.name-v2:1"}, Named("maker.name-v2:1", None)),
        ({"model": "ft:base:org::id"}, Named("ft:base:org::id", None)),
        ({"model": "base", "lora_request": {"lora_name": "sql"}}, Named("base", "sql")),
    ],
)
def test_adapters_are_told_from_tags_of_models(body, expected):
    assert named(body) == expected


def test_a_change_of_model_costs_the_history_up_to_there(tokenizer_folder):
    requests = each(growing(), model=["a", "a", "b", "b"])
    [finding] = explained(tokenizer_folder, requests)
    assert told([finding]) == [("AC601", 3, "model")]
    assert (finding.before, finding.after, finding.tokens_lost_kind) == ("a", "b", "exact")
    assert finding.tokens_lost == cached(tokenizer_folder, growing())[2]


def test_salts_are_never_printed(tokenizer_folder):
    requests = each(growing(3), cache_salt=["secret-one", "secret-two", "secret-two"])
    [finding] = explained(tokenizer_folder, requests)
    assert finding.code == "AC602"
    assert "secret" not in finding.model_dump_json()


def test_two_settings_that_change_at_once_are_both_told_or_counted_once(tokenizer_folder):
    requests = each(growing(3), model=["a", "a", "b"], cache_salt=["x", "x", "y"])
    findings = explained(tokenizer_folder, requests)
    assert {finding.code for finding in findings} <= {"AC601", "AC602"} and findings
    alone = explained(tokenizer_folder, each(growing(3), model=["a", "a", "b"]))
    assert sum(finding.tokens_lost for finding in findings) == alone[0].tokens_lost


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param(each(growing(3), model=["a", None, "a"]), id="a request that names no model"),
        pytest.param([*growing(3, model="a"), *sent(system(), user("A title, please."), model="b")], id="a title by another"),
        pytest.param([{**body, "model": m} for m in "abc" for body in growing(3)], id="one model after another"),
        pytest.param([{**body, "model": m} for body in growing(3) for m in "abc"], id="models take turns"),
        pytest.param([{**body, "model": m} for m in "ab" for body in growing(1)], id="a second try with another"),
        pytest.param([{**body, "cache_salt": s} for body in growing(3) for s in "ab"], id="tenants take turns"),
        pytest.param([{**body, "temperature": n / 4} for n, body in enumerate(growing())], id="sampling"),
        pytest.param([{**body, "chat_template_kwargs": {"unread": n}} for n, body in enumerate(growing())], id="unread options"),
        pytest.param([{**body, "tool_choice": c} for c, body in zip(("auto", "none"), called(1))], id="tool_choice"),
        pytest.param([*growing()[:2], *({**body, "response_format": {}} for body in growing()[2:])], id="format"),
    ],
)  # fmt: skip
def test_settings_of_other_conversations_may_differ(tokenizer_folder, requests):
    assert told(explained(tokenizer_folder, requests)) == []


def test_an_option_is_told_with_both_values(tokenizer_folder):
    requests = each(growing(3), chat_template_kwargs=[{"reasoning_effort": e} for e in ("high", "high", "low")])
    [finding] = explained(tokenizer_folder, requests)
    assert told([finding]) == [("AC604", 3, "chat_template_kwargs.reasoning_effort")]
    assert (finding.before, finding.after) == ('reasoning_effort: "high"', 'reasoning_effort: "low"')


def test_an_edit_behind_a_change_of_model_is_told_as_well(tokenizer_folder):
    requests = each(growing(4, tools=TOOLS), model=["a", "a", "b", "b"])
    requests = from_request(requests, 2, lambda r: r["messages"][1].update(content="Fix the parser, quickly."))
    assert {finding.code for finding in explained(tokenizer_folder, requests)} == {"AC601", "AC401"}
