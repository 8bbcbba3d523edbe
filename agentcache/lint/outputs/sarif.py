"""SARIF 2.1.0, for code scanning.  Follows https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any, TextIO
from urllib.parse import quote

from agentcache import __version__
from agentcache.lint.finding import Edit, Finding
from agentcache.lint.fingerprints import fingerprint
from agentcache.lint.outputs.data import dumps
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.rule_pages import markdown_of
from agentcache.lint.outputs.totals import statistics_of
from agentcache.lint.outputs.words import loss_words
from agentcache.lint.rules import RULES
from agentcache.lint.rules.base import Rule
from agentcache.lint.source_text import is_text

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_SHOWN = ("confidence", "verdict", "tokens_lost", "tokens_lost_kind", "shared_by", "session", "before", "after")


def write_sarif(outcome: Outcome, out: TextIO, *, statistics: bool) -> None:
    """One run: rules with their manual, results with places, fingerprints and fixes."""
    rules = _told(outcome.findings)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "agentcache lint",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "invocations": [_invocation(outcome)],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri() + "/"}},
        "artifacts": [{"location": _artifact(file)} for file in outcome.files],
        "results": [_result(outcome, finding, rules) for finding in outcome.findings],
    }
    if statistics:
        run["properties"] = {"statistics": statistics_of(outcome)}
    out.write(dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, out, indent=2) + "\n")


def _invocation(outcome: Outcome) -> dict[str, Any]:
    """Whether everything could be read; a record that could not is a result as well."""
    told = [
        {
            "level": "error",
            "message": {"text": f"{name}: {reason}"},
            "locations": [{"physicalLocation": {"artifactLocation": _artifact(name)}}],
        }
        for name, reason in outcome.failed
    ]
    unread = any(finding.code == "AC903" for finding in outcome.findings)
    return {
        "executionSuccessful": not (told or unread),
        **({"toolExecutionNotifications": told} if told else {}),
    }


def _told(findings: Iterable[Finding]) -> list[Rule]:
    codes = {finding.code for finding in findings}
    return [rule for rule in RULES if rule.code in codes]


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.name},
        "fullDescription": {"text": rule.what},
        "help": {"text": f"{rule.what}\n\n{rule.why}\n\nFix: {rule.fix_safety}", "markdown": markdown_of(rule)},
        "defaultConfiguration": {"level": "warning", "enabled": not rule.optional},
        "properties": {"tags": ["prompt-cache"]},
    }


def _result(outcome: Outcome, finding: Finding, rules: list[Rule]) -> dict[str, Any]:
    loss = "" if finding.tokens_lost is None else f" ({loss_words(finding)})"
    help = "" if finding.help is None else f"\n{finding.help}"
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": "note" if finding.verdict == "legitimate" else _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}{loss}{help}"},
        "locations": [_location(outcome, finding)],
        "partialFingerprints": {"agentcacheLint/v1": fingerprint(finding, Path.cwd(), outcome.sources.line(finding))},
        "properties": {name: value for name in _SHOWN if (value := getattr(finding, name)) is not None},
    }
    index = next((index for index, rule in enumerate(rules) if rule.code == finding.code), None)
    if index is not None:  # a server may be of a later version
        result["ruleIndex"] = index
    if finding.compared_to is not None:
        result["relatedLocations"] = [_compared(finding.compared_to)]
    if fixes := _fix(outcome, finding):
        result["fixes"] = fixes
    return result


def _location(outcome: Outcome, finding: Finding) -> dict[str, Any]:
    where = finding.location
    physical: dict[str, Any] = {"artifactLocation": _artifact(where.file)}
    line, column = outcome.sources.line_of(finding), outcome.sources.column_of(finding)
    if line is not None:
        physical["region"] = {"startLine": line, **({} if column is None else {"startColumn": column})}
    location: dict[str, Any] = {"physicalLocation": physical}
    if where.path is not None:
        kind = "function" if is_text(where.file) else "member"
        location["logicalLocations"] = [{"fullyQualifiedName": where.path, "kind": kind}]
    tokens = {name: value for name in ("char", "token", "page") if (value := getattr(where, name)) is not None}
    if tokens:
        location["properties"] = tokens
    return location


def _compared(reference: str) -> dict[str, Any]:
    file, _, record = reference.rpartition(":")
    physical: dict[str, Any] = {"artifactLocation": _artifact(file or reference)}
    if file and record.isdecimal() and int(record) > 0:
        physical["region"] = {"startLine": int(record)}
    return {"physicalLocation": physical, "message": {"text": "compared with this request"}}


def _artifact(file: str) -> dict[str, Any]:
    """Inside of this folder relative to it, as code scanning wants it."""
    if file == "-":
        return {"uri": "stdin:"}
    if "://" in file:  # a server
        return {"uri": quote(file, safe=":/?#[]@!$&'()*+,;=%-._~")}
    path = Path(file).absolute()
    if path.is_relative_to(Path.cwd()):
        return {"uri": _quoted(path.relative_to(Path.cwd())), "uriBaseId": "SRCROOT"}
    return {"uri": "file://" + _quoted(path)}


def _quoted(path: PurePath) -> str:
    return quote(path.as_posix().encode("utf-8", "surrogateescape"))


def _fix(outcome: Outcome, finding: Finding) -> list[dict[str, Any]]:
    """Edits of sources and templates; those of records are of strings inside JSON, for which SARIF has no region."""
    edits = [edit for edit in finding.fix.edits if is_text(edit.file)]
    if not edits or finding.fix.applicability == "display":
        return []
    changes = []
    for file in dict.fromkeys(edit.file for edit in edits):
        replacements = [_replacement(outcome, edit) for edit in edits if edit.file == file]
        changes.append({"artifactLocation": _artifact(file), "replacements": replacements})
    return [{"description": {"text": finding.help or finding.message}, "artifactChanges": changes}]


def _replacement(outcome: Outcome, edit: Edit) -> dict[str, Any]:
    (line, column), (last, end) = (outcome.sources.position(edit.file, offset) for offset in (edit.start, edit.end))
    region = {"startLine": line, "startColumn": column, "endLine": last, "endColumn": end}
    return {"deletedRegion": region, "insertedContent": {"text": edit.content}}
