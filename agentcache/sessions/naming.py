"""Names of conversations: equal for histories that say the same, however a client writes them.

::

    messages   system   user   assistant   tool   assistant
    names    n0       n1     n2          n3     n4          n5      each a hash of the one before and of one message

Clients rename the ids of calls, write arguments anew, leave reasoning out, send content as parts: none of that is in a name.
Of a tool's result a name holds the place of the call that it answers.  A message beside which tools were announced is another
one than the same without.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from agentcache.chat.messages import Message
from agentcache.chat.tool_text import announced

_SIZE = 16


def name_conversation(
    root: bytes, tools: Sequence[Mapping[str, Any]] | None, messages: Iterable[Message]
) -> list[bytes]:  # fmt: skip
    """Names of the first 0, 1, 2 ... of ``messages`` (in the one shape) in the namespace ``root``."""
    names = [_hash(root, _json(list(tools or ())))]
    calls: dict[str, tuple[int, int]] = {}
    for index, message in enumerate(messages):
        told = message.get("tool_calls", ())
        if message["role"] == "assistant":
            calls.update({call["id"]: (index, i) for i, call in enumerate(told) if isinstance(call.get("id"), str)})
        names.append(_hash(names[-1], _json(_canonical(message, calls))))
    return names


def _canonical(message: Message, calls: Mapping[str, tuple[int, int]]) -> list[Any]:
    """What a message says, as JSON."""
    role, content = message["role"], message["content"]
    answered = message.get("tool_call_id")
    place = calls.get(answered, answered) if isinstance(answered, str) else None
    told = [
        [call["function"]["name"], canonical_arguments(call["function"]["arguments"])]
        for call in message.get("tool_calls", ())
    ]
    if told and not content.strip():  # white space between calls: clients drop it
        content = ""
    news = announced(message)
    return [role, content, told, place] if news is None else [role, content, told, place, news]


def canonical_arguments(arguments: str | Mapping[str, Any]) -> Any:
    """The same for all ways to write the same arguments; what is no JSON object stands for itself."""
    if isinstance(arguments, str):
        if not arguments.strip():
            return {}
        try:
            parsed = json.loads(arguments)
            return _plain(parsed) if isinstance(parsed, dict) else arguments
        except (ValueError, RecursionError):
            return arguments
    return _plain(dict(arguments))


def _plain(value: Any) -> Any:
    """1.0 is 1: clients in JavaScript write it so."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def reasoning_digest(reasoning: str | None) -> str:
    """What is kept of a reply's reasoning, to know it again; empty for none.  White space around it does not count."""
    text = (reasoning or "").strip()
    return _hash(text.encode("utf-8", "surrogatepass")).hex() if text else ""


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


def _json(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


def _hash(*parts: bytes) -> bytes:
    state = blake2b(digest_size=_SIZE)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
