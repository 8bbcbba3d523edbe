"""AC201, AC202, AC301 and AC302: tools that are not what they were."""

from __future__ import annotations

import copy
import json

import pytest
from explained import explained, loss, told
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_parts import TOOLS, called, from_request, growing, only_request, sent, system, tool, user
from twins_ac201 import as_float, reversed_keys, sort_keys

from agentcache.lint.structure.values import canonical, differences, first_rewritten, in_writing_of
from agentcache.lint.structure.words import as_json

values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdef"), inner, max_size=5),
    max_leaves=12,
)


def shuffled(value, random):
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffled(value[key], random) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, random) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and random.random() < 0.5 else value


@given(values, st.randoms())
@settings(max_examples=200, deadline=None)
def test_another_writing_of_a_value_is_written_as_it_was(value, random):
    other = shuffled(value, random)
    assert canonical(other) == canonical(value)
    assert as_json(in_writing_of(other, value)) == as_json(value)
    assert (first_rewritten(other, value) is None) == (as_json(other) == as_json(value))
    assert list(differences(value, other)) == []


@given(values, values)
@settings(max_examples=200, deadline=None)
def test_writing_a_value_as_another_one_never_changes_it(value, model):
    written = in_writing_of(value, model)
    assert canonical(written) == canonical(value)
    assert as_json(in_writing_of(written, model)) == as_json(written)
    assert bool(list(differences(model, value))) == (canonical(model) != canonical(value))


def test_keys_that_only_one_has_keep_their_places():
    assert list(in_writing_of({"b": 1, "new": 2, "a": 3}, {"a": 3, "gone": 0, "b": 1})) == ["a", "new", "b"]


def test_a_reordered_list_of_tools_loses_what_stands_behind_the_first_of_them(tokenizer_folder):
    sound = growing(tools=TOOLS)
    defective = from_request(sound, 2, lambda request: request["tools"].reverse())
    [finding] = explained(tokenizer_folder, defective)
    assert told([finding]) == [("AC202", 3, "tools[0]")]
    assert (finding.tokens_lost, finding.tokens_lost_kind) == (loss(tokenizer_folder, sound, defective), "exact")
    assert finding.fix.applicability == "unsafe"
    assert finding.before == "read_file, list_files, run_tests"
    assert finding.after == "run_tests, list_files, read_file"


def test_rewritten_schemas_are_one_finding_that_names_the_first(tokenizer_folder):
    sound = growing(tools=TOOLS)
    defective = from_request(sound, 2, sort_keys)
    [finding] = explained(tokenizer_folder, defective)
    assert finding.code == "AC201"
    assert "'read_file', and 2 more" in finding.message
    assert finding.tokens_lost == loss(tokenizer_folder, sound, defective)
    assert finding.fix.applicability == "unsafe"


def test_tools_that_change_in_several_ways_are_told_each_and_counted_once(tokenizer_folder):
    def change(request):
        tools = copy.deepcopy(request["tools"])[::-1]
        tools[0] = reversed_keys(tools[0])
        tools[1]["function"]["description"] = "Says which files there are, and how long each is."
        request["tools"] = tools

    sound = growing(tools=TOOLS)
    findings = explained(tokenizer_folder, only_request(sound, 3, change))
    assert {finding.code for finding in findings} == {"AC201", "AC202", "AC302"}
    defective = only_request(sound, 3, change)
    assert sum(f.tokens_lost for f in findings) == pytest.approx(loss(tokenizer_folder, sound, defective), abs=8)


def test_a_time_in_a_description_is_left_to_the_rule_about_times(tokenizer_folder):
    requests = growing(3, tools=TOOLS)
    for turn, request in enumerate(requests):
        text = f"Reads a part of the working tree. Now: 2026-11-29 10:3{turn}:05. Says what stands there, line by line."
        request["tools"] = [tool("read_file", text), *TOOLS[1:]]
    assert {finding.code for finding in explained(tokenizer_folder, requests)} == {"AC101"}


def test_a_list_in_a_schema_that_comes_in_another_order_is_not_called_another_schema(tokenizer_folder):
    def required(*names):
        return lambda request: request["tools"][0]["function"]["parameters"].update(required=list(names))

    sound = from_request(growing(3, tools=TOOLS), 0, required("path", "limit"))
    codes = {f.code for f in explained(tokenizer_folder, from_request(sound, 2, required("limit", "path")))}
    assert codes <= {"AC203"}


def test_what_is_gone_from_a_schema_is_placed_at_what_was_around_it(tokenizer_folder):
    def strip(request):
        del request["tools"][2]["function"]["description"]

    [finding] = explained(tokenizer_folder, only_request(growing(tools=TOOLS), 2, strip))
    assert told([finding]) == [("AC302", 3, "tools[2].function")]
    assert "description" in finding.message and finding.after == ""


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([*called(2), *called(2, tools=TOOLS[::-1])[:0]], id="one conversation"),
        pytest.param(
            [*sent(system(), user("Plan it."), tools=TOOLS), *sent(system(), user("Do it."), tools=TOOLS[:1])],
            id="a sub-agent with fewer tools",
        ),
        pytest.param(
            [*sent(system(), user("Do it."), tools=TOOLS), *sent(system(), user("Do it."), tools=[*TOOLS, tool("deploy")])],
            id="a tool more from one conversation to the next",
        ),
        pytest.param(
            [*sent(system(), user("Do it."), tools=TOOLS), *sent(system(), user("Do it."))], id="the same question without tools"
        ),
        pytest.param(
            [
                *sent(system("You plan."), user("Do it."), tools=TOOLS),
                *sent(system("You review."), user("Do it."), tools=TOOLS[::-1]),
            ],
            id="another agent orders the same tools its own way",
        ),
        pytest.param([{**body, "tools": []} if n % 2 else body for n, body in enumerate(growing())], id="none or an empty list"),
    ],
)  # fmt: skip
def test_tools_of_different_agents_may_differ(tokenizer_folder, requests):
    assert told(explained(tokenizer_folder, requests)) == []


@pytest.mark.parametrize(
    "tools",
    [
        [
            {"type": "function", "function": {"name": "a"}},
            {"type": "function", "function": {"name": "a", "description": "x"}},
        ],
        [{"name": "a", "input_schema": {"type": "object"}}, {"name": "b", "description": None}],
        [{"type": "function", "function": {"name": None, "parameters": None}}, {"function": {}}],
        [{"type": "custom", "custom": {"name": "a", "format": [1, {"x": 2}]}}],
    ],
)
def test_odd_tools_are_compared_without_stumbling(tokenizer_folder, tools):
    changes = [
        lambda r: r["tools"].reverse(),
        lambda r: r["tools"].pop(),
        lambda r: r["tools"][0].update(more=[1, {"a": 1.0}]),
    ]
    for template in (None, explained.__kwdefaults__["template"]):
        for change in changes:
            requests = from_request(growing(tools=json.loads(json.dumps(tools))), 2, change)
            assert all(finding.tokens_lost for finding in explained(tokenizer_folder, requests, template=template))


def test_a_number_in_another_form_is_named_as_that(tokenizer_folder):
    with_numbers = copy.deepcopy(TOOLS)
    with_numbers[1]["function"]["parameters"]["properties"]["limit"] = {"type": "number", "minimum": 1}
    [finding] = explained(tokenizer_folder, from_request(growing(tools=with_numbers), 1, as_float))
    assert (finding.code, finding.before, finding.after) == ("AC201", "1", "1.0")
    assert "a number in another form" in finding.message
