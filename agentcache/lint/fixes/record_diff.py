"""What mending changes in records, for people: lines of several thousand characters would hide it.

::

    --- a/run.jsonl
    +++ b/run.jsonl
    @@ lines 3-12, 15, tools @@
    -run_tests, read_file, search
    +read_file, search, run_tests
    @@ line 3, messages[0].content @@
    -"…the same 3 rules: a,  b and …"
    +"…the same 3 rules: a, b and …"

It is no patch: ``patch`` and ``git apply`` pass over it, and take the diffs of sources that stand beside it.  ``--fix`` writes.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentcache.lint.fixes.changes import Change, OrderChange, TextChange, ValueChange, at, changes_between
from agentcache.lint.fixes.json_text import NotExactError
from agentcache.lint.records import path_of

_AROUND = 40
"""Characters beside what changes."""
_LONGEST = 160
_MOST_RANGES = 8
_BOM = b"\xef\xbb\xbf"


def records_diff(name: str, before: Path, after: Path, changed: Sequence[int]) -> str:
    """
    Args:
        before, after: the file as it is, and as it would be; never held as a whole.
        changed: the lines that were replaced by one line each, from 1, in order.
    """
    hunks: dict[_Hunk, list[int]] = {}
    wanted = set(changed)
    with before.open("rb") as old, after.open("rb") as new:
        for number, (line, mended) in enumerate(zip(old, new, strict=False), start=1):
            if number in wanted:
                for hunk in _hunks(line.removeprefix(_BOM), mended.removeprefix(_BOM)):
                    hunks.setdefault(hunk, []).append(number)
    return f"--- a/{name}\n+++ b/{name}\n" + "".join(hunk.shown(lines) for hunk, lines in hunks.items())


class _Hunk(NamedTuple):
    """One change, which many records may have."""

    path: str
    removed: str
    added: str

    def shown(self, lines: Sequence[int]) -> str:
        head = f"@@ {_ranges(lines)}{', ' if self.path else ''}{self.path} @@\n"
        return head + (f"-{self.removed}\n" if self.removed else "") + f"+{self.added}\n"


def _ranges(lines: Sequence[int]) -> str:
    """``line 3``, ``lines 3-5, 9``, ``lines 1, 3, …, and 40 more``."""
    ranges: list[list[int]] = []
    for number in lines:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    shown = ", ".join("-".join(map(str, each)) for each in ranges[:_MOST_RANGES])
    left = sum(each[-1] - each[0] + 1 for each in ranges[_MOST_RANGES:])
    return f"line{'s' if len(lines) > 1 else ''} {shown}{f' and {left:,} more' if left else ''}"


def _hunks(old: bytes, new: bytes) -> Iterator[_Hunk]:
    before = json.loads(old)
    try:
        changes = list(changes_between(before, json.loads(new)))
    except NotExactError:  # a field was taken away: no fix does that, and still it would have to be seen
        yield _Hunk("", _cut(old.decode("utf-8", "replace")), _cut(new.decode("utf-8", "replace")))
        return
    for change in changes:
        yield _Hunk(path_of(change.keys), *_sides(change, at(before, change.keys)))


def _sides(change: Change, old: Any) -> tuple[str, str]:
    """What stands there, and what would."""
    if isinstance(change, TextChange):
        return _texts(change, old)
    if isinstance(change, OrderChange):
        names = {key: _name(key, child) for key, child in _children(old)}
        return _cut(", ".join(names.values())), _cut(", ".join(names[key] for key in change.order))
    if isinstance(change, ValueChange):
        return json.dumps(old), json.dumps(change.value)
    return "", _cut(f"{json.dumps(change.name)}: {json.dumps(change.value, ensure_ascii=False)}")


def _texts(change: TextChange, old: str) -> tuple[str, str]:
    """The text around the change; characters that look alike are written as their numbers."""
    gone = old[change.start : change.end]
    alike = unicodedata.normalize("NFC", gone) == unicodedata.normalize("NFC", change.content)
    start, end = max(0, change.start - _AROUND), min(len(old), change.end + _AROUND)
    head = ("…" if start else "") + _spelled(old[start : change.start])
    tail = _spelled(old[change.end : end]) + ("…" if end < len(old) else "")
    sides = (f'"{head}{_cut(_spelled(part, ascii_only=alike))}{tail}"' for part in (gone, change.content))
    return next(sides), next(sides)


def _spelled(text: str, *, ascii_only: bool = False) -> str:
    written = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in written)


def _children(value: Any) -> Iterator[tuple[str | int, Any]]:
    return iter(value.items()) if isinstance(value, Mapping) else enumerate(value)


def _name(key: str | int, child: Any) -> str:
    """A tool's name, the key of an object's member, or the item itself."""
    if isinstance(key, str):
        return key
    function = child.get("function") if isinstance(child, Mapping) else None
    holder = function if isinstance(function, Mapping) else child
    name = holder.get("name") if isinstance(holder, Mapping) else None
    return name if isinstance(name, str) else _cut(json.dumps(child, ensure_ascii=False), 40)


def _cut(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
