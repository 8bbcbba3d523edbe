"""One session: an append-only transcript, its turns, and what may be done with them."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple

from agentcache.chat.renderer import ChatRenderer
from agentcache.errors import AgentCacheError, RequestError
from agentcache.request import SequenceReport
from agentcache.sessions.transcript import Prompt, Reply, Transcript, continue_chat, reply_tokens

_EVENTS_KEPT = 256

Message = dict[str, Any]


class SessionBusyError(AgentCacheError):
    """A second turn while one is in flight, or a change that cannot be made meanwhile (HTTP 429)."""


class Mark(NamedTuple):
    """A place in a transcript: lengths of its ids and its text."""

    tokens: int
    characters: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A committed turn."""

    messages: tuple[Message, ...]
    """What was sent, and the reply."""
    end: Mark
    """Where the session's transcript ended with this turn."""
    replaced: Transcript | None
    """The transcript before this turn, where the template did not let it be continued."""
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    completion_tokens: int
    miss: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": len(self.messages),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "computed_tokens": self.computed_tokens,
            "completion_tokens": self.completion_tokens,
            "miss": self.miss,
        }


@dataclass(slots=True)
class Session:
    """The transcript of one conversation, or of one raw text.

    Args:
        raw: continued with text or ids through completions; otherwise with messages through chat completions.
        root: namespace of its pages; only its owner can name it.
        head: messages before the first turn.
        transcript: of the head and every committed turn.
        start: where the head ends in the transcript.
        ttl_s: it ends when it was not used for so long.
    """

    id: str
    owner: bytes
    root: bytes
    model: str
    raw: bool
    head: tuple[Message, ...]
    tools: list[dict[str, Any]] | None
    transcript: Transcript
    start: Mark
    ttl_s: float
    created: float
    metadata: dict[str, Any] = field(default_factory=dict)
    parent: str | None = None
    turns: list[Turn] = field(default_factory=list)
    expires_at: float = 0.0
    pinned_until: float | None = None
    closed: bool = False
    in_flight: TurnInFlight | None = None
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_EVENTS_KEPT))

    @property
    def messages(self) -> list[Message]:
        return [*self.head, *(message for turn in self.turns for message in turn.messages)]

    def transcript_at(self, turn: int) -> Transcript:
        """The transcript as it was at the end of the first ``turn`` turns."""
        transcript = self.transcript
        for later in reversed(self.turns[turn:]):
            transcript = later.replaced or transcript
        end = self.turns[turn - 1].end if turn else self.start
        return Transcript(transcript.ids[: end.tokens], transcript.text[: end.characters])

    def touch(self, now: float) -> None:
        self.expires_at = now + self.ttl_s

    def note(self, kind: str, now: float, **facts: Any) -> None:
        self.events.append({"event": kind, "at": now, **facts})

    def begin(self, messages: Sequence[Message] = (), ids: Sequence[int] = ()) -> TurnInFlight:
        """Start a turn; leaving it without ``commit`` leaves the session as it was.

        Args:
            messages: what is new, for a chat session.
            ids: what is new, for a raw one.

        Raises:
            SessionBusyError: a turn is in flight already.
            RequestError: nothing is new, and there is nothing to reply to.
        """
        if self.in_flight is not None:
            raise SessionBusyError(f"session {self.id} is generating; one turn at a time")
        if not messages and not ids and not self.messages and not len(self.transcript):
            raise RequestError("messages: got none, and the session is empty: expected at least one", "messages")
        self.in_flight = TurnInFlight(self, tuple(messages), array("I", ids))
        return self.in_flight

    def fork(self, new_id: str, now: float, at_turn: int | None = None) -> Session:
        """A session of its own that begins with this one's first ``at_turn`` turns (all committed ones when ``None``).

        Works while a turn is in flight, which is not part of it.

        Raises:
            RequestError: there are not so many turns.
        """
        kept = self._turns_kept(at_turn, "at_turn")
        twin = replace(
            self, id=new_id, parent=self.id, turns=self.turns[:kept], transcript=self.transcript_at(kept), created=now,
            pinned_until=None, in_flight=None, metadata=dict(self.metadata), events=deque(maxlen=_EVENTS_KEPT),
        )  # fmt: skip
        twin.touch(now)
        twin.note("forked", now, parent=self.id, turns=kept)
        self.note("fork", now, child=new_id, turns=kept)
        return twin

    def rollback(self, to_turn: int, now: float) -> None:
        """Keep the first ``to_turn`` turns and forget the others.

        Raises:
            SessionBusyError: a turn is in flight.
            RequestError: there are not so many turns.
        """
        if self.in_flight is not None:
            raise SessionBusyError(f"session {self.id} is generating; roll back when the turn is over")
        kept = self._turns_kept(to_turn, "to_turn")
        self.note("rollback", now, dropped=len(self.turns) - kept)
        self.transcript = self.transcript_at(kept)
        del self.turns[kept:]

    def _turns_kept(self, count: int | None, param: str) -> int:
        if count is None:
            return len(self.turns)
        if not 0 <= count <= len(self.turns):
            raise RequestError(f"{param}: got {count}, expected 0 to {len(self.turns)}, the turns so far", param)
        return count

    def summary(self, page_size: int) -> dict[str, Any]:
        tokens = len(self.transcript)
        return {
            "id": self.id,
            "object": "session",
            "model": self.model,
            "kind": "raw" if self.raw else "chat",
            "parent": self.parent,
            "tokens": tokens,
            "pages": -(-tokens // page_size),
            "created_at": self.created,
            "expires_at": self.expires_at,
            "pinned_until": self.pinned_until,
            "in_flight": self.in_flight is not None,
            "metadata": self.metadata,
        }


@dataclass(slots=True, eq=False)
class TurnInFlight:
    """A turn that has begun; ``commit`` or the end of the ``with`` block ends it."""

    session: Session
    messages: tuple[Message, ...]
    new_ids: array[int]
    prompt: Prompt | None = None

    def make_prompt(self, renderer: ChatRenderer, template_kwargs: Mapping[str, Any] | None = None) -> Prompt:
        """What to send to the engine: the transcript as it is, and tokens for what is new.

        Raises:
            ChatTemplateError: the template refuses the messages.
        """
        session = self.session
        if session.raw:
            before = session.transcript
            self.prompt = Prompt(Transcript(before.ids + self.new_ids), kept=len(before))
        else:
            rendered = renderer.render_text(
                [*session.messages, *self.messages], tools=session.tools, template_kwargs=template_kwargs
            )
            self.prompt = continue_chat(session.transcript, rendered)
        return self.prompt

    def commit(self, reply: Reply, report: SequenceReport, renderer: ChatRenderer, now: float) -> None:
        """Append the turn.  Does nothing when the session was closed meanwhile."""
        session, prompt = self.session, self.prompt
        assert prompt is not None, "a turn is committed after its prompt was made"
        if session.closed or session.in_flight is not self:
            return
        ids, text = reply_tokens(reply, renderer.tokenizer)
        miss = template_miss(prompt, report) or (report.miss.to_json() if report.miss is not None else None)
        answer = () if session.raw else ({"role": "assistant", "content": reply.text},)
        transcript = prompt.transcript.extended(ids, "" if session.raw else text)
        turn = Turn(
            messages=(*self.messages, *answer),
            end=Mark(len(transcript), len(transcript.text)),
            replaced=None if prompt.broken_at is None else session.transcript,
            prompt_tokens=report.prompt_tokens,
            cached_tokens=report.cached_tokens,
            computed_tokens=report.computed_tokens,
            completion_tokens=report.completion_tokens,
            miss=miss,
        )
        session.turns.append(turn)
        session.transcript = transcript
        session.note("turn", now, **turn.to_json())
        session.touch(now)
        self.end()

    def end(self) -> None:
        if self.session.in_flight is self:
            self.session.in_flight = None

    def __enter__(self) -> TurnInFlight:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def template_miss(prompt: Prompt, report: SequenceReport) -> dict[str, Any] | None:
    """The miss of a turn whose template did not repeat its own beginning."""
    if prompt.broken_at is None or report.cached_tokens >= report.prompt_tokens - 1:
        return None
    return {
        "code": "template",
        "at_token": report.cached_tokens,
        "message_index": None,
        "path": None,
        "was": None,
        "now": None,
        "detail": f"the chat template rendered the earlier turns differently from character {prompt.broken_at} on",
    }
