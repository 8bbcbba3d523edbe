"""AC201, AC202, AC301 and AC302: two prompts that part where the template writes the tools.

The tools of the earlier request are read out of its text: templates write them as JSON objects, each with a name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from agentcache.cache.hashing import TOKEN_BYTES
from agentcache.lint.finding import Finding
from agentcache.server.findings.meeting import meet
from agentcache.server.findings.prompt_text import Branch, PartedPrompt, span_of
from agentcache.server.findings.slots import find_slot, slot_finding
from agentcache.server.findings.spot import Spot, lost

_TRIED = 64
"""Opening braces that are tried; schemas are long, so the first few open tools."""
_LEAD = 20_000
"""Characters before the parting in which tools are looked for."""
_APART = 300
"""Characters between two tools; what is further apart is no list of tools any more."""
_WHOLE = 1900
"""Tokens; a branch that is longer may go on behind what is known of it."""
_SHOWN = 80

Tool: TypeAlias = Mapping[str, Any]


class _Change(NamedTuple):
    """
    Attributes:
        tool: name of the one tool that is another one.
    """

    code: str
    message: str
    tool: str | None
    before: str
    after: str


def tools_finding(parted: PartedPrompt) -> Finding | None:
    """What is different about the tools; ``None`` where prompts of plainly different agents part."""
    for branch in parted.branches:
        was, now = _both_tools(parted, branch)
        meeting = meet(branch.was, branch.now)
        change = _compare(was, now) if _same_agent(was, now, meeting is not None) else None
        if change is None:
            continue
        path = _path(parted, change)
        if change.code == "AC302" and (slot := find_slot(parted)) is not None:
            finding = slot_finding(parted, slot, "a tool's text")
            if finding.code in ("AC101", "AC102"):
                return finding.model_copy(update={"location": finding.location.model_copy(update={"path": path})})
        return Finding(
            **parted.basis.of(change.code, Spot(parted.miss.at_token, path)),
            severity="warning",
            before=change.before,
            after=change.after,
            **lost(0 if meeting is None else meeting.run, "estimate"),
            message=change.message,
        )
    return None


def _path(parted: PartedPrompt, change: _Change) -> str:
    names = _names([_function(tool) for tool in parted.asked.tools or ()])
    return f"tools[{names.index(change.tool)}]" if change.tool in names else "tools"


def _both_tools(parted: PartedPrompt, branch: Branch) -> tuple[list[Tool], list[Tool]]:
    """The earlier request's tools and this one's, in order, as the template writes them and as far as the branch is known."""
    place, text = parted.character(branch.at), parted.text
    first = parted.asked.messages[0] if parted.asked.messages else {}
    _, end = span_of(text, first)
    begin = end if end <= place and first.get("role") in ("system", "developer") else 0
    begin = max(begin, place - _LEAD)
    then = parted.decode(branch.was)
    was, now = list(_read_tools(text[begin:place] + then)), list(_read_tools(text[begin : place + len(then) + _LEAD]))
    now = now[: len(parted.asked.tools or ())]
    known_to_its_end = len(branch.was) < _WHOLE * TOKEN_BYTES
    return was, now if known_to_its_end else now[: len(was)]


def _read_tools(text: str) -> Iterator[Tool]:
    """JSON objects with a name that stand side by side."""
    decoder, place, last = json.JSONDecoder(), text.find("{"), None
    for _ in range(_TRIED):
        if place < 0 or (last is not None and place - last > _APART):
            return
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            tool = _function(value)
            if isinstance(tool.get("name"), str) and "arguments" not in tool and len(tool) > 1:
                last = end
                yield tool
        place = text.find("{", end)


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Name, description and parameters, without the fields that no template writes."""
    function = tool.get("function", tool)
    return function if isinstance(function, dict) else tool


def _names(tools: Sequence[Tool]) -> list[str]:
    return [str(tool.get("name")) for tool in tools]


def _same_agent(was: Sequence[Tool], now: Sequence[Tool], met: bool) -> bool:
    """Whether both are meant to be the same: most tools in common, or what follows them is equal again."""
    common = len(set(_names(was)) & set(_names(now)))
    if not was or not now:
        return met
    return common * 2 >= min(len(was), len(now))


def _compare(was: Sequence[Tool], now: Sequence[Tool]) -> _Change | None:
    before, after = _names(was), _names(now)
    if before != after and sorted(before) == sorted(after):
        return _Change("AC202", "the tools are an earlier request's in another order", None, *_listed(before, after))
    if before != after:
        added, gone = [name for name in after if name not in before], [name for name in before if name not in after]
        words = [f"{', '.join(names)} {verb}" for names, verb in ((added, "added"), (gone, "removed")) if names]
        if not words:
            return None
        return _Change("AC301", f"the set of tools changed: {'; '.join(words)}", None, *_listed(before, after))
    for index, (old, new) in enumerate(zip(was, now, strict=True)):
        one, other = json.dumps(old, ensure_ascii=False), json.dumps(new, ensure_ascii=False)
        if one == other:
            continue
        shown = _excerpts(one, other)
        if old == new:
            message = f"the schema of the tool {after[index]} is written with its keys or numbers in another way"
            return _Change("AC201", message, after[index], *shown)
        return _Change("AC302", f"the schema of the tool {after[index]} changed", after[index], *shown)
    return None


def _listed(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    return ", ".join(before)[:_SHOWN], ", ".join(after)[:_SHOWN]


def _excerpts(one: str, other: str) -> tuple[str, str]:
    first = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, first - _SHOWN // 2)
    return one[start : start + _SHOWN], other[start : start + _SHOWN]
