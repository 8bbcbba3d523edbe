"""Lists inside tool schemas that hold the same items in another order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentcache.lint.leaves import replace_at
from agentcache.lint.parting import Parting
from agentcache.lint.records import Body, Keys


class ReorderedList(NamedTuple):
    """
    Attributes:
        body: the later request with the list, and every other one that differs so, in the order it had.
    """

    keys: Keys
    before: Sequence[Any]
    after: Sequence[Any]
    body: Body


def find_reordered_list(parting: Parting) -> ReorderedList | None:
    """The list that is the first thing in which the tools of two requests differ, when only its order is another."""
    mine, theirs = parting.earlier.record.body, parting.later.record.body
    was, now = mine.get("tools"), theirs.get("tools")
    if parting.settings_changed or parting.same_tools or not isinstance(was, list) or not isinstance(now, list):
        return None
    if len(was) != len(now) or _names(was) != _names(now):
        return None
    found = _first_difference(was, now, ("tools",))
    if found is None:
        return None
    keys, before, after = found
    body = theirs
    while found is not None:
        body = replace_at(body, found[0], found[1])
        found = _first_difference(was, body["tools"], ("tools",))
    return ReorderedList(keys, before, after, body)


_Found = tuple[Keys, Sequence[Any], Sequence[Any]]


def _first_difference(was: Any, now: Any, keys: Keys) -> _Found | None:
    """The first place in which the two are written differently, if that is a list in another order."""
    place = keys
    while True:
        if isinstance(was, dict) and isinstance(now, dict):
            key: str | int | None = _first_written_apart(was, now)
            if key is None:
                return None
        elif isinstance(was, list) and isinstance(now, list):
            if len(place) > 1 and sorted(map(_text, was)) == sorted(map(_text, now)):
                return place, was, now
            if len(was) != len(now):
                return None
            key = next((i for i, (a, b) in enumerate(zip(was, now, strict=True)) if _text(a) != _text(b)), None)
            if key is None:
                return None
        else:
            return None
        was, now, place = was[key], now[key], (*place, key)


def _first_written_apart(was: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first value that differs before the keys come in another order."""
    for a, b in zip(was, now, strict=False):
        if a != b:
            return None
        if _text(was[a]) != _text(now[b]):
            return a
    return None


def _names(tools: Sequence[Any]) -> list[Any]:
    names = []
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        names.append(function.get("name") if isinstance(function, dict) else None)
    return names


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
