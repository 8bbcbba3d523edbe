"""JSON values that say the same in another writing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentcache.lint.records import Keys


class Difference(NamedTuple):
    """A place where two values differ; ``None`` for what is missing on one side is told from ``null`` by ``added``."""

    keys: Keys
    before: Any
    after: Any
    added: bool = False
    gone: bool = False


def canonical(value: Any) -> str:
    """One text for all ways to write the same value: keys sorted, ``1.0`` as ``1``."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def in_writing_of(value: Any, model: Any) -> Any:
    """``value`` with its keys in the order and its numbers in the form in which ``model`` has them; nothing else changes.

    ::

        model   {"type": …, "properties": …, "required": …}
        value   {"properties": …, "title": …, "type": …}
        result  {"type": …, "title": …, "properties": …}      keys that both have change places among themselves
    """
    if isinstance(value, Mapping) and isinstance(model, Mapping):
        shared = iter([key for key in model if key in value])
        order = [next(shared) if key in model else key for key in value]
        return {key: in_writing_of(value[key], model[key]) if key in model else value[key] for key in order}
    if isinstance(value, list) and isinstance(model, list):
        return [in_writing_of(item, model[i]) if i < len(model) else item for i, item in enumerate(value)]
    if _is_number(value) and _is_number(model) and value == model:
        return model
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def first_rewritten(value: Any, model: Any, keys: Keys = ()) -> Keys | None:
    """Where ``value`` is first written otherwise than ``model``: an object whose keys have another order, or a number."""
    if isinstance(value, Mapping) and isinstance(model, Mapping):
        if [key for key in value if key in model] != [key for key in model if key in value]:
            return keys
        pairs: Iterator[tuple[Any, Any, Any]] = ((key, value[key], model[key]) for key in value if key in model)
    elif isinstance(value, list) and isinstance(model, list):
        pairs = ((i, mine, theirs) for i, (mine, theirs) in enumerate(zip(value, model, strict=False)))
    else:
        rewritten = (
            _is_number(value) and _is_number(model) and value == model and json.dumps(value) != json.dumps(model)
        )
        return keys if rewritten else None
    found = (first_rewritten(mine, theirs, (*keys, key)) for key, mine, theirs in pairs)
    return next((place for place in found if place is not None), None)


def differences(before: Any, after: Any, keys: Keys = ()) -> Iterator[Difference]:
    """Places where the two say something else, in the order of ``after``; key order and the form of numbers aside."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in after:
            if key in before:
                yield from differences(before[key], after[key], (*keys, key))
            else:
                yield Difference((*keys, key), None, after[key], added=True)
        for key in before:
            if key not in after:
                yield Difference((*keys, key), before[key], None, gone=True)
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after)
        and not reordered(before, after)
    ):
        for index, (mine, theirs) in enumerate(zip(before, after, strict=True)):
            yield from differences(mine, theirs, (*keys, index))
    elif canonical(before) != canonical(after):
        yield Difference(keys, before, after)


def reordered(before: Any, after: Any) -> bool:
    """Two lists of the same items in another order."""
    if not isinstance(before, list) or not isinstance(after, list):
        return False
    mine, theirs = [canonical(item) for item in before], [canonical(item) for item in after]
    return mine != theirs and sorted(mine) == sorted(theirs)
