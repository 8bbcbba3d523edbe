"""What every dialect's translation hands over, and small checks that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.dialects.wording import got, refuse
from agentcache.lint.records import Body, Keys, Places, path_of


@dataclass(frozen=True, slots=True)
class Translated:
    """A request as a chat completion.

    Attributes:
        said: the messages that the request itself adds to the response that it goes on from.
        items: the same as input items with ids that later requests may refer to.
        prompt_ids: the prompt's ids, where the request is made of them.
    """

    dialect: str
    body: Body
    places: Places
    said: Sequence[Mapping[str, Any]] = ()
    items: Sequence[Mapping[str, Any]] = ()
    prompt_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """A body, and where it stands in its record (``prefix``: empty, or ``body.``).

    Its fields are checked as they are asked for; each raises ``RequestError`` where the value is of another kind.
    """

    value: Mapping[str, Any]
    prefix: str = ""

    def text(self, key: str) -> str | None:
        value = self.value.get(key)
        if value is not None and not isinstance(value, str):
            raise refuse(key, f"got {got(value)}, expected text")
        return value

    def object(self, key: str) -> Mapping[str, Any] | None:
        value = self.value.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise refuse(key, f"got {got(value)}, expected an object")
        return value

    def objects(self, key: str) -> Sequence[Mapping[str, Any]] | None:
        value = self.value.get(key)
        if value is not None and (not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value)):
            raise refuse(key, f"got {got(value)}, expected a list of objects")
        return value


def below(path: str, keys: Keys) -> str:
    """``path`` and what is inside of it."""
    inner = path_of(keys)
    return path + (inner if inner.startswith("[") or not inner else f".{inner}")
