"""Why two lists of tools are not the same text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentcache_sdk._look.texts import set_change, shown, slot_changes, span, writing_change


@dataclass(frozen=True, slots=True)
class ToolChange:
    """
    Attributes:
        first: index of the first tool that is not as before: it and everything behind it is computed again.
        char: offset in the text at ``path``, where that is a text.
    """

    code: str
    path: str
    first: int
    before: str
    after: str
    char: int | None = None
    severity: str = "warning"


def tool_change(earlier: tuple[str, ...], later: tuple[str, ...]) -> ToolChange | None:
    """The first difference; tools as JSON.  ``None``: there is none."""
    first = next((i for i, (a, b) in enumerate(zip(earlier, later, strict=False)) if a != b), None)
    if first is None:
        first = min(len(earlier), len(later))
        return None if len(earlier) == len(later) else _set_changed(earlier, later, first)
    names = [[_name(tool) for tool in tools] for tools in (earlier, later)]
    if sorted(names[0]) != sorted(names[1]):
        return _set_changed(earlier, later, first)
    if names[0] != names[1]:
        first = next(i for i, (a, b) in enumerate(zip(*names, strict=True)) if a != b)
        return ToolChange("AC202", f"tools[{first}]", first, _listed(names[0]), _listed(names[1]))
    return _schema_changed(json.loads(earlier[first]), json.loads(later[first]), first)


def in_common(earlier: tuple[str, ...], later: tuple[str, ...]) -> int:
    """How many names both have."""
    return len({_name(tool) for tool in earlier} & {_name(tool) for tool in later})


def _name(tool: str) -> str:
    value = json.loads(tool) if tool.startswith("{") else {}
    function = value.get("function")
    return str((function if isinstance(function, dict) else value).get("name"))


def _listed(names: list[str]) -> str:
    return shown(", ".join(names))


def _set_changed(earlier: tuple[str, ...], later: tuple[str, ...], first: int) -> ToolChange:
    names = [[_name(tool) for tool in tools] for tools in (earlier, later)]
    gone, new = ([name for name in names[i] if name not in names[1 - i]] for i in (0, 1))
    return ToolChange(
        "AC301", "tools", first, _listed(gone) or _listed(names[0]), _listed(new) or f"without {_listed(gone)}"
    )


def _schema_changed(a: Any, b: Any, first: int) -> ToolChange:
    for path, mine, theirs in _differences(a, b, f"tools[{first}]"):
        return _named(path, first, mine, theirs)
    raise AssertionError("two different JSON texts without a difference")


def _differences(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Places where two values are not written the same, in the order of the later one."""
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            yield path, a, b
            return
        for key in b:
            yield from _differences(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and not _reordered(a, b):
        for index, (mine, theirs) in enumerate(zip(a, b, strict=True)):
            yield from _differences(mine, theirs, f"{path}[{index}]")
    elif json.dumps(a) != json.dumps(b):
        yield path, a, b


def _named(path: str, first: int, a: Any, b: Any) -> ToolChange:
    if isinstance(a, str) and isinstance(b, str):
        where = span(a, b)
        changes = [c for c in (writing_change(a, b, where.head), set_change(a, b, where)) if c]
        if changes := changes or slot_changes(a, b, where):
            change = changes[0]
            return ToolChange(change.code, path, first, change.before, change.after, change.char, change.severity)
        return ToolChange("AC302", path, first, shown(a), shown(b), where.head)
    code = "AC302"
    if isinstance(a, list) and isinstance(b, list) and _reordered(a, b):
        code = "AC203"
    elif _canonical(a) == _canonical(b):
        code = "AC201"
    return ToolChange(code, path, first, _brief(a), _brief(b))


def _reordered(a: list[Any], b: list[Any]) -> bool:
    mine, theirs = [_canonical(item) for item in a], [_canonical(item) for item in b]
    return mine != theirs and sorted(mine) == sorted(theirs)


def _canonical(value: Any) -> str:
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return shown(", ".join(value))
    return shown(json.dumps(value, ensure_ascii=False))
