"""Cache diagnostics: what a request changed of the one before it, in Anthropic's words.

A client names its previous answer, and is told the first of system, tools and messages that is no longer what it was.  The
two requests are compared, not what the cache did: prompts that only grew have no diagnosis, whatever was evicted meanwhile
(``agentcache.miss`` says that).  Of requests that ask for it, hashes are kept, no text.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_128

from agentcache.dialects.wording import shown
from agentcache.server.anthropic.checks import refuse
from agentcache.server.anthropic.translate import Conversation
from agentcache.server.bodies import ChatBody

_KEPT_MESSAGES = 200_000
_NOT_FOUND = {"cache_miss_reason": {"type": "previous_message_not_found"}}
_UNAVAILABLE = {"cache_miss_reason": {"type": "unavailable"}}

Diagnostics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a request was made of.

    Attributes:
        messages: a hash and a size in characters of each.
        options: whatever else may change a prompt.
        tokens: of the whole prompt.
    """

    system: bytes
    tools: bytes
    messages: Sequence[tuple[bytes, int]]
    options: bytes
    tokens: int

    def since(self, before: Fingerprint) -> Diagnostics | None:
        """What is different from ``before``; ``None`` where the prompt only grew."""
        if self.system != before.system:
            return _changed("system_changed", before.tokens)
        if self.tools != before.tools:
            return _changed("tools_changed", before.tokens)
        same = 0
        while same < len(before.messages) and self.messages[same : same + 1] == before.messages[same : same + 1]:
            same += 1
        if same < len(before.messages):
            sizes = [size for _, size in before.messages]
            return _changed("messages_changed", round(before.tokens * sum(sizes[same:]) / max(1, sum(sizes))))
        return None if self.options == before.options else _UNAVAILABLE


def fingerprint(said: Conversation, chat: ChatBody, tokens: int) -> Fingerprint:
    system = [placed.message for placed in said.placed if placed.place == "system"]
    # One by one, not as the client grouped them: a thread does not know any more what its turns were sent as.
    messages = [_sized(placed.message) for placed in said.placed if placed.place != "system"]
    options = [chat.chat_template_kwargs, chat.tool_choice, chat.response_format]
    return Fingerprint(_hash(system), _hash(said.tools), messages, _hash(options), tokens)


def _sized(value: Any) -> tuple[bytes, int]:
    text = json.dumps(value, ensure_ascii=False)
    return xxh3_128(text.encode("utf-8", "replace")).digest(), len(text)


def _hash(value: Any) -> bytes:
    return _sized(value)[0]


def _changed(kind: str, missed: int) -> Diagnostics:
    return {"cache_miss_reason": {"type": kind, "cache_missed_input_tokens": missed}}


class Fingerprints:
    """Of answers by owner and id; the oldest go first.  Used on the event loop.

    Args:
        kept: how many messages they may have together.
    """

    def __init__(self, kept: int = _KEPT_MESSAGES) -> None:
        self._room = kept
        self._known: OrderedDict[tuple[bytes, str], Fingerprint] = OrderedDict()

    def diagnose(self, asked: Mapping[str, Any], owner: bytes, answer_id: str, now: Fingerprint) -> Diagnostics | None:
        """What changed since the answer that ``asked`` names; the request is kept as the one to compare with next.

        Raises:
            ApiError: 400 for a name that is no text.
        """
        previous = asked.get("previous_message_id")
        if previous is not None and not isinstance(previous, str):
            raise refuse("diagnostics.previous_message_id", f"got {shown(previous)}, expected text or null")
        before = None if previous is None else self._known.get((owner, previous))
        self._known[owner, answer_id] = now
        self._room -= len(now.messages)
        while self._room < 0:
            _, gone = self._known.popitem(last=False)
            self._room += len(gone.messages)
        if previous is None:
            return None
        return _NOT_FOUND if before is None else now.since(before)


def refined(diagnosis: Diagnostics | None, miss: Mapping[str, Any] | None, missed: int) -> Diagnostics | None:
    """``diagnosis`` with what only the cache knows, once the request has run.

    ======================================  ====================================================
    ``miss.code``                           told as
    ======================================  ====================================================
    ``diverged``                            what was found by comparing: system, tools or messages
    ``model``                               ``model_changed``
    ``salt``, ``template``                  ``unavailable``: the same request, with another salt,
                                            or rendered differently
    ``cold`` ``below_page`` ``evicted``     nothing: what was sent did not change
    ``expired`` ``in_flight`` ``disabled``
    ======================================  ====================================================

    Args:
        missed: tokens of the prompt that were not read from the cache.
    """
    code = None if miss is None else miss["code"]
    if code == "model" and diagnosis in (None, _NOT_FOUND):
        return _changed("model_changed", missed)
    return _UNAVAILABLE if diagnosis is None and code in ("salt", "template") else diagnosis
