"""The strings of a request that are meant to be the same for many requests."""

from __future__ import annotations

from collections.abc import Iterator

from agentcache.lint.leaves import StringAt, strings_of
from agentcache.lint.prompt import SHARED_ROLES, Prompt
from agentcache.lint.texts.spots import first_said


def head_strings(prompt: Prompt) -> Iterator[StringAt]:
    """What the system says before anything else is said, and the tools; a prompt file as a whole."""
    first = first_said(prompt)
    for string in strings_of(prompt.record.body):
        message = string.keys[1] if string.keys[0] == "messages" else None
        if string.role in SHARED_ROLES:
            if not isinstance(message, int) or message < first:
                yield string
        elif string.role == "prompt" and prompt.record.dialect == "prompt":
            yield string
