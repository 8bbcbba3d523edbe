"""What is to be changed in a record's JSON, and how that is written into the text that it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.chat.text import common_length
from agentcache.lint.fixes.json_text import Node, NotExactError, Style, begin_of, same, scan
from agentcache.lint.records import Keys


@dataclass(frozen=True, slots=True)
class TextChange:
    """Characters ``[start, end)`` of the string at ``keys`` become ``content``."""

    keys: Keys
    start: int
    end: int
    content: str


@dataclass(frozen=True, slots=True)
class ValueChange:
    """The number, truth value or null at ``keys`` becomes ``value``."""

    keys: Keys
    value: Any


@dataclass(frozen=True, slots=True)
class OrderChange:
    """The children of the list or object at ``keys``, all of them, stand in another order: that of ``order``."""

    keys: Keys
    order: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class AddedMember:
    """The object at ``keys`` gets one more member, at its end."""

    keys: Keys
    name: str
    value: Any


Change = TextChange | ValueChange | OrderChange | AddedMember


def changes_between(before: Any, after: Any, keys: Keys = ()) -> Iterator[Change]:
    """The smallest changes that make ``after`` of ``before``.

    Raises:
        NotExactError: something would be taken away, or a value would be of another kind.
    """
    if before is after or same(before, after):
        return
    if isinstance(before, str) and isinstance(after, str):
        yield _text_change(before, after, keys)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _members_changed(before, after, keys)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _items_changed(before, after, keys)
    elif _is_plain(before) and _is_plain(after):
        yield ValueChange(keys, after)
    else:
        raise NotExactError("it would put a value of another kind in its place")


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float))  # truth values too


def _text_change(before: str, after: str, keys: Keys) -> TextChange:
    start = common_length(before, after)
    shorter = min(len(before), len(after)) - start
    tail = common_length(before[: -shorter - 1 : -1], after[: -shorter - 1 : -1]) if shorter else 0
    return TextChange(keys, start, len(before) - tail, after[start : len(after) - tail])


def _members_changed(before: Mapping[str, Any], after: Mapping[str, Any], keys: Keys) -> Iterator[Change]:
    if missing := [name for name in before if name not in after]:
        raise NotExactError(f"it would take {missing[0]!r} away")
    kept = [name for name in after if name in before]
    if kept != list(before):
        yield OrderChange(keys, tuple(kept))
    for name, value in before.items():
        yield from changes_between(value, after[name], (*keys, name))
    for name in after:
        if name not in before:
            yield AddedMember(keys, name, after[name])


def _items_changed(before: Sequence[Any], after: Sequence[Any], keys: Keys) -> Iterator[Change]:
    if len(before) != len(after):
        raise NotExactError(f"it would make {len(after)} items of {len(before)}")
    order = _order(before, after)
    if order is not None:
        yield OrderChange(keys, order)
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        yield from changes_between(old, new, (*keys, index))


def _order(before: Sequence[Any], after: Sequence[Any]) -> tuple[int, ...] | None:
    """Which item of ``before`` stands at each place of ``after``; ``None`` when they are not the same items."""
    free = list(range(len(before)))
    order = []
    for item in after:
        index = next((index for index in free if same(before[index], item)), None)
        if index is None:
            return None
        free.remove(index)
        order.append(index)
    return tuple(order)


def at(value: Any, keys: Keys) -> Any:
    """The value at ``keys``."""
    for key in keys:
        value = value[key]
    return value


def applied(value: Any, changes: Sequence[Change], keys: Keys = ()) -> Any:
    """``value`` with ``changes`` made; what they leave alone is shared, not copied."""
    mine = [change for change in changes if change.keys[: len(keys)] == keys]
    if not mine:
        return value
    here = [change for change in mine if change.keys == keys]
    if here and isinstance(here[0], TextChange):
        edit = here[0]
        return value[: edit.start] + edit.content + value[edit.end :]
    if here and isinstance(here[0], ValueChange):
        return here[0].value
    children: Iterator[Any] = iter(value.items() if isinstance(value, Mapping) else enumerate(value))
    new = {key: applied(child, mine, (*keys, key)) for key, child in children}
    for order in (change.order for change in here if isinstance(change, OrderChange)):
        new = {key: new[key] for key in order}
    new |= {added.name: added.value for added in here if isinstance(added, AddedMember)}
    return new if isinstance(value, Mapping) else list(new.values())


def rewritten(text: str, changes: Sequence[Change]) -> str:
    """The JSON ``text`` with ``changes`` made; whatever they leave alone stays byte for byte.

    Raises:
        NotExactError: an object has a name twice.
    """
    root = scan(text)
    return text[: root.start] + _Writer(text, Style.of(text, root)).write(root, changes, ()) + text[root.end :]


@dataclass(frozen=True, slots=True)
class _Writer:
    text: str
    style: Style

    def write(self, node: Node, changes: Sequence[Change], keys: Keys) -> str:
        """The text of ``node``, which lies at ``keys``."""
        raw = self.text[node.start : node.end]
        mine = [change for change in changes if change.keys[: len(keys)] == keys]
        if not mine:
            return raw
        here = [change for change in mine if change.keys == keys]
        if here and isinstance(here[0], TextChange):
            return self.style.replace(raw, here[0].start, here[0].end, here[0].content)
        if here and isinstance(here[0], ValueChange):
            return self.style.dump(here[0].value)
        children = {key: self._child(node, key, mine, keys) for key in node.children}
        order = next((change.order for change in here if isinstance(change, OrderChange)), tuple(children))
        return self._joined(node, [children[key] for key in order], here)

    def _child(self, node: Node, key: str | int, changes: Sequence[Change], keys: Keys) -> str:
        """A child's text, with its name."""
        child = node.children[key]
        return self.text[begin_of(node, key) : child.start] + self.write(child, changes, (*keys, key))

    def _joined(self, node: Node, children: Sequence[str], here: Sequence[Change]) -> str:
        """Children with what stood between them, whatever their order."""
        begins = [begin_of(node, key) for key in node.children]
        ends = [child.end for child in node.children.values()]
        gaps = [self.text[end:begin] for end, begin in zip(ends, begins[1:], strict=False)]
        pieces = [piece for pair in zip(children, [*gaps, ""], strict=False) for piece in pair]
        comma = gaps[-1] if gaps else self.style.comma
        for change in here:
            if isinstance(change, AddedMember):
                member = f"{self.style.dump(change.name)}{self.style.colon}{self.style.dump(change.value)}"
                pieces += [comma if pieces else "", member]
        head = self.text[node.start : begins[0]] if begins else self.text[node.start]
        tail = self.text[ends[-1] : node.end] if ends else self.text[node.end - 1]
        return head + "".join(pieces) + tail
