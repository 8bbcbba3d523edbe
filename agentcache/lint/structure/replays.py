"""Replies as they were generated, and as later requests send them back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentcache.chat.messages import Message
from agentcache.lint.parting import Parting
from agentcache.lint.structure.conversations import comparable
from agentcache.lint.structure.values import canonical

MessageBody = Mapping[str, Any]


class Pair(NamedTuple):
    """A message of both requests, at the same index: as their bodies have it."""

    number: int
    before: MessageBody
    after: MessageBody


def replayed(parting: Parting, *, equal: bool = False) -> list[Pair]:
    """The messages of both requests, index by index, where the later one repeats the earlier one's turns; else none.

    They do when both have the same roles and the same calls in the same places, and the later one goes on: another branch
    of a conversation has other turns, or is not longer.

    Args:
        equal: also where no message says anything else: objects are equal whatever the order of their keys.
    """
    if not comparable(parting) or parting.session is None:
        return []
    mine, theirs = parting.earlier.record.body["messages"], parting.later.record.body["messages"]
    if len(theirs) <= len(mine) or (parting.alignment.at >= len(mine) and not equal):
        return []
    shapes = zip(parting.earlier.messages, parting.later.messages, strict=False)
    if not all(_same_shape(was, now) for was, now in shapes):
        return []
    return [Pair(index, *pair) for index, pair in enumerate(zip(mine, theirs, strict=False))]


def _same_shape(was: Message, now: Message) -> bool:
    return was["role"] == now["role"] and call_names(was) == call_names(now)


def call_names(message: MessageBody) -> list[str]:
    return [str(function_of(call).get("name")) for call in calls_of(message)]


def calls_of(message: MessageBody) -> list[Mapping[str, Any]]:
    """The calls of a message as its body has them."""
    calls = message.get("tool_calls")
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return []
    return [call for call in calls if isinstance(call, Mapping)]


def function_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    return function if isinstance(function, Mapping) else {}


def id_of(call: Mapping[str, Any]) -> str | None:
    value = call.get("id")
    return value if isinstance(value, str) else None


def paired_calls(pairs: Sequence[Pair]) -> Iterator[tuple[int, int, Mapping[str, Any], Mapping[str, Any]]]:
    """Message, number, and both forms of each call."""
    for pair in pairs:
        calls = zip(calls_of(pair.before), calls_of(pair.after), strict=False)
        for number, (was, now) in enumerate(calls):
            yield pair.number, number, was, now


def same_value(was: object, now: object) -> bool:
    """Two writings of the same arguments."""
    mine, theirs = loaded(was), loaded(now)
    return mine is not None and theirs is not None and canonical(mine) == canonical(theirs)


def loaded(arguments: object) -> Any | None:
    """Arguments as a value; ``None`` for text that is no JSON."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None


def with_message(messages: Sequence[MessageBody], changed: Mapping[int, MessageBody]) -> list[MessageBody]:
    """A copy of ``messages`` with some of them replaced."""
    return [changed.get(index, message) for index, message in enumerate(messages)]
