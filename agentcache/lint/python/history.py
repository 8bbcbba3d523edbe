"""Messages that were sent before and are changed or dropped: AC401, AC402, AC404, AC405."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from agentcache.lint.python.edited import TEXT_KEYS, edited_place, is_old, number_of, old_messages
from agentcache.lint.python.module import Module, keyword_of, last_word
from agentcache.lint.python.names import Here, names_in
from agentcache.lint.python.places import Point
from agentcache.lint.python.reading import Reader
from agentcache.lint.python.report import Defect
from agentcache.lint.python.sends import Key, Send, Turn, kept_lists, key_of, parts_of

_COMPACTION = re.compile(r"summar|compact|condens|digest|compress", re.IGNORECASE)
_FIRST_TIME = re.compile(r"first|initial|started|is_new|warm", re.IGNORECASE)
_RARELY = 3
"""A history that is cut to less than this part of what it may hold computes few messages again for each that is new."""
_PURE = {"str", "repr", "len", "format", "join", "strip", "dict", "list", "rstrip", "lstrip", "dedent"}


class Histories:
    """Looks for changes of the lists that a module sends."""

    def __init__(self, reader: Reader, sends: Sequence[Send], turns: Sequence[Turn]) -> None:
        self._reader = reader
        self._module: Module = reader.module
        self._sends = sends
        self._turns = turns
        self._keys = {turn.key for turn in turns} | kept_lists(reader.module)

    def defects(self) -> Iterator[Defect]:
        for send in self._sends:
            if send.messages is not None and "previous_response_id" not in send.options:
                yield from self._windows(send)
        for statement, point in self._module.statements:
            yield from self._statement(statement, point)

    # -- AC402

    def _windows(self, send: Send) -> Iterator[Defect]:
        if send.messages is None:
            return
        for part in parts_of(self._reader.names, send.messages, Here(send.point)):
            node = part.node
            if isinstance(node, ast.Subscript):
                count = _window(node)
                if count is not None and not self._is_rare(node, count, part.here.point, send):
                    yield _dropped(node, part.here.point, f"only the newest messages are sent (line {send.point.line})")
            elif isinstance(node, ast.Call):
                limit = keyword_of(node, "maxlen") or (node.args[1] if len(node.args) > 1 else None)
                if limit is not None and not (isinstance(limit, ast.Constant) and limit.value is None):
                    message = (
                        f"a deque with a greatest length drops the oldest messages that line {send.point.line} sends"
                    )
                    yield _dropped(node, part.here.point, message)

    def _is_rare(self, node: ast.Subscript, count: ast.expr, point: Point, send: Send | None = None) -> bool:
        """The window is part of a compaction, or cuts much more off than a turn adds.

        ``send``: what the window is cut for; where the list itself stays as long as it was, the window slides in each turn.
        """
        statement = next((found for found, place in self._module.statements if place is point), None)
        words = f"{point.scope.name} {'' if statement is None else ' '.join(_words(statement))}"
        if _COMPACTION.search(words) or any(_COMPACTION.search(" ".join(_words(test))) for test in point.tests):
            return True
        bounds = [bound for test in point.tests for bound in _bounds(test)]
        if not bounds or (send is not None and _is_view(node.value, statement, point, send)):
            return False
        if any(ast.dump(bound) == ast.dump(count) for bound in bounds):
            return False
        kept, limit = number_of(count), next((number for number in map(number_of, bounds) if number is not None), None)
        return kept is None or limit is None or kept * _RARELY <= limit

    # -- statements in the code of a turn

    def _statement(self, statement: ast.stmt, point: Point) -> Iterator[Defect]:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            yield from self._edited(target, statement.value, point, adds=False)
            yield from self._replaced(target, statement.value, point)
            if isinstance(statement.value, ast.List | ast.Tuple) and not statement.value.elts:
                yield from self._deleted(target, point)
            if isinstance(statement.value, ast.Call):
                yield from self._popped(statement.value, point, taken=True)
        elif isinstance(statement, ast.AugAssign):
            yield from self._edited(statement.target, statement.value, point, adds=True)
        elif isinstance(statement, ast.Delete):
            for target in statement.targets:
                yield from self._deleted(target, point)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield from self._called(statement.value, point)

    def _turn(self, node: ast.expr, point: Point) -> Turn | None:
        """The turn that the statement is in, if ``node`` is the list that the turn sends."""
        key = key_of(node, point)
        return next((turn for turn in self._turns if turn.key == key and turn.holds(point)), None)

    def _edited(self, target: ast.expr, value: ast.expr, point: Point, *, adds: bool) -> Iterator[Defect]:
        place = edited_place(target)
        if place is None:
            yield from self._elided(target, point)
            return
        turn = self._turn(place, point)
        if turn is None or self._is_first(point) or not (adds or self._varies(value, point, turn)):
            return
        yield _edit(target, point, turn)

    def _elided(self, target: ast.expr, point: Point) -> Iterator[Defect]:
        """``for message in messages[:-4]: message["content"] = "…"``: each turn takes the text of one more message away."""
        place = old_messages(target, point.loops)
        turn = None if place is None else self._turn(place, point)
        if turn is not None and turn.loop is not None and not any(True for test in point.tests for _ in _bounds(test)):
            yield _edit(target, point, turn)

    def _varies(self, value: ast.expr, point: Point, turn: Turn) -> bool:
        """The value can be another one in each turn: it comes from what the turn was given, or has worked out."""
        if turn.until is not None:
            return True
        if turn.loop is None:
            return self._is_given(value, point, 0)
        calls = (part for part in ast.walk(value) if isinstance(part, ast.Call))
        if any(last_word(call.func) not in _PURE for call in calls):
            return True
        definitions = (found for name in names_in(value) for found in point.scope.definitions.get(name, ()))
        return any(turn.loop in definition.point.loops for definition in definitions)

    def _is_given(self, value: ast.expr, point: Point, depth: int) -> bool:
        """A parameter of the function gets into it."""
        for name in names_in(value) - {"self", "cls"}:
            for definition in point.scope.definitions.get(name, ()):
                if definition.kind == "parameter":
                    return True
                inner = definition.value
                if inner is not None and inner is not value and depth < 4 and self._is_given(inner, point, depth + 1):
                    return True
        return False

    def _is_first(self, point: Point) -> bool:
        """It runs in the first turn only."""
        for test in point.tests:
            for part in ast.walk(test):
                zero = isinstance(part, ast.Compare) and any(number_of(right) in (0, 1) for right in part.comparators)
                if (zero and isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Eq | ast.LtE)) or (
                    isinstance(part, ast.Name | ast.Attribute) and _FIRST_TIME.search(last_word(part))
                ):
                    return True
                if (
                    isinstance(part, ast.UnaryOp)
                    and isinstance(part.op, ast.Not)
                    and isinstance(part.operand, ast.Name)
                ):
                    return True
        return False

    def _replaced(self, target: ast.expr, value: ast.expr, point: Point) -> Iterator[Defect]:
        """``messages = messages[-10:]`` behind the call of a loop, or in another method of the class."""
        whole = target.value if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice) else target
        key = key_of(whole, point)
        if key is None or key not in self._keys:
            return
        turn = self._turn(whole, point)
        if not isinstance(key[0].node, ast.ClassDef) and (turn is None or turn.until is not None):
            return
        for part in parts_of(self._reader.names, value, Here(point)):
            node = part.node
            count = _window(node) if isinstance(node, ast.Subscript) else None
            if not isinstance(node, ast.Subscript) or count is None or part.here.point is not point:
                continue
            if key_of(node.value, point) == key and not self._is_rare(node, count, point):
                yield _dropped(node, point, "the history that is sent keeps its newest messages only")

    def _deleted(self, target: ast.expr, point: Point) -> Iterator[Defect]:
        """``del messages[1:3]`` and ``del message["reasoning_content"]``."""
        if not isinstance(target, ast.Subscript):
            return
        if isinstance(target.slice, ast.Constant) and target.slice.value in _REASONING:
            yield from self._reasoning(target.value, target, point)
            return
        start = target.slice.lower if isinstance(target.slice, ast.Slice) else target.slice
        low = 0 if start is None else number_of(start)
        if isinstance(target.slice, ast.Slice):
            end = target.slice.upper
            if end is None or (isinstance(end, ast.UnaryOp) and self._is_rare(target, end.operand, point)):
                return  # ``[3:]`` takes the newest away, and what stays is a prefix
        if low is not None and 0 <= low <= 4 and self._drops(target.value, point):
            yield _dropped(target, point, "old messages are taken out of a history that is sent again")

    def _drops(self, node: ast.expr, point: Point) -> bool:
        key = key_of(node, point)
        if key is None or key not in self._keys or _COMPACTION.search(point.scope.name):
            return False
        if isinstance(key[0].node, ast.ClassDef):
            return bool(point.tests or point.loops or self._turn(node, point)) and not point.scope.is_init
        turn = self._turn(node, point)
        return turn is not None and turn.until is None  # once between two calls is a compaction

    def _called(self, call: ast.Call, point: Point) -> Iterator[Defect]:
        if not isinstance(call.func, ast.Attribute):
            return
        word, owner = call.func.attr, call.func.value
        if word == "insert" and call.args:
            yield from self._inserted(call, owner, point)
        elif word == "popleft" or (word == "pop" and len(call.args) == 1 and number_of(call.args[0]) in (0, 1, 2)):
            yield from self._popped(call, point, taken=False)
        elif (
            word == "pop" and call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value in _REASONING
        ):
            yield from self._reasoning(owner, call, point)
        elif word == "update" and isinstance(owner, ast.Subscript) and is_old(owner.slice):
            values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in TEXT_KEYS)]
            turn = self._turn(owner.value, point)
            if (
                turn is not None
                and not self._is_first(point)
                and any(self._varies(part, point, turn) for part in values)
            ):
                yield _edit(call, point, turn)

    def _popped(self, call: ast.Call, point: Point, *, taken: bool) -> Iterator[Defect]:
        """``messages.pop(1)``; the first message that is taken for itself is a system text that is sent apart."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("pop", "popleft"):
            return
        number = number_of(call.args[0]) if call.args else 0 if call.func.attr == "popleft" else None
        if number is None or not 0 <= number <= 2 or (taken and number == 0 and not point.loops):
            return
        of_tools = any("'tool'" in ast.dump(test) for test in point.tests)  # what is left of a call that went before
        if not of_tools and self._drops(call.func.value, point):
            yield _dropped(call, point, "the oldest messages are taken out of a history that is sent again")

    def _inserted(self, call: ast.Call, owner: ast.expr, point: Point) -> Iterator[Defect]:
        index = call.args[0]
        number = number_of(index)
        behind_front = number is not None and 0 <= number <= 2
        before_last = (number is not None and number < 0) or _is_length_less(index)
        turn = self._turn(owner, point) if behind_front or before_last else None
        if turn is None or self._is_first(point) or self._asks_for_role(point, owner):
            return
        yield Defect(
            code="AC404",
            severity="warning",
            confidence="suspected",
            node=call,
            point=point,
            message=f"a message is put in front of others that line {turn.send.point.line} has sent before",
            help="append it: what stands behind an inserted message is computed again",
        )

    def _asks_for_role(self, point: Point, owner: ast.expr) -> bool:
        """``if messages[0]["role"] != "system"``: it is put there once."""
        name = last_word(owner)
        texts = [ast.dump(test) for test in point.tests]
        return any("'role'" in text or "'system'" in text or f"'{name}'" in text for text in texts)

    # -- AC405

    def _reasoning(self, owner: ast.expr, node: ast.expr, point: Point) -> Iterator[Defect]:
        """Reasoning is taken out of each message of a history that is sent."""
        if not isinstance(owner, ast.Name):
            return
        for loop in point.loops:
            if isinstance(loop, ast.While) or not any(name == owner.id for name in names_in(loop.target)):
                continue
            keys: set[Key | None] = {part.key for part in parts_of(self._reader.names, loop.iter, Here(point))} - {None}
            sent = self._sent_keys()
            if keys & sent:
                yield Defect(
                    code="AC405",
                    severity="info",
                    confidence="suspected",
                    node=node,
                    point=point,
                    message="reasoning is taken out of messages that are sent again",
                    help="replay replies with the reasoning that they came with, unless the API refuses it",
                )

    def _sent_keys(self) -> set[Key | None]:
        return {
            part.key
            for send in self._sends
            if send.messages is not None
            for part in parts_of(self._reader.names, send.messages, Here(send.point))
        }


