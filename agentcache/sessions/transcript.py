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
from dataclasses import dataclass, field

from agentcache.chat.renderer import RenderedText
from agentcache.chat.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Transcript:
    """Ids, and the text that the template renders for them.  A raw transcript (no messages) has no text."""

    ids: array[int] = field(default_factory=lambda: array("I"))
    text: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def extended(self, ids: Sequence[int], text: str) -> Transcript:
        return Transcript(self.ids + array("I", ids), self.text + text)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a turn sends to the engine.

    Attributes:
        kept: tokens taken over from the transcript unchanged.
        broken_at: the character at which the template stopped repeating its own beginning; ``None`` when it did repeat it.
    """

    transcript: Transcript
    kept: int
    broken_at: int | None = None

    @property
    def ids(self) -> list[int]:
        return self.transcript.ids.tolist()


def continue_chat(transcript: Transcript, rendered: RenderedText) -> Prompt:
    """The prompt that ``rendered`` (the whole conversation so far) makes of ``transcript``."""
    text = rendered.text
    if text.startswith(transcript.text):
        ids = rendered.encode_from(len(transcript.text))
        return Prompt(Transcript(transcript.ids + array("I", ids), text), kept=len(transcript))
    ids, _ = rendered.encode()
    return Prompt(Transcript(array("I", ids), text), kept=0, broken_at=_parting(transcript.text, text))


@dataclass(frozen=True, slots=True)
class Reply:
    """What one sequence generated.

    Attributes:
        text: as the client saw it (cut before a stop string, without special tokens).
        token_ids: every token that was drawn, without the end token.
        end_token: the token that ended it, if one did.
        stop_string: the stop string that ended it, if one did.
    """

    text: str
    token_ids: Sequence[int]
    end_token: int | None = None
    stop_string: str | None = None


def reply_tokens(reply: Reply, tokenizer: Tokenizer) -> tuple[list[int], str]:
    """Ids and text by which a reply continues its transcript.

    They are the drawn ones.  Only where a stop string cut the text inside or behind a token do ids and text part: then the
    tokens that lie wholly in the text are kept, and the rest of the text is tokenised.
    """
    ids = list(reply.token_ids)
    if reply.stop_string is not None:
        ids = _tokens_of_cut_text(reply.text, ids, tokenizer)
    if reply.end_token is None:
        return ids, reply.text
    return [*ids, reply.end_token], reply.text + tokenizer.decode([reply.end_token], skip_special_tokens=False)


def _tokens_of_cut_text(text: str, ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """The longest run of leading tokens that the text contains whole, and tokens for what is left of it."""
    low, high = 0, len(ids)
    while low < high:  # a longer run decodes to a longer text, so it can be bisected
        middle = (low + high + 1) // 2
        if text.startswith(tokenizer.decode(ids[:middle])):
            low = middle
        else:
            high = middle - 1
    rest = text[len(tokenizer.decode(ids[:low])) :]
    return ids[:low] + (tokenizer.encode(rest, parse_special=False) if rest else [])


def _parting(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
