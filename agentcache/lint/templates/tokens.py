"""What the tokenizer makes of a template's texts: how many tokens a rewriting costs, and whether ids survive a round trip."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agentcache.chat.text import common_length
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.templates.conversations import Conversation
from agentcache.lint.templates.turns import Course
from agentcache.lint.templates.writer import Options, Writer

_MARKER = re.compile(r"<[|｜][^<>|｜{}'\"\s]+[|｜]>")
_HARD = (
    "def f(x):\n\treturn  x\n\n\n",
    "caf\u00e9 cafe\u0301 \ufb01 \u2126",
    "\u4f60\u597d, \U0001f469\u200d\U0001f4bb!  \r\n",
    "three   spaces, 12345678 and __init__ ...",
)
"""Text on which tokenizers differ: white space, composed characters, other scripts, digits."""


@dataclass(frozen=True)
class Spread:
    """Ids that another way to get the same text does not give.

    Attributes:
        before, after: the tokens at the place, as text.
        lost: tokens from there to the end of the first text.
        what: in words.
        conversation: that shows it, if one does, under ``options``.
        earlier: how many messages its request has.
        char: where in its text.
    """

    before: str
    after: str
    lost: int
    what: str
    conversation: Conversation | None = None
    options: Options = field(default_factory=dict)
    earlier: int = 0
    char: int = 0


def tokens_between(tokenizer: Tokenizer, text: str, start: int, end: int) -> int:
    """How many tokens of ``text`` have characters in ``[start, end)``."""
    _, offsets = tokenizer.encode_with_offsets(text)
    return sum(1 for first, last in offsets if last > start and first < end)


def merged_at_border(tokenizer: Tokenizer, course: Course) -> Spread | None:
    """A request whose text is the beginning of the next one's and whose ids are not: the tokenizer merges across the end."""
    turns = course.conversation.turns()
    for earlier, before, after in zip(turns, course.prompts, course.prompts[1:], strict=False):
        if not after.startswith(before):
            continue
        ids, offsets = tokenizer.encode_with_offsets(before)
        longer, places = tokenizer.encode_with_offsets(after)
        same = _equal(ids, longer)
        if same < len(ids):
            char = offsets[same][0]
            return Spread(
                before[char:],
                after[char : places[same][1]],
                len(ids) - same,
                "the generation prompt's last tokens merge with the reply",
                course.conversation,
                course.options,
                earlier,
                char,
            )
    return None


def unstable(tokenizer: Tokenizer, replies: Iterable[str]) -> Spread | None:
    """A reply whose ids, decoded and encoded again, are others; blanks around it are left aside, as templates trim them."""
    for text in (*replies, *_HARD):
        ids = tokenizer.encode(text.strip())
        again = tokenizer.encode(tokenizer.decode(ids, skip_special_tokens=False).strip())
        same = _equal(ids, again)
        if same < len(ids) or same < len(again):
            before, after = (
                tokenizer.decode(part[same : same + 3], skip_special_tokens=False) for part in (ids, again)
            )
            what = "ids of a reply that are decoded and encoded again become other ids"
            return Spread(before, after, len(ids) - same, what)
    return None


def rewritten_text(tokenizer: Tokenizer) -> str | None:
    """A text that the tokenizer gives back otherwise (composed, without some blanks); ids are the same for both."""
    for text in _HARD:
        back = tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False)
        if back != text:
            place = common_length(back, text)
            return text[place : place + 1] or text[-1:]
    return None


def written_markers(tokenizer: Tokenizer, writer: Writer) -> list[str]:
    """Control tokens of the tokenizer that the template writes."""
    return [text for text in tokenizer.control_tokens if text and writer.template.mentions_part(text)]


def is_foreign(tokenizer: Tokenizer, writer: Writer) -> bool:
    """Whether the template writes markers that the tokenizer does not know, or none that it knows."""
    spelled = set(_MARKER.findall(writer.source.text))
    return not written_markers(tokenizer, writer) or not spelled.issubset(tokenizer.added_tokens.values())


def typed_markers(
    tokenizer: Tokenizer, writer: Writer, conversation: Conversation, options: Options
) -> list[str] | None:
    """Control tokens of the template that a user's text becomes when the whole prompt is tokenised as one text.

    Returns:
        ``None`` when the template writes none of the tokenizer's control tokens.
    """
    written = written_markers(tokenizer, writer)
    if not written:
        return None
    messages = conversation.messages
    asks = next(index for index, message in enumerate(messages) if message["role"] == "user")
    clean = tokenizer.encode(writer.prompt(conversation, asks + 1, options))
    found = []
    for marker in written:
        typed = {**messages[asks], "content": f"{messages[asks]['content']} What is {marker} for?"}
        asked = replace(conversation, title=f"typed {marker}", messages=(*messages[:asks], typed))
        token = tokenizer.control_tokens[marker]
        if tokenizer.encode(writer.prompt(asked, asks + 1, options)).count(token) > clean.count(token):
            found.append(marker)
    return found


def _equal(first: list[int], second: list[int]) -> int:
    """How many leading ids are equal."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
