"""JUnit's XML, as most systems that run checks read it: a test suite a file, a test case a rule.

There is no standard of it; this keeps to what https://github.com/testmoapp/junitxml describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO
from xml.etree import ElementTree as ET

from agentcache.lint.finding import Finding
from agentcache.lint.outputs.data import takes_all
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.words import one_line, reference_of, visible


def write_junit(outcome: Outcome, out: TextIO) -> None:
    """What fails nothing is told as output of a case that passes; what could not be read is an error, not a failure."""
    root = ET.Element("testsuites", name="agentcache lint")
    files = dict.fromkeys((*outcome.files, *(finding.location.file for finding in outcome.findings)))
    for file in files:
        _suite(root, outcome, file)
    for name, reason in outcome.failed:
        suite = ET.SubElement(root, "testsuite", name=visible(name), tests="1", failures="0", errors="1")
        case = ET.SubElement(suite, "testcase", name="agentcache lint", classname=visible(name))
        ET.SubElement(case, "error", message=visible(reason), type="error").text = visible(f"{name}: {reason}")
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    if not takes_all(out):  # then as character references
        text = text.encode("ascii", "xmlcharrefreplace").decode("ascii")
    out.write(f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n')


def _suite(root: ET.Element, outcome: Outcome, file: str) -> None:
    suite = ET.SubElement(root, "testsuite", name=visible(file))
    by_rule: dict[str, list[Finding]] = {}
    for finding in outcome.findings:
        if finding.location.file == file:
            by_rule.setdefault(finding.code, []).append(finding)
    for _, found in sorted(by_rule.items()):
        _case(suite, outcome, found)
    if not by_rule:
        ET.SubElement(suite, "testcase", name="agentcache lint", classname=visible(file))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))


def _case(suite: ET.Element, outcome: Outcome, findings: Sequence[Finding]) -> None:
    """Of one file and rule."""
    first = findings[0]
    name = f"{first.code} {first.name}"
    case = ET.SubElement(suite, "testcase", name=name, classname=visible(first.location.file))
    lines = [f"{reference_of(finding)}: {one_line(finding)}" for finding in findings]
    if not any(outcome.fails(finding) for finding in findings):
        ET.SubElement(case, "system-out").text = "\n".join(lines)
        return
    kind = "error" if first.code == "AC903" else "failure"
    told = ET.SubElement(case, kind, message=one_line(first), type=first.severity)
    helps = dict.fromkeys(f"help: {visible(finding.help)}" for finding in findings if finding.help)
    told.text = "\n".join([*lines, *helps])
