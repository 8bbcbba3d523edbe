"""Calls of models, the lists of messages that they send, and the loops that send the same list again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from agentcache.lint.python.counters import LISTS
from agentcache.lint.python.module import Module, is_self, item_of, keyword_of, last_word
from agentcache.lint.python.names import Here, Names, arguments_of
from agentcache.lint.python.places import Loop, Point, Scope

Key: TypeAlias = "tuple[Scope, str]"
"""A list: the scope that its name belongs to, or the class whose attribute it is."""

_API = re.compile(
    r"""(?:^|\.) (?: (?:completions|responses|messages)\.(?:create|parse|stream)
      | a?completion | a?invoke | astream | a?chat | a?generate | generate_content | a?complete | create_message
      | create_completion | chat_completion | acompletion_with_retry )$""",
    re.VERBOSE,
)
_SENDING = re.compile(
    r"create|complet|chat|generate|invoke|stream|ask|llm|send|query|predict|respon|call|run|agent|model|infer|post|dict",
    re.IGNORECASE,
)
"""Words in the names of functions that may send what they are given as messages."""
_NO_MODEL = re.compile(
    r"token|count|merge|save|dump|log|print|render|template|format|hash|len|summar|compact|store|write|title",
    re.IGNORECASE,
)
_POSITIONAL = {
    *("invoke", "ainvoke", "stream", "astream", "chat", "achat"),
    *("generate", "agenerate", "complete", "acomplete"),
}
_COPIES = {"list", "tuple", "copy.copy", "copy.deepcopy"}


@dataclass(frozen=True, slots=True)
class Send:
    """A call of a model, or the body of one that is written out.

    Attributes:
        messages: ``None``: it sends no list.
        options: the other arguments that are given by name.
    """

    point: Point
    messages: ast.expr | None
    options: Mapping[str, ast.expr]


@dataclass(frozen=True, slots=True)
class Turn:
    """Code that sends the same list again and again.

    Attributes:
        loop: ``None``: the function as a whole, which is called for each turn.
        until: the order of the statement that sends the list once more, where both stand one behind the other.
    """

    key: Key
    send: Send
    loop: Loop | None
    until: int | None = None

    def holds(self, point: Point) -> bool:
        """The statement runs in each turn, or can."""
        sent = self.send.point
        if self.until is not None:
            return point.scope is sent.scope and sent.order < point.order < self.until and sent.may_reach(point)
        if self.loop is None:
            return point.scope is self.send.point.scope
        return self.loop in point.loops


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the list that is sent: an expression that was followed, and the list it is, if it is one with a name."""

    node: ast.expr
    here: Here
    key: Key | None = None


def sends_of(module: Module) -> Iterator[Send]:
    """All calls of models."""
    for call, point in module.calls:
        name = ast_name(call.func)
        if _NO_MODEL.search(last_word(call.func)) or not _SENDING.search(last_word(call.func)):
            continue
        messages = keyword_of(call, "messages")
        if messages is None and (
            last_word(call.func) in ("create", "parse", "stream", "run", "run_sync", "run_streamed")
        ):
            messages = keyword_of(call, "input") or keyword_of(call, "message_history")
        api = _API.search(name) is not None
        positional = last_word(call.func) in _POSITIONAL and bool(call.args)
        if messages is None and positional and _is_history(call.args[0]):
            messages = call.args[0]
        if messages is not None or (api and keyword_of(call, "model") is not None):
            yield Send(point, messages, {word.arg: word.value for word in call.keywords if word.arg is not None})
    for node, point in module.dicts:
        messages, model = item_of(node, "messages") or item_of(node, "input"), item_of(node, "model")
        if messages is not None and model is not None:
            pairs = zip(node.keys, node.values, strict=True)
            yield Send(
                point, messages, {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
            )


def _is_history(node: ast.expr) -> bool:
    """``messages``, ``state["messages"][-9:]``, ``[head] + history`` …"""
    if isinstance(node, ast.BinOp):
        return _is_history(node.left) or _is_history(node.right)
    if isinstance(node, ast.List):
        return any(isinstance(part, ast.Starred) and _is_history(part.value) for part in node.elts)
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Slice):
            return _is_history(node.value)
        return isinstance(node.slice, ast.Constant) and LISTS.search(str(node.slice.value)) is not None
    return LISTS.search(last_word(node)) is not None


def ast_name(node: ast.expr) -> str:
    """``client.chat.create``, with whatever stands before the last dots left out."""
    words = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    words.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(words))


