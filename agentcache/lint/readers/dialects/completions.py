"""Legacy completions: raw prompts, text or token ids, without messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from agentcache.dialects.wording import refuse, shown
from agentcache.lint.readers.dialects.body import Given, Translated, below
from agentcache.lint.records import Keys, Place

_MOST_IDS = 2**32


@dataclass(frozen=True, slots=True)
class PromptPlaces:
    """
    Attributes:
        prompt: path of the prompt, which may be one of several.
    """

    prefix: str
    prompt: str = "prompt"

    def find(self, keys: Keys, char: int | None = None) -> Place:
        path = below(self.prompt, keys[1:]) if keys[:1] == ("prompt",) else below("", keys).removeprefix(".")
        return Place(self.prefix + path, char)


def completion_request(given: Given, path: str = "prompt") -> Translated:
    """
    Args:
        path: of the prompt in the body that was sent.

    Raises:
        RequestError: the prompt is neither text nor ids.
    """
    prompt = given.value.get("prompt")
    body = {key: value for key, value in given.value.items() if key not in ("messages", "tools")}
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt, path = prompt[0], f"{path}[0]"
        body["prompt"] = prompt
    if isinstance(prompt, str) and prompt:
        return Translated("completions", body, PromptPlaces(given.prefix, path))
    if is_ids(prompt):
        return Translated("completions", body, PromptPlaces(given.prefix, path), prompt_ids=prompt)
    raise refuse(path, f"got {shown(prompt)}, expected text or a list of token ids, not empty")


def single_prompts(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A body for each of its prompts, and the prompt's path: several may be sent at once."""
    prompt = body.get("prompt")
    if not isinstance(prompt, list) or len(prompt) < 2 or not isinstance(prompt[0], (str, list)):
        yield "prompt", body
        return
    for index, one in enumerate(prompt):
        yield f"prompt[{index}]", {**body, "prompt": one}


def is_ids(value: Any) -> TypeGuard[list[int]]:
    """Whether ``value`` is a list of token ids, at least one."""
    return isinstance(value, list) and set(map(type, value)) == {int} and min(value) >= 0 and max(value) < _MOST_IDS
