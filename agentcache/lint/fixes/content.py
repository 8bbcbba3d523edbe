"""That a repair loses nothing: each kind of defect may be mended by one kind of change only."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agentcache.lint.fixes.changes import AddedMember, Change, OrderChange, TextChange, applied, at
from agentcache.lint.fixes.json_text import same_value
from agentcache.lint.records import Body

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(/)")
_WORD = re.compile(r"\w+|[^\w\s]")
_REASONING = frozenset({"reasoning_content", "reasoning", "thinking"})

_Check = Callable[[Body, Sequence[Change]], "str | None"]


def lost_content(code: str, body: Body, changes: Sequence[Change]) -> str | None:
    """What a repair would lose or make up; ``None`` when it only does what a repair of ``code`` may do.

    Args:
        body: the request as it is.
        changes: of ``body``.
    """
    return _CHECKS.get(code, _words_kept)(body, changes)


def _texts(body: Body, changes: Sequence[Change]) -> Iterator[tuple[str, str]]:
    """Strings that change, before and after."""
    after = applied(body, changes)
    for change in changes:
        if isinstance(change, TextChange):
            yield at(body, change.keys), at(after, change.keys)


def _by_text(equal: Callable[[str, str], bool], words: str) -> _Check:
    def check(body: Body, changes: Sequence[Change]) -> str | None:
        if not all(isinstance(change, TextChange) for change in changes):
            return "it would change more than texts"
        return None if all(equal(old, new) for old, new in _texts(body, changes)) else words

    return check


def _equal_but_blanks(old: str, new: str) -> bool:
    return "".join(old.split()) == "".join(new.split())


def _equal_but_form(old: str, new: str) -> bool:
    return unicodedata.normalize("NFC", old) == unicodedata.normalize("NFC", new)


def _equal_but_escapes(old: str, new: str) -> bool:
    return _unescaped(old) == _unescaped(new)


def _unescaped(text: str) -> str:
    try:
        return (
            _ESCAPE.sub(lambda match: match[2] or chr(int(match[1], 16)), text)
            .encode("utf-16", "surrogatepass")
            .decode("utf-16")
        )
    except UnicodeDecodeError:  # half a character
        return text


def _equal_as_json(old: str, new: str) -> bool:
    try:
        return same_value(json.loads(old), json.loads(new))
    except ValueError:
        return False


def _equal_but_writing(old: str, new: str) -> bool:
    return _equal_but_escapes(old, new) or _equal_as_json(old, new)


def _order_only(body: Body, changes: Sequence[Change]) -> str | None:
    only = all(isinstance(change, OrderChange) for change in changes)
    return None if only else "it would change more than an order"


def _json_kept(body: Body, changes: Sequence[Change]) -> str | None:
    """Order and spelling may change, also of JSON inside a string; values may not."""
    if any(isinstance(change, AddedMember) for change in changes):
        return "it would add something"
    after = applied(body, changes)
    for change in changes:
        old, new = at(body, change.keys), at(after, change.keys)
        if isinstance(old, str) and not _equal_but_writing(old, new):
            return "it would change more than how JSON is written"
        if not isinstance(old, (str, list, Mapping)) and not same_value(old, new):
            return "it would change a value"
    return None


def _words_sorted(body: Body, changes: Sequence[Change]) -> str | None:
    """An order may change, also that of words in a text."""
    equal = all(Counter(_WORD.findall(old)) == Counter(_WORD.findall(new)) for old, new in _texts(body, changes))
    rest = [change for change in changes if not isinstance(change, TextChange)]
    return "it would change more than an order" if not equal else _order_only(body, rest)


def _ids_renamed(body: Body, changes: Sequence[Change]) -> str | None:
    """Every call's id becomes another one, the same wherever it stands, and no two become one."""
    if not all(
        isinstance(change, TextChange) and change.keys[-1:] in (("id",), ("tool_call_id",)) for change in changes
    ):
        return "it would change more than ids of calls"
    before, after = list(_ids(body)), list(_ids(applied(body, changes)))
    pairs = set(zip(before, after, strict=True))
    one_to_one = len(pairs) == len(set(before)) == len(set(after))
    return None if one_to_one else "it would not give each call one id of its own"


def _ids(body: Body) -> Iterator[str]:
    for message in body.get("messages") or ():
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping) and "id" in call:
                yield str(call["id"])
        if "tool_call_id" in message:
            yield str(message["tool_call_id"])


def _reasoning_added(body: Body, changes: Sequence[Change]) -> str | None:
    only = all(isinstance(change, AddedMember) and change.name in _REASONING for change in changes)
    return None if only else "it would change more than the reasoning"


def _words_kept(body: Body, changes: Sequence[Change]) -> str | None:
    """Text may move inside the request; none may go."""
    before, after = _words(body), _words(applied(body, changes))
    gone = before - after
    return f"it would lose {next(iter(gone))!r}" if gone else None


def _words(value: Any) -> Counter[str]:
    if isinstance(value, str):
        return Counter(_WORD.findall(value))
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return sum((_words(child) for child in children), Counter())


_CHECKS: Mapping[str, _Check] = MappingProxyType(
    {
        "AC201": _json_kept,
        "AC202": _order_only,
        "AC203": _words_sorted,
        "AC204": _by_text(_equal_but_blanks, "it would change more than blanks"),
        "AC205": _by_text(_equal_but_form, "it would change more than the Unicode form"),
        "AC206": _by_text(_equal_but_writing, "it would change more than how JSON is written"),
        "AC207": _json_kept,
        "AC208": _ids_renamed,
        "AC405": _reasoning_added,
    }
)
