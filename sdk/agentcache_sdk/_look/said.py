"""Messages, tools and options as a prompt has them: one shape for all ways to write the same, and a digest of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CHARS_PER_TOKEN = 4
"""A usual figure for English and code; only ever used for losses that are marked as estimates."""
_NAMED = frozenset({"role", "content", "tool_calls", "reasoning_content", "reasoning"})
_UNPRINTED = frozenset(
    {"id", "index", "created", "created_at", "metadata", "provider_specific_fields", "cache_control"}
) | {
    "annotations",
    "audio",
    "function_call",
    "logprobs",
    "refusal",
}
"""Fields of replies that clients keep or leave out as they like; no template prints them."""
_APART = _NAMED | _UNPRINTED


@dataclass(frozen=True, slots=True)
class SaidCall:
    """A tool call of a reply; ``arguments`` as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """One message.

    Attributes:
        text: its content; parts that are all text are joined, other parts are written as JSON.
        rest: all other fields that a template may print, as JSON, such as ``tool_call_id``.
        digest: equal for messages that say the same.  Good inside this process only.
        chars: how many characters a prompt has of it.
    """

    role: str
    text: str
    calls: tuple[SaidCall, ...]
    reasoning: str
    rest: str
    digest: int
    chars: int

    def without_reasoning(self) -> tuple[Any, ...]:
        return self.role, self.text, self.calls, self.rest


@dataclass(frozen=True, slots=True)
class Setting:
    """What besides the messages decides whether pages can be shared, and what the template prints of it.

    Attributes:
        tools: each as JSON, in the order sent, with keys in the order sent.
        options: variables of the chat template, as JSON.
    """

    model: str | None
    salt: str
    options: str
    tools: tuple[str, ...]

    def shares_with(self, other: Setting) -> bool:
        """Whether prompts under both can have pages in common, tools aside."""
        return self.salt == other.salt and self.options == other.options and same_model(self.model, other.model)


def same_model(one: str | None, other: str | None) -> bool:
    """No name stands for the server's default, which may be any."""
    return one is None or other is None or one == other


def setting_of(tools: Iterable[Any] | None, options: Mapping[str, Any]) -> Setting:
    return Setting(
        model=options.get("model"),
        salt=str(options.get("cache_salt") or ""),
        options=as_json(options["chat_template_kwargs"]) if options.get("chat_template_kwargs") else "",
        tools=tuple(as_json(tool) for tool in tools or ()),
    )


def form_of(options: Mapping[str, Any]) -> str:
    """What the reply is held to, as JSON: some templates print it, and some leave tools out for ``none``."""
    given = {name: options[name] for name in ("tool_choice", "response_format") if options.get(name) is not None}
    return as_json(given) if given else ""


def said(message: Mapping[str, Any]) -> Said:
    """``message`` in the one shape; never raises, whatever the message is."""
    role = str(message.get("role") or "")
    text = text_of(message.get("content"))
    calls = _calls(message.get("tool_calls"))
    reasoning = text_of(message.get("reasoning_content") or message.get("reasoning"))
    other = {key: value for key, value in message.items() if key not in _APART and value is not None}
    rest = as_json(other) if other else ""
    chars = len(text) + len(reasoning) + sum(len(c.name) + len(c.arguments) for c in calls)
    return Said(role, text, calls, reasoning, rest, hash((role, text, calls, reasoning, rest)), chars)


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) and _is_text(part) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    return as_json(content)


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("text", "input_text", "output_text", None)


def _calls(calls: Any) -> tuple[SaidCall, ...]:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return ()
    return tuple(_call(call) for call in calls if isinstance(call, Mapping))


def _call(call: Mapping[str, Any]) -> SaidCall:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else as_json(arguments or {})
    return SaidCall(str(call.get("id") or ""), str(function.get("name") or ""), written)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr, skipkeys=True)


def as_json(value: Any) -> str:
    """Keys in the order given.  What is no JSON is for the request itself to refuse, so here it is only written down."""
    try:
        return _ENCODER.encode(value)
    except (ValueError, TypeError, RecursionError):
        return _ENCODER.encode(repr(type(value)))


def chain_of(messages: Sequence[Said]) -> tuple[int, ...]:
    """Digests of the first 0, 1, 2 ... messages.

    ::

        messages   system   user   assistant
        chain    c0       c1     c2          c3      each of the one before and of one message
    """
    chain = [0]
    for message in messages:
        chain.append(hash((chain[-1], message.digest)))
    return tuple(chain)


def tokens(chars: int) -> int:
    return chars // CHARS_PER_TOKEN
