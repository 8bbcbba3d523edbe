"""``pad="system"``: filler behind the system text, so that the static part of a prompt ends with a page.

What a template and a tokenizer make of a filler is not guessed: the server renders it, and only a filler whose rendering
passes every check of ``_Check`` is used.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentcache_sdk._calls import Steps
from agentcache_sdk._session_calls import is_missing_route
from agentcache_sdk._static import (
    USER_TEXTS,
    Prompt,
    StaticPart,
    beside,
    common_length,
    leading_system,
    served_model,
    static_part,
)
from agentcache_sdk.alignment import Padding
from agentcache_sdk.errors import APIError, BadRequest

_KEPT = 256
"""Paddings that one client remembers."""
_TRIES = 48
"""Renderings that a search may take; one or two are usual."""
_TRIES_EACH = 6
_REFUSALS = 3
"""Fillers of the right length that fail a check before the template is held to be the reason."""
_BORDER = 4
"""Tokens before the filler that may be tokenised anew, since it follows them now."""


@dataclass(frozen=True)
class Filler:
    """A family of texts: ``opening`` and then any number of ``unit``.

    Attributes:
        least: tokens that the opening takes in usual vocabularies; it is not tried where there is no room for them.
    """

    opening: str
    unit: str
    least: int

    def text(self, units: int) -> str:
        return self.opening + self.unit * units


# In order of liking.  In most vocabularies " ." is one token however often it stands there; those without it need another
# unit or opening, one of which comes to any number of tokens where single characters are tokens.
FILLERS = (
    Filler("\n\n(padding)", " .", 5),
    Filler("\n\n.", " .", 2),
    Filler("", " .", 1),
    Filler("", "\n.", 1),
    Filler("\n", ".", 2),
    Filler("", ".", 1),
    Filler("", " -", 1),
    Filler("", "\n-", 1),
    Filler("", " o", 1),
    Filler("\n", " 0", 2),
)


@dataclass
class PaddingMemory:
    """Paddings that one client has found.  Safe to share between threads.

    Entries name the server's start, its page size and the model, so that nothing outlives them.
    """

    _known: OrderedDict[str, Padding] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: str) -> Padding | None:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: str, padding: Padding) -> None:
        with self._lock:
            self._known[key] = padding
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)


def padded(
    head: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    model: str | None,
    memory: PaddingMemory,
) -> Steps[Padding]:
    """``head`` with its system text padded, in ``Padding.head``; unchanged, with a reason, where that cannot be done.

    The same system text gets the same filler in every process, so that conversations share it.

    Args:
        head: the messages that a conversation begins with.
        tools: their schemas.

    Raises:
        AgentCacheError: the server cannot be reached, or does not serve ``model``.
    """
    whole = tuple(dict(message) for message in head)
    system = leading_system(whole)
    if not _padded_text(system, "."):
        return Padding(reason="there is no system text to pad", head=whole)
    served = yield from served_model(model)
    if served is None or not served.page_size:
        return Padding(reason="the server does not say how large its pages are", head=whole)
    key = json.dumps([served.model_dump(mode="json"), system, list(tools or ()), model], sort_keys=False, default=str)
    found = memory.get(key)
    if found is None:
        search = _Search(Prompt(system, beside(tools, model)), served.page_size)
        found = yield from search.found()
        memory.put(key, found)
    rest = whole[len(system) :]
    return replace(found, head=(*_padded_text(system, found.text), *rest) if found.text else whole)


def _padded_text(system: Sequence[Mapping[str, Any]], filler: str) -> tuple[dict[str, Any], ...]:
    """``system`` with ``filler`` behind its text; nothing where there is no text to put it behind."""
    if not system:
        return ()
    *before, last = (dict(message) for message in system)
    content = last.get("content")
    if isinstance(content, str) and content:
        return (*before, {**last, "content": content + filler})
    if isinstance(content, list) and content and isinstance(content[-1], Mapping) and content[-1].get("text"):
        part = {**content[-1], "text": f"{content[-1]['text']}{filler}"}
        return (*before, {**last, "content": [*content[:-1], part]})
    return ()


@dataclass
class _Search:
    """Looks for one system text's filler.

    Attributes:
        tries: renderings with a filler so far.
        refusals: why fillers could not be used.
        dropped: the template leaves fillers out.
    """

    plain: Prompt
    page_size: int
    tries: int = 0
    refusals: list[str] = field(default_factory=list)
    dropped: bool = False

    @property
    def _over(self) -> bool:
        return self.dropped or self.tries >= _TRIES or len(self.refusals) >= _REFUSALS

    def found(self) -> Steps[Padding]:
        try:
            return (yield from self._search())
        except APIError as error:
            if is_missing_route(error):
                return self._nothing("the server does not tokenise (it has no /tokenize)")
            if isinstance(error, BadRequest):
                return self._nothing(f"the server does not render it: {error.message}")
            raise

    def _search(self) -> Steps[Padding]:
        before = yield from static_part(self.plain)
        missing = -len(before) % self.page_size
        if missing == 0:
            return self._nothing("the static part ends with a page as it is", before)
        for tokens in (missing, missing + self.page_size):
            for filler in FILLERS:
                if filler.least > tokens or self._over:
                    continue
                units = yield from self._units(filler, before, tokens)
                if units is None:
                    continue
                refusal = yield from self._check(before, filler.text(units))
                if refusal is None:
                    after = len(before) + tokens
                    return Padding(tokens, filler.text(units), len(before), after, self.page_size)
                self.refusals.append(refusal)
        if self.refusals:
            return self._nothing(self.refusals[-1], before)
        # A template that writes the text twice makes some lengths impossible; better said than the lengths.
        refusal = yield from self._check(before, FILLERS[0].text(4))
        none = f"no filler came to exactly {missing} tokens, of {self.tries} that were tried"
        return self._nothing(refusal or none, before)

    def _nothing(self, reason: str, part: StaticPart | None = None) -> Padding:
        length = None if part is None else len(part)
        return Padding(0, "", length, length, self.page_size, reason)

    def _with(self, filler: str) -> Prompt:
        return replace(self.plain, messages=_padded_text(self.plain.messages, filler))

    def _units(self, filler: Filler, before: StaticPart, tokens: int) -> Steps[int | None]:
        """How many units make the static part ``tokens`` longer; ``None`` where no number is found that does.

        From two lengths the next guess is on the line through them, and always between the nearest that was too short and
        the nearest that was too long.
        """
        grown: dict[int, int] = {}
        units, slope = max(0, tokens - filler.least), 1.0
        plain = len(before) + len(before.behind[0])
        for _ in range(_TRIES_EACH):
            self.tries += 1
            ids = yield from self._with(filler.text(units)).said(USER_TEXTS[0]).ids()
            grown[units] = len(ids) - plain
            if grown[units] == tokens:
                return units
            if len(grown) > 1:
                (a, b) = sorted(grown, key=lambda n: abs(grown[n] - tokens))[:2]
                slope = (grown[a] - grown[b]) / (a - b)
            if slope <= 0:
                if filler is FILLERS[0] and not any(grown.values()):  # a dot or two more can be the same token
                    self.dropped = True
                    self.refusals.append("the template does not keep what stands at the end of the system text")
                return None
            low = max((n for n in grown if grown[n] < tokens), default=-1)
            high = min((n for n in grown if grown[n] > tokens), default=max(units, tokens) * 4 + 4)
            if high - low <= 1:
                return None
            step = (tokens - grown[units]) / slope
            units = min(max(units + round(step), low + 1), high - 1)
            if units in grown:
                return None
        return None

    def _check(self, before: StaticPart, filler: str) -> Steps[str | None]:
        """Why the prompt with ``filler`` is not the old one with whole pages before the first user text; ``None`` if it is.

        ::

            before   [ p p p p p b s s s )u u u           b: tokenised anew, _BORDER tokens at most
            after    [ p p p p p f f f f f f s s s )u u u
            later    [ p p p p p f f f f f f s s s )v v v [ reply )[ next text ...
        """
        system = self._with(filler)
        after = yield from static_part(system)
        if len(after.behind[0]) != len(before.behind[0]):
            return "the template writes the system text behind the first user text"
        if after.behind != before.behind:
            return "the template writes something else behind the system text when that grows"
        same = common_length(before.ids, after.ids)
        same += common_length(before.ids[same:][::-1], after.ids[same:][::-1])
        if len(before) - same > _BORDER:
            return "the template writes the system text more than once, or changes it when it grows"
        later = yield from system.said(USER_TEXTS[0], "Yes.", USER_TEXTS[1]).ids()
        if common_length(later, after.ids) < len(after):
            return "the template changes its beginning when the conversation goes on"
        return None