_REASONING = {"reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks"}


def _dropped(node: ast.expr, point: Point, message: str) -> Defect:
    return Defect(
        code="AC402",
        severity="warning",
        confidence="suspected",
        node=node,
        point=point,
        message=f"{message}: each turn that drops one computes all others again",
        help="keep the old messages, or shorten the history rarely and in one go (to a quarter of it, or to a summary)",
    )


def _is_view(whole: ast.expr, statement: ast.stmt | None, point: Point, send: Send) -> bool:
    """The window of ``whole`` is only shown to the model: the next turn cuts it out of the same, longer list.

    It stands in the call itself, gets another name, or replaces a parameter of a function that is called for each turn.
    """
    if point is send.point:
        return True
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or point.scope is not send.point.scope:
        return False
    target, base = key_of(statement.targets[0], point), key_of(whole, point)
    if target is None or base is None:
        return False
    if target != base:
        return not point.loops or not isinstance(base[0].node, ast.FunctionDef | ast.AsyncFunctionDef)
    given = base[0].definitions.get(base[1], ())
    return not send.point.loops and any(definition.kind == "parameter" for definition in given)


def _edit(node: ast.expr, point: Point, turn: Turn) -> Defect:
    return Defect(
        code="AC401",
        severity="warning",
        confidence="suspected",
        node=node,
        point=point,
        message=f"a message that line {turn.send.point.line} has sent before is changed before it is sent again",
        help="leave it as it was sent, and say what is new in a message at the end",
    )


def _window(node: ast.Subscript) -> ast.expr | None:
    """``n`` of ``messages[-n:]`` where that is a conversation's window: not the last message alone."""
    part = node.slice
    if not isinstance(part, ast.Slice) or part.upper is not None or part.step is not None:
        return None
    if not isinstance(part.lower, ast.UnaryOp) or not isinstance(part.lower.op, ast.USub):
        return None
    count = part.lower.operand
    of_length = isinstance(count, ast.Call) and last_word(count.func) == "len"  # as many as something else has
    return None if of_length or number_of(count) == 1 else count


_LENGTH = re.compile(r"len|token|size|count", re.IGNORECASE)


def _bounds(test: ast.expr) -> Iterator[ast.expr]:
    """What a length is compared with."""
    for part in ast.walk(test):
        if isinstance(part, ast.Compare) and any(_LENGTH.search(word) for word in _words(part.left)):
            yield from part.comparators


def _is_length_less(index: ast.expr) -> bool:
    """``len(messages) - 1``."""
    return (
        isinstance(index, ast.BinOp)
        and isinstance(index.op, ast.Sub)
        and isinstance(index.left, ast.Call)
        and last_word(index.left.func) == "len"
    )


def _words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name
