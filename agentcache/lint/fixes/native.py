"""From a change of a request's body, which is always that of a chat completion, to the same change of the file's own record.

::

    body:    messages[0].content                "You are …\\n\\nBe brief."
    record:  system[0].text, system[1].text     "You are …"  "Be brief."       a change inside one of them can be made

Whatever cannot be said exactly in the record's own terms is refused, and what was made is read again by the file's reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from agentcache.lint.fixes.changes import AddedMember, Change, OrderChange, TextChange, at, changes_between
from agentcache.lint.fixes.json_text import NotExactError, same, same_value
from agentcache.lint.records import Body, Keys, Places


def native_changes(changes: Iterable[Change], body: Body, places: Places, source: Any) -> Iterator[Change]:
    """The same changes, of the record's own JSON.

    Args:
        changes: of ``body``.
        places: where the parts of ``body`` stand in ``source``.
        source: the record.

    Raises:
        NotExactError: the record does not have such a part in one piece.
    """
    for change in changes:
        path = places.find(change.keys).path.removesuffix(".")  # the body itself, where it stands in something
        keys = keys_of(path, source)
        if keys is None:
            raise NotExactError(f"what would be changed has no place of its own in the file ({path or 'the record'})")
        yield from _native(change, at(body, change.keys), places, source, keys)


def _native(change: Change, old: Any, places: Places, source: Any, keys: Keys) -> Iterator[Change]:
    there = at(source, keys)
    if isinstance(change, TextChange):
        yield from _native_text(change, old, places, source, keys)
    elif isinstance(change, OrderChange):
        children = there.keys() if isinstance(there, Mapping) else range(len(there)) if isinstance(there, list) else ()
        if type(there) is not type(old) or set(children) != set(change.order):
            raise NotExactError("the file has more or other parts there than the prompt")
        yield replace(change, keys=keys)
    elif same(there, old):
        if isinstance(change, AddedMember) and any(isinstance(key, int) for key in change.keys[-1:]):
            _expect_own_place(change, places, source, keys)
        yield replace(change, keys=keys)
    else:
        raise NotExactError("the file says it in another form than the prompt")


def _expect_own_place(change: AddedMember, places: Places, source: Any, keys: Keys) -> None:
    """A member's name means the same in the file only where the file's object is the body's own."""
    path = places.find((*change.keys, change.name)).path
    around = places.find(change.keys).path
    if path == around or keys_of(path.removesuffix(f".{change.name}"), source) != keys:
        raise NotExactError(f"the file has no {change.name!r} there")


def _native_text(change: TextChange, old: str, places: Places, source: Any, keys: Keys) -> Iterator[Change]:
    there = at(source, keys)
    if there == old:
        yield replace(change, keys=keys)
    elif isinstance(there, (Mapping, list)) and _says(old, there):
        yield from _native_json(change, old, there, keys)
    else:
        yield _native_piece(change, old, places, source)


def _says(text: str, value: Any) -> bool:
    """``text`` is ``value`` as JSON."""
    try:
        return same_value(json.loads(text), value)
    except ValueError:
        return False


def _native_json(change: TextChange, old: str, there: Any, keys: Keys) -> Iterator[Change]:
    """A change of what is text in the prompt, and JSON in the file."""
    try:
        after = json.loads(old[: change.start] + change.content + old[change.end :])
    except ValueError:
        raise NotExactError("the file has it as JSON, and the prompt would have other text") from None
    changes = list(changes_between(there, after, keys))
    if not changes:
        raise NotExactError("the file has it as JSON; how that is written as text is not for the file to say")
    yield from changes


def _native_piece(change: TextChange, old: str, places: Places, source: Any) -> TextChange:
    """A change inside one of the strings that the body's was joined from."""
    first = places.find(change.keys, change.start)
    last = places.find(change.keys, max(change.start, change.end - 1))  # just behind it another piece may begin
    keys = keys_of(first.path, source)
    if first.path != last.path or first.char is None or last.char is None or keys is None:
        raise NotExactError("the file has this text in several pieces")
    there, end = at(source, keys), last.char + (change.end > change.start)
    if not isinstance(there, str) or there[first.char : end] != old[change.start : change.end]:
        raise NotExactError("the file has this text in another form")
    return TextChange(keys, first.char, end, change.content)


def keys_of(path: str, value: Any) -> Keys | None:
    """The keys of a path in ``value``; ``None`` where it has no such path, or where several could be meant.

    ``a.b`` may be the member ``b`` of ``a``, or a member called ``a.b``.
    """
    found = list(_keys(f".{path}" if path and not path.startswith("[") else path, value, ()))
    return found[0] if len(found) == 1 else None


def _keys(path: str, value: Any, before: Keys) -> Iterator[Keys]:
    if not path:
        yield before
    elif isinstance(value, Mapping):
        for name, child in value.items():
            head = f".{name}"
            if path.startswith(head) and path[len(head) : len(head) + 1] in ("", ".", "["):
                yield from _keys(path[len(head) :], child, (*before, name))
    elif isinstance(value, list) and path.startswith("["):
        number, closed, rest = path[1:].partition("]")
        if closed and number.isdecimal() and int(number) < len(value):
            yield from _keys(rest, value[int(number)], (*before, int(number)))
