"""JSON and JSON lines."""

from __future__ import annotations

import json
from typing import Any, TextIO

from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.totals import predictions, statistics_of


def dumps(value: Any, out: TextIO, *, indent: int | None = None) -> str:
    """JSON that ``out`` can take whatever its encoding."""
    return json.dumps(value, ensure_ascii=not takes_all(out), indent=indent)


def takes_all(out: TextIO) -> bool:
    """Whether every character can be written to ``out``."""
    return (out.encoding or "utf-8").lower().replace("-", "") == "utf8"


def write_json(outcome: Outcome, out: TextIO, *, statistics: bool) -> None:
    """A list of findings; with ``statistics`` an object of ``findings`` and ``statistics``."""
    findings = dumps([finding.model_dump(mode="json") for finding in outcome.findings], out, indent=2)
    if not statistics:
        out.write(findings + "\n")
        return
    totals = dumps(statistics_of(outcome), out, indent=2)
    out.write(f'{{\n"findings": {findings},\n"statistics": {totals.removesuffix("}").rstrip()},\n  "predictions": [')
    for index, each in enumerate(predictions(outcome)):
        out.write(("," if index else "") + "\n    " + dumps(each, out))
    out.write("\n  ]\n}\n}\n")


def write_jsonl(outcome: Outcome, out: TextIO, *, statistics: bool) -> None:
    """One finding a line; with ``statistics`` one more line that holds ``{"statistics": …}``."""
    for finding in outcome.findings:
        out.write(dumps(finding.model_dump(mode="json"), out) + "\n")
    if statistics:
        out.write(f'{{"statistics": {dumps(statistics_of(outcome), out).removesuffix("}")}, "predictions": [')
        for index, each in enumerate(predictions(outcome)):
            out.write((", " if index else "") + dumps(each, out))
        out.write("]}}\n")
