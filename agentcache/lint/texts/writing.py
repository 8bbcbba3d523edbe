"""The same text written in another way, and the body in which it is written as before."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from agentcache.chat.text import common_length
from agentcache.lint.finding import Applicability, Fix
from agentcache.lint.leaves import Leaf, replace_at, strings_of
from agentcache.lint.parting import Parting
from agentcache.lint.prompt import SHARED_ROLES, Prompt
from agentcache.lint.records import Body, Keys
from agentcache.lint.rules.base import BodyEdit, Cause
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.texts.spans import MIN_SHARED
from agentcache.lint.texts.spots import first_said, follows

_SURROGATES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\/")

_OWNERS = {
    "system": "the system text",
    "developer": "the developer's text",
    "tools": "a tool's text",
    "prompt": "the prompt",
}

Alike = Callable[[str, str], bool]
Sign = Callable[["tuple[str, str]"], bool]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A string that is written in another way than before.

    Attributes:
        char: first character that differs.
        body: the later request with all such strings as they were written.
        count: how many.
    """

    keys: Keys
    role: str
    before: str
    after: str
    char: int
    body: Body
    count: int

    def cause(self, message: str, help: str, applicability: Applicability) -> Cause:
        """All such strings are written as before."""
        before, after = self.excerpts()
        return Cause(
            place=self.place,
            edit=BodyEdit(self.body, self.keys),
            char=self.char,
            severity="warning",
            before=before,
            after=after,
            message=f"{self.owner} is {message}{self.more}",
            help=help,
            fix=Fix(applicability=applicability),
        )

    @property
    def place(self) -> Hashable:
        """Equal for the same defect in other requests: by place in system text and tools, by role in a conversation."""
        replayed = self.role not in SHARED_ROLES and self.role != "prompt"
        return ("replayed", self.role) if replayed else self.keys

    @property
    def owner(self) -> str:
        """Whose text it is, for people."""
        return _OWNERS.get(self.role, f"a replayed {self.role} message")

    @property
    def more(self) -> str:
        """That there are others, for people."""
        others = self.count - 1
        return (
            "" if others < 1 else f", and so {'is' if others == 1 else 'are'} {others} other{'s' if others > 1 else ''}"
        )

    def excerpts(self) -> tuple[str, str]:
        """What the two say there, blanks made visible."""
        return _visible(self.before, self.char), _visible(self.after, self.char)


def same_but_for_blanks(before: str, after: str) -> bool:
    return "".join(before.split()) == "".join(after.split())


def same_but_for_form(before: str, after: str) -> bool:
    if before.isascii() and after.isascii():
        return False
    return unicodedata.normalize("NFC", before) == unicodedata.normalize("NFC", after)


def same_but_for_escapes(before: str, after: str) -> bool:
    return ("\\" in before or "\\" in after) and _unescaped(before) == _unescaped(after)


def blanks_differ(around: tuple[str, str]) -> bool:
    return any("\\" in text or text[-1:].isspace() or not text for text in around)


def letters_differ(around: tuple[str, str]) -> bool:
    return any("\\" in text or not text.isascii() for text in around)


def escapes_differ(around: tuple[str, str]) -> bool:
    return any("\\" in text for text in around)


def _at_the_parting(parting: Parting) -> tuple[str, str]:
    """The first characters that differ, with those before them that may belong to the same escape."""
    start = max(0, parting.char - 6)
    return parting.earlier.text[start : parting.char + 1], parting.later.text[start : parting.char + 1]


def _unescaped(text: str) -> str:
    paired = _SURROGATES.sub(lambda m: bytes.fromhex(m[1] + m[2]).decode("utf-16-be"), text)
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else "/", paired)


