"""What was said, as text and as the exact token ids that the model read and wrote.

::

    text  [ prompt of turn 1 ............ ][ reply ][ prompt of turn 2, new part ][ reply ]
    ids   [ as rendered and tokenised ... ][ drawn ][ tokenised ................ ][ drawn ]

The text is what the chat template makes of the messages.  The next turn is rendered whole and must begin with it; only what
comes behind is tokenised.  Where a template does not keep its own beginning, the turn is answered from a fresh rendering,
and says so.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentcache.chat.renderer import RenderedText
from agentcache.chat.text import common_length
from agentcache.chat.tokenizer import Tokenizer


class EndToken(NamedTuple):
    """The token that ended a reply, and its text.  It belongs to the transcript once the template has repeated it."""

    token: int
    text: str


class Mark(NamedTuple):
    """A place in a transcript: lengths of its ids and its text."""

    tokens: int
    characters: int


@dataclass(frozen=True, slots=True)
class Transcript:
    """Ids, and the text that the template renders for them.  A raw transcript (no messages) has no text.

    Never changed once made: forks and snapshots share it.
    """

    ids: array[int] = field(default_factory=lambda: array("I"))
    text: str = ""
    end: EndToken | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mark(self) -> Mark:
        return Mark(len(self.ids), len(self.text))

    def extended(self, ids: Sequence[int], text: str, end: EndToken | None = None) -> Transcript:
        return Transcript(self.ids + array("I", ids), self.text + text, end)

    def cut(self, mark: Mark, end: EndToken | None) -> Transcript:
        """What it was at ``mark``."""
        if mark == self.mark and end == self.end:
            return self
        return Transcript(self.ids[: mark.tokens], self.text[: mark.characters], end)


_NOTHING = Mark(0, 0)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request sends to the engine.

    Attributes:
        transcript: all of it.
        kept: how much was taken over from what was known.
        broken_at: the character at which the template stopped repeating its own beginning; ``None`` when it did repeat it.
        offsets: characters ``[start, end)`` of each token, where they are known.
        spells_controls: typed text in it looks like control tokens, so that its text does not name its tokens.
    """

    transcript: Transcript
    kept: Mark = _NOTHING
    broken_at: int | None = None
    offsets: list[tuple[int, int]] | None = field(default=None, repr=False)
    spells_controls: bool = False

    @property
    def ids(self) -> list[int]:
        return self.transcript.ids.tolist()


def fresh_prompt(rendered: RenderedText) -> Prompt:
    """The prompt of a conversation of which nothing is known."""
    ids, offsets = rendered.encode()
    transcript = Transcript(array("I", ids), rendered.text)
    return Prompt(transcript, offsets=offsets, spells_controls=rendered.spells_controls)


def continue_chat(known: Transcript, rendered: RenderedText) -> Prompt:
    """The prompt that ``rendered`` (the whole conversation so far) makes of what is ``known``.

    ::

        known      [ text ......................... ][ end? ]
        rendered   [ the same ...................... ][ end? ][ new: tokenised .... ]

    A reply that was cut has no end token, and one may have ended with a token that the template does not print: then what
    follows the reply is the template's own.
    """
    text = rendered.text
    if not text.startswith(known.text):
        return replace(fresh_prompt(rendered), broken_at=common_length(known.text, text))
    ids, place = known.ids, len(known.text)
    if known.end is not None and text.startswith(known.end.text, place):
        ids, place = ids + array("I", [known.end.token]), place + len(known.end.text)
    new = array("I", rendered.encode_from(place))
    return Prompt(
        Transcript(ids + new, text), kept=Mark(len(ids), place), spells_controls=rendered.spells_controls
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """What one sequence generated.

    Attributes:
        text: as the client saw it (cut before a stop string, without special tokens).
        token_ids: every token that was drawn, without the end token.
        end_token: the token that ended it, if one did.
        shown: control tokens that the text shows.
    """

    text: str
    token_ids: Sequence[int]
    end_token: int | None = None
    shown: frozenset[int] = frozenset()

    def end(self, tokenizer: Tokenizer) -> EndToken | None:
        if self.end_token is None:
            return None
        text = tokenizer.decode([self.end_token], skip_special_tokens=False)
        return EndToken(self.end_token, text) if text else None

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        """Ids by which the reply continues its transcript: the drawn ones.

        Only where a stop string cut the text do ids and text part: then the tokens that lie wholly in the text are kept,
        and the rest of the text is tokenised.
        """
        kept = list(self.token_ids)
        while not self.text.startswith(whole := tokenizer.decode(kept, shown=self.shown)):
            kept.pop()
        rest = self.text[len(whole) :]
        return kept + (tokenizer.encode(rest, parse_special=False) if rest else [])