def key_of(node: ast.expr, point: Point) -> Key | None:
    """The list that a name or ``self.name`` is."""
    if isinstance(node, ast.Attribute) and is_self(node.value) and point.scope.home is not None:
        return point.scope.home, node.attr
    if not isinstance(node, ast.Name):
        return None
    scope: Scope | None = point.scope
    while scope is not None:
        if node.id in scope.definitions and (scope is point.scope or not isinstance(scope.node, ast.ClassDef)):
            return scope, node.id
        scope = scope.parent
    return None


def parts_of(names: Names, node: ast.expr, here: Here) -> Iterator[Part]:
    """What a list of messages is put together from: names, slices and written lists, followed to where they are set."""
    seen: set[tuple[int, int]] = set()

    def follow(node: ast.expr, here: Here) -> Iterator[Part]:
        if here.too_deep or (id(node), id(here.point)) in seen or len(seen) > 200:
            return
        seen.add((id(node), id(here.point)))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from follow(node.left, here)
            yield from follow(node.right, here)
        elif isinstance(node, ast.List):
            yield Part(node, here)
            for part in node.elts:
                if isinstance(part, ast.Starred):
                    yield from follow(part.value, here)
        elif isinstance(node, ast.IfExp):
            yield from follow(node.body, here)
            yield from follow(node.orelse, here)
        elif isinstance(node, ast.BoolOp):
            for part in node.values:
                yield from follow(part, here)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            yield Part(node, here)
            yield from follow(node.value, here)
        elif isinstance(node, ast.Call):
            yield from called(node, here)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield from named(node, here)

    def called(node: ast.Call, here: Here) -> Iterator[Part]:
        if names.module.imported(node.func) in _COPIES and node.args:
            yield from follow(node.args[0], here)
        elif last_word(node.func) == "copy" and isinstance(node.func, ast.Attribute):
            yield from follow(node.func.value, here)
        elif names.module.imported(node.func) == "collections.deque":
            yield Part(node, here)
        else:
            scope = names.function(node.func, here)
            for value, point in () if scope is None else scope.returns:
                yield from follow(value, here.at(point, arguments_of(node, scope, here) if scope else {}))

    def named(node: ast.Name | ast.Attribute, here: Here) -> Iterator[Part]:
        if isinstance(node, ast.Name) and node.id in here.bound:
            bound = here.bound[node.id]
            if not bound.element:
                yield from follow(bound.value, bound.here.at(bound.here.point))
            return
        key = key_of(node, here.point)
        yield Part(node, here, key)
        meaning = names.meaning(node.id, here) if isinstance(node, ast.Name) else names.attribute(node, here)
        for definition in () if meaning is None else meaning.definitions:
            if definition.value is not None and definition.kind in ("value", "add"):
                yield from follow(definition.value, meaning.at(definition) if meaning else here)

    return follow(node, here)


def turns_of(module: Module, names: Names, sends: list[Send]) -> Iterator[Turn]:
    """The lists that are kept from turn to turn, and the code that runs in each turn."""
    before: dict[Key, Send] = {}
    for send in sorted(sends, key=lambda send: send.point.order):
        if send.messages is None:
            continue
        keys = {part.key for part in parts_of(names, send.messages, Here(send.point)) if part.key is not None}
        for key in sorted(keys, key=lambda key: (key[0].name, key[1])):
            scope, name = key
            if scope is not send.point.scope:
                if isinstance(scope.node, ast.ClassDef | ast.Module) and not send.point.scope.is_init:
                    yield Turn(key, send, None)
                continue
            yield from _turns_of_name(scope, name, send, before.get(key))
            before[key] = send


def _turns_of_name(scope: Scope, name: str, send: Send, earlier: Send | None) -> Iterator[Turn]:
    """Of a list that the function itself has a name for."""
    plain = [found for found in scope.definitions.get(name, ()) if not found.extends and _is_new(found.value, name)]
    for loop in send.point.loops:
        if all(loop not in found.point.loops for found in plain):
            yield Turn((scope, name), send, loop)
            return
    if earlier is not None and not any(earlier.point.order <= found.point.order <= send.point.order for found in plain):
        yield Turn((scope, name), earlier, None, until=send.point.order)


def kept_lists(module: Module) -> set[Key]:
    """Attributes of classes that messages are appended to, whoever sends them."""
    found: set[Key] = set()
    for call, point in module.callers.get("append", ()):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if owner is None or not call.args or not LISTS.search(last_word(owner)):
            continue
        message = call.args[0]
        role = item_of(message, "role") if isinstance(message, ast.Dict) else None
        if isinstance(message, ast.Call):
            role = keyword_of(message, "role")
        key = key_of(owner, point)
        if role is not None and key is not None and isinstance(key[0].node, ast.ClassDef):
            found.add(key)
    return found


def _is_new(value: ast.expr | None, name: str) -> bool:
    """The name gets another list, which is not made from the one that it had."""
    return value is None or not any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(value))
