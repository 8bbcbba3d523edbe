"""Which repairs are kept: those that bring back most of what they promise, while no request reuses less."""

from __future__ import annotations

import json

import pytest

from agentcache.lint.fixes.changes import TextChange
from agentcache.lint.fixes.plan import Gains, Plan, Spot
from agentcache.lint.fixes.record_files import write_mended
from agentcache.lint.fixes.repairs import Defect, Repair, digest, olds_of
from agentcache.lint.fixes.spreading import spread
from agentcache.lint.report import RequestFigures

A, B = Defect("AC205", "f", 2, "a", "safe"), Defect("AC206", "f", 2, "b", "safe")


def repair(defect: Defect, lost: int) -> Repair:
    return Repair(defect, (), (), b"", b"", lost)


def figures(*cached: int, prompt: int = 1000) -> list[RequestFigures]:
    return [RequestFigures("f", line, "#1", prompt, tokens) for line, tokens in enumerate(cached, start=1)]


def gains(plan: Plan, before: list[RequestFigures], after: list[RequestFigures]) -> Gains:
    return Gains(plan, {Spot("f", request.record): request for request in before}, after)


def kept(plan: Plan) -> dict[int, list[str]]:
    return {line: [each.defect.code for each in chain] for line, chain in plan.chains.get("f", {}).items()}


def plan(**chains: list[Repair]) -> Plan:
    return Plan({"f": {int(line.removeprefix("line")): chain for line, chain in chains.items()}})


def test_what_comes_back_is_owed_to_the_first_repairs():
    tried = plan(line2=[repair(A, 300), repair(B, 200)], line3=[repair(B, 100)])
    measured = gains(tried, figures(0, 10, 10), figures(0, 400, 110))
    assert not measured.cut() and kept(tried) == {2: ["AC205", "AC206"], 3: ["AC206"]}
    assert measured.recovered() == {id(A): 300, id(B): 190} and measured.total == 490


def test_a_repair_that_brings_back_little_goes_with_all_behind_it():
    tried = plan(line2=[repair(A, 300), repair(B, 200)], line3=[repair(B, 100)])
    assert gains(tried, figures(0, 10, 10), figures(0, 130, 110)).cut()
    assert kept(tried) == {3: ["AC206"]} and tried.hindered[id(A)] == "it would bring back 120 of 300 tokens"


def test_a_request_that_would_reuse_less_loses_its_last_repair():
    tried = plan(line2=[repair(A, 0), repair(B, 0)])
    assert gains(tried, figures(0, 500), figures(0, 400)).cut() and kept(tried) == {2: ["AC205"]}
    assert tried.hindered == {id(B): "the request would reuse less than before"}


def test_a_prompt_that_became_shorter_reuses_no_less():
    tried = plan(line2=[repair(A, 0)])
    before, after = figures(0, 500), [*figures(0), RequestFigures("f", 2, "#1", 990, 490)]
    assert not gains(tried, before, after).cut()


def test_other_requests_must_not_pay():
    tried = plan(line2=[repair(A, 100)])
    measured = gains(tried, figures(0, 0, 500), figures(0, 100, 400))
    assert measured.others_worse() == [Spot("f", 3)]
    assert measured.cut() and kept(tried) == {}
    assert tried.hindered == {id(A): "1 other request would reuse less than before"}


@pytest.mark.parametrize("again", ["e\u0301t\u0301e", "other"])
def test_who_says_the_same_is_mended_the_same_way(tmp_path, again):
    bodies = [{"t": "été", "n": 1}, {"t": "e\u0301t\u0301e", "n": 2}, {"t": again, "n": 3.0}]
    file = tmp_path / "f"
    file.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    changes = (TextChange(("t",), 0, 5, "été"),)
    known = Repair(A, changes, olds_of(bodies[1], changes), digest(bodies[1]), b"", 5)
    tried = plan(line2=[known])
    assert spread(tried, {"f": file}, [Spot("f", 3), Spot("f", 1)]) is (again != "other")
    assert write_mended(file, tried.chains["f"], tmp_path / "copy") == {}
    mended = [json.loads(line) for line in (tmp_path / "copy").read_text("utf-8").splitlines()]
    expected = [{"t": "été", "n": 1}, {"t": "été", "n": 2}, {"t": "été" if again != "other" else again, "n": 3.0}]
    assert mended == expected


def test_a_line_that_is_another_one_now_is_left_alone(tmp_path):
    file = tmp_path / "f"
    file.write_text('{"t": "a"}\n{"t": "changed"}\nno json\n', "utf-8")
    changes = (TextChange(("t",), 0, 1, "b"),)
    known = Repair(A, changes, (), digest({"t": "a"}), b"", 5)
    left = write_mended(file, {1: [known], 2: [known], 3: [known], 9: [known]}, tmp_path / "copy")
    assert set(left) == {2, 3, 9} and set(left.values()) == {"the record is no line of the file as it is now"}
    assert (tmp_path / "copy").read_text("utf-8") == '{"t": "b"}\n{"t": "changed"}\nno json\n'