def find_rewritten(parting: Parting, alike: Alike, sign: Sign) -> Rewritten | None:
    """The string in which they part, when it is the same but for its writing, and is read again behind the difference."""
    if parting.settings_changed or not sign(_at_the_parting(parting)):
        return None
    mine, theirs = parting.earlier.record.body, parting.later.record.body
    for keys, role in _candidates(parting):
        before, after = _string(mine, keys), _string(theirs, keys)
        if before is None or after is None or before == after or not alike(before, after):
            continue
        char = common_length(before, after)
        if not _is_read_again(parting, keys, role, after[char:], len(after)):
            return None
        body, count = _as_written(parting, alike)
        if not renders_further(parting, body):
            return None
        return Rewritten(keys, role, before, after, char, body, count)
    return None


def _candidates(parting: Parting) -> Iterator[tuple[Keys, str]]:
    """The strings that the first difference may lie in: blanks at the ends of a string are not rendered as part of it."""
    seen: set[Keys] = set()
    for prompt in (parting.later, parting.earlier):
        for leaf in _near(prompt, parting.char):
            if leaf.keys not in seen:
                seen.add(leaf.keys)
                yield leaf.keys, leaf.role


def _near(prompt: Prompt, char: int) -> Iterator[Leaf]:
    index = bisect_right(prompt.leaves, char, key=lambda leaf: leaf.start)
    for leaf in prompt.leaves[max(0, index - 1) : index]:
        if char <= leaf.end or not prompt.text[leaf.end : char].strip():
            yield leaf
    for leaf in prompt.leaves[index : index + 1]:
        if not prompt.text[char : leaf.start].strip():
            yield leaf


def _is_read_again(parting: Parting, keys: Keys, role: str, rest: str, length: int) -> bool:
    """Something that matters stands behind the difference, and it is the same in both."""
    index = _message(keys)
    in_head = role == "prompt" or _is_head(parting.later, keys, role)
    if not in_head and not _is_replayed(parting, index):
        return False
    words = len(rest.strip())
    if words >= MIN_SHARED or 2 * words >= length:
        return True
    if not follows(parting):
        return False
    aligned = parting.alignment
    grown = len(parting.later.messages) > len(parting.earlier.messages)
    return grown if index is None or not aligned.again else aligned.meets or grown


def _is_replayed(parting: Parting, index: int | None) -> bool:
    """It was said before in this session, and more was said since."""
    if index is None or not follows(parting):
        return False
    return index < min(len(parting.earlier.messages), len(parting.later.messages) - (0 if parting.replay else 1))


def _is_head(prompt: Prompt, keys: Keys, role: str) -> bool:
    index = _message(keys)
    return role in SHARED_ROLES and (index is None or index < first_said(prompt))


def _as_written(parting: Parting, alike: Alike) -> tuple[Body, int]:
    """The later body with every string that is the same but for its writing as the earlier one has it, and their number."""
    mine, body = parting.earlier.record.body, parting.later.record.body
    places = [(string.keys, string.role) for string in strings_of(body)]
    count = 0
    for keys, role in places:
        before, after = _string(mine, keys), _string(body, keys)
        if before is None or after is None or before == after:
            continue
        if role != "prompt" and not _is_head(parting.later, keys, role) and not _is_replayed(parting, _message(keys)):
            continue
        if alike(before, after):
            body, count = replace_at(body, keys, before), count + 1
    return body, count


def _message(keys: Keys) -> int | None:
    return keys[1] if keys[0] == "messages" and isinstance(keys[1], int) else None


def _string(body: Any, keys: Keys) -> str | None:
    for key in keys:
        try:
            body = body[key]
        except (KeyError, IndexError, TypeError):
            return None
    return body if isinstance(body, str) else None


def _visible(text: str, at: int) -> str:
    """A little of what stands around, on one line: escaped as JSON would, so that a blank can be seen."""
    near = text[max(0, at - 24) : at + 24]
    plain = near.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
    return ("…" if at > 24 else "") + "".join(_letter(c) for c in plain) + ("…" if at + 24 < len(text) else "")


def _letter(character: str) -> str:
    odd = unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Zs", "Cc")
    return f"\\u{ord(character):04x}" if odd and character != " " else character
