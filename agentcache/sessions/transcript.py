"""What was said, as text and as the exact token ids that the model read and wrote.

::

    text  [ prompt of turn 1 ............ ][ reply ][ prompt of turn 2, new part ][ reply ]
    ids   [ as rendered and tokenised ... ][ drawn ][ tokenised ................ ][ drawn ]

What lies between replies is what the chat template makes of the other messages; replies are as they were drawn, whatever the
template would make of them.  The next turn is rendered whole, around the replies, and must repeat what lies between them; only
what comes behind the last one is tokenised.  Where a template does not repeat its own beginning, the turn is answered from a
fresh rendering, and says so.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentcache.chat.renderer import ChatRenderer, RenderedText, encode_aliased_behind, encode_behind
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.segments import Encoded
from agentcache.chat.splice import ChatInput, TextAround
from agentcache.chat.text import common_length
from agentcache.chat.tokenizer import Tokenizer
from agentcache.sessions.naming import reasoning_digest


class EndToken(NamedTuple):
    """The token that ended a reply, and its text.  It belongs to the transcript once the template has repeated it."""

    token: int
    text: str


class Mark(NamedTuple):
    """A place in a transcript: lengths of its ids and its text."""

    tokens: int
    characters: int


class KnownReply(NamedTuple):
    """Where in a transcript a reply lies, and what is known of the message that it was.

    ::

        text   ... <|im_end|>\\n<|im_start|>assistant\\n Let me look. <tool_call>{"name": ... <|im_end|>\\n
                             [ header: prompted ... ]^ start                              end ^[ end token ]

    Attributes:
        message: its index in the conversation.
        header: characters of the generation prompt before it; in a history a template may write other ones there.
        reasoning: a digest of what the model wrote for itself; see ``reasoning_digest``.
        call_ids: ids that its calls were given.
    """

    message: int
    start: Mark
    end: Mark
    end_token: EndToken | None
    header: int = 0
    reasoning: str = ""
    call_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcript:
    """Ids, and the text that they stand for.  A raw transcript (no messages) has no text.

    Never changed once made: forks and snapshots share it.

    Attributes:
        end: the token that ended the reply that the transcript ends with.
        replies: those that were generated here, in order.
    """

    ids: array[int] = field(default_factory=lambda: array("I"))
    text: str = ""
    end: EndToken | None = None
    replies: tuple[KnownReply, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mark(self) -> Mark:
        return Mark(len(self.ids), len(self.text))

    def with_text(self, ids: Sequence[int], text: str) -> Transcript:
        """Followed by a text that nobody generated."""
        return Transcript(self.ids + array("I", ids), self.text + text, None, self.replies)

    def with_reply(self, message: int, header: int, reply: Reply, tokenizer: Tokenizer) -> Transcript:
        """Followed by what the model said.

        Args:
            message: the index that the reply has in the conversation.
            header: how many characters of generation prompt the text ends with.
        """
        ids, text, end = self.ids + array("I", reply.ids(tokenizer)), self.text + reply.text, reply.end(tokenizer)
        said = reply.said
        known = KnownReply(
            message, self.mark, Mark(len(ids), len(text)), end, header,
            reasoning_digest(said.reasoning), tuple(call.id for call in said.calls),
        )  # fmt: skip
        return Transcript(ids, text, end, (*self.replies, known))

    def cut(self, mark: Mark, end: EndToken | None) -> Transcript:
        """What it was at ``mark``."""
        if mark == self.mark and end == self.end:
            return self
        kept = tuple(reply for reply in self.replies if reply.end.tokens <= mark.tokens)
        return Transcript(self.ids[: mark.tokens], self.text[: mark.characters], end, kept)

    def first_replies(self, count: int) -> Transcript:
        """What it was when ``count`` of its replies (one at least) had been given."""
        last = self.replies[count - 1]
        return Transcript(
            self.ids[: last.end.tokens], self.text[: last.end.characters], last.end_token, self.replies[:count]
        )  # fmt: skip


_NOTHING = Mark(0, 0)
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request sends to the engine.

    Attributes:
        transcript: all of it.
        kept: how much was taken over from what was known.
        broken_at: the character at which the template stopped repeating its own beginning; ``None`` when it did repeat it.
        encoded: where each token begins, if all of it was just tokenised.
        spells_controls: typed text in it looks like control tokens, so that its text does not name its tokens.
        header: characters of generation prompt that it ends with, as far as that can be told.
    """

    transcript: Transcript
    kept: Mark = _NOTHING
    broken_at: int | None = None
    encoded: Encoded | None = field(default=None, repr=False)
    spells_controls: bool = False
    header: int = 0

    @property
    def ids(self) -> list[int]:
        return self.transcript.ids.tolist()


def fresh_prompt(rendered: RenderedText) -> Prompt:
    """The prompt of a conversation of which nothing is known."""
    encoded = rendered.encoded()
    transcript = Transcript(encoded.ids, rendered.text)
    return Prompt(transcript, encoded=encoded, spells_controls=rendered.spells_controls)


def render_fresh(renderer: ChatRenderer, chat: ChatInput) -> Prompt:
    """
    Raises:
        ChatTemplateError: the template refuses the messages.
    """
    return headed(fresh_prompt(render(renderer, chat)), renderer, chat)


def render(renderer: ChatRenderer, chat: ChatInput) -> RenderedText:
    return renderer.render_text(
        chat.messages,
        tools=chat.tools,
        add_generation_prompt=chat.add_generation_prompt,
        template_kwargs=chat.template_kwargs,
        root=chat.root,
    )


def headed(prompt: Prompt, renderer: ChatRenderer, chat: ChatInput) -> Prompt:
    """``prompt`` with the length of its generation prompt."""
    opening = renderer.opening(chat)
    return replace(prompt, header=len(opening)) if prompt.transcript.text.endswith(opening) else prompt


def continue_chat(known: Transcript, chat: ChatInput, renderer: ChatRenderer) -> Prompt:
    """The prompt of ``chat``, a conversation of which ``known`` is what was said so far.

    Raises:
        ChatTemplateError: the template refuses the messages.
    """
    prompt = splice(known, chat, renderer)
    if prompt is not None and len(prompt.transcript.replies) == len(known.replies):
        return prompt
    rendered = render(renderer, chat)
    if prompt is None or rendered.text.startswith(known.text):
        return headed(continue_text(known, rendered), renderer, chat)
    return replace(prompt, broken_at=common_length(known.text, prompt.transcript.text))


def splice(known: Transcript, chat: ChatInput, renderer: ChatRenderer) -> Prompt | None:
    """The prompt of ``chat``, whose messages at the places of ``known.replies`` are those replies.

    ::

        known      [ between ][ reply ][ between ][ reply ]
        rendered   [ piece 0 ]         [ piece 1 ]         [ piece 2: tokenised ]

    As many replies are kept as what lies between them is repeated, and none with calls where the template cannot be rendered
    around those; ``None`` when that is none.  Text between that ends with a generation prompt must be repeated up to that
    prompt: templates write a turn's beginning in another way while they ask for it (``<think>``).
    """
    count = len(known.replies)
    # How a template writes a later reply may matter to what it writes before: then again, with that in its own words.
    for _ in range(_ATTEMPTS):
        kept = known.replies[:count]
        around = renderer.render_around(chat, {reply.message: reply.call_ids for reply in kept}) if kept else None
        if around is None:
            repeated = next((index for index, reply in enumerate(kept) if reply.call_ids), 0)
        else:
            repeated = _repeated(known.text, kept, around)
            if repeated == count:
                return headed(_joined(known.first_replies(count), around, renderer.tokenizer), renderer, chat)
        if not repeated:
            return None
        count = repeated
    return None


def text_around(transcript: Transcript, chat: ChatInput, renderer: ChatRenderer) -> str:
    """The text of ``chat``, a conversation that ``transcript`` begins with or goes on from, with the replies as they were drawn.

    Raises:
        ChatTemplateError: the template refuses the messages.
    """
    count = sum(reply.message < len(chat.messages) for reply in transcript.replies)
    known = transcript.replies[:count]
    around = renderer.render_around(chat, {reply.message: reply.call_ids for reply in known}) if known else None
    if around is None:
        return render(renderer, chat).text
    return transcript.text[: known[-1].end.characters] + around.pieces[-1]


def _repeated(text: str, replies: Sequence[KnownReply], around: TextAround) -> int:
    """Before how many replies ``around`` has what ``text`` has there."""
    place = 0
    for count, (reply, piece) in enumerate(zip(replies, around.pieces, strict=False)):
        if not piece.startswith(text[place : max(place, reply.start.characters - reply.header)]):
            return count
        place = reply.end.characters
    return len(replies)


def _joined(known: Transcript, around: TextAround, tokenizer: Tokenizer) -> Prompt:
    """``known`` and the last piece."""
    piece, aliased, ids, end = around.pieces[-1], around.aliased, known.ids, known.end
    alias = None if end is None or aliased is None else tokenizer.literal.aliases.get(end.text, end.text)
    place, text = len(known.text), known.text + piece
    if end is not None and piece.startswith(end.text) and (aliased is None or aliased.startswith(alias or "")):
        ids, place = ids + array("I", [end.token]), place + len(end.text)
        aliased = None if aliased is None else aliased[len(alias or "") :]
        before = alias or ""
    else:
        before = known.text[known.replies[-1].start.characters :]
    new = (
        encode_behind(tokenizer, text, place) if aliased is None else encode_aliased_behind(tokenizer, before, aliased)
    )
    transcript = Transcript(ids + array("I", new), text, None, known.replies)
    return Prompt(transcript, kept=Mark(len(ids), place), spells_controls=around.aliased is not None)


def continue_text(known: Transcript, rendered: RenderedText) -> Prompt:
    """The prompt that ``rendered`` (the whole conversation so far) makes of what is ``known``, replies in the template's words.

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
        Transcript(ids + new, text, None, known.replies),
        kept=Mark(len(ids), place),
        spells_controls=rendered.spells_controls,
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """What one sequence generated.

    Attributes:
        text: as it was shown (cut before a stop string, without the special tokens that are not shown).
        token_ids: every token that was drawn, without the end token.
        end_token: the token that ended it, if one did.
        message: what the text says; ``None``: all of it is content.
        cut: a stop string ended it, so that ``token_ids`` stand for more than the text.
    """

    text: str
    token_ids: Sequence[int]
    end_token: int | None = None
    message: ReplyMessage | None = None
    cut: bool = False

    @property
    def said(self) -> ReplyMessage:
        return ReplyMessage(content=self.text) if self.message is None else self.message

    def end(self, tokenizer: Tokenizer) -> EndToken | None:
        if self.end_token is None:
            return None
        text = tokenizer.decode([self.end_token], skip_special_tokens=False)
        return EndToken(self.end_token, text) if text else None

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        """Ids by which the reply continues its transcript: the drawn ones.

        Only where a stop string cut the text (also one that was found in what was held back to the end) do ids and text part:
        then the tokens that lie wholly in the text are kept, and the rest of the text is tokenised.
        """
        if not self.cut and any(
            self.text == tokenizer.decode(self.token_ids, skip_special_tokens=s) for s in (True, False)
        ):
            return list(self.token_ids)
        kept, length = self._inside(tokenizer)
        rest = self.text[length:]
        return kept + (tokenizer.encode(rest, parse_special=False) if rest else [])

    def _inside(self, tokenizer: Tokenizer) -> tuple[list[int], int]:
        """The tokens that lie wholly in the text, and how many characters they stand for.

        Special tokens are in the text or not: their own text tells, where they stand.
        """
        text, place = self.text, 0
        kept, run = list[int](), list[int]()
        for token in self.token_ids:
            if not tokenizer.is_special(token):
                run.append(token)
                continue
            whole = _spelled(tokenizer, run, first=not kept)
            if not text.startswith(whole, place) or (self.cut and place + len(whole) == len(text)):
                break
            marker = tokenizer.token_text(token)
            place += len(whole)
            place += len(marker) if text.startswith(marker, place) else 0
            kept, run = [*kept, *run, token], []
        while not text.startswith(whole := _spelled(tokenizer, run, first=not kept), place):
            run.pop()
        return kept + run, place + len(whole)


def _spelled(tokenizer: Tokenizer, ids: Sequence[int], *, first: bool) -> str:
    """The text of plain tokens; ``first``: those that a text begins with."""
    if first:
        return tokenizer.decode(ids)
    return b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")
