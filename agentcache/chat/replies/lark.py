"""Grammars of calls, as text in llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agentcache.chat.grammars import json_rule
from agentcache.chat.replies.base import CallChoice, Thinking, Tool, Vocabulary, function_of
from agentcache.errors import RequestError

_ID = "/[a-zA-Z0-9]{9}/"
_SLOTS = re.compile(r"(\{(?:name|bare|id)\})")


class GrammarWriter:
    """Collects the rules of one grammar.

    Args:
        controls: markers; they are control tokens where the vocabulary has them, and plain text elsewhere.
    """

    def __init__(self, vocabulary: Vocabulary, controls: Sequence[str]) -> None:
        self._tokens = vocabulary.control_tokens
        self._markers = re.compile(f"({'|'.join(map(re.escape, controls))})") if controls else None
        self._rules: list[str] = []

    def is_control(self, text: str) -> bool:
        """Whether ``text`` is one control token."""
        return text in self._tokens

    def spell(self, text: str) -> str:
        """``text``, its markers as what they are; nothing for no text."""
        parts = [text] if self._markers is None else self._markers.split(text)
        return " ".join(self._part(part) for part in parts if part)

    def _part(self, text: str) -> str:
        token = self._tokens.get(text)
        return _quoted(text) if token is None else f"<[{token}]>"

    def rule(self, name: str, body: str) -> str:
        """Add a rule; returns its name."""
        self._rules.append(f"{name}: {body}")
        return name

    def choices(self, tools: Sequence[Tool], choice: CallChoice, before: str, after: str) -> str:
        """A rule for one call of any of the chosen tools, its arguments between ``before`` and ``after``.

        Args:
            before: with ``{name}`` where the name stands as a JSON string, ``{bare}`` where it stands as it is, and
                ``{id}`` where the model makes up an id.

        Raises:
            RequestError: there is none, one that is unknown, or arguments that cannot be described.
        """
        known = {function_of(tool).get("name"): (i, function_of(tool)) for i, tool in enumerate(tools)}
        if not choice.names:
            raise RequestError("tool_choice: got no function that may be called, expected at least one", "tool_choice")
        options: list[str] = []
        for name in choice.names:
            if name not in known:
                raise RequestError(f"tool_choice: got the function {name!r}, which is not among tools", "tool_choice")
            i, function = known[name]
            schema = function.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}
            body = json_rule(schema, function.get("strict") is True, param=f"tools[{i}].function.parameters")
            self.rule(f"arguments_{i}", body)
            options.append(self.rule(f"call_{i}", f"{self._opening(before, name)} arguments_{i} {self.spell(after)}"))
        return self.rule("function", " | ".join(options))

    def _opening(self, before: str, name: str) -> str:
        """``before`` with ``name`` in its slots, where it is plain text, whatever it spells."""
        slots = {"{name}": _quoted(json.dumps(name, ensure_ascii=False)), "{bare}": _quoted(name), "{id}": _ID}
        return " ".join(slots.get(part) or self.spell(part) for part in _SLOTS.split(before) if part)

    def until(self, name: str, marker: str) -> str:
        """A rule for any text up to and with the first ``marker``."""
        if self.is_control(marker):
            return self.rule(name, f"TEXT {self.spell(marker)}")
        return self.rule(f"{name}[lazy]", f"TEXT {self.spell(marker)}").removesuffix("[lazy]")

    def finish(self, reply: str, thinking: Thinking | None) -> str:
        """The whole grammar of ``reply``, after reasoning if there may be any."""
        if thinking is None:
            start = reply
        else:
            opening, closing = thinking.tags
            reasoning = self.until("reasoning", closing) + " GAP"
            if not thinking.starts_open:
                reasoning = f"({self._part(opening)} {reasoning})?"
            start = f"{reasoning} ({reply})"
        rules = [f"start: {start}", *self._rules, r"TEXT: /(.|\n)*/"]
        if thinking is not None:
            rules.append(r"GAP: /[ \n]{0,3}/")
        return "\n".join(rules) + "\n"


def _quoted(text: str) -> str:
    """``text`` as a terminal."""
    return json.dumps(text, ensure_ascii=False)
