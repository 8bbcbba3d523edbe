"""One session: an append-only transcript, its turns, and what may be done with them."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from agentcache.cache.tokens import Bookmark
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.splice import ChatInput
from agentcache.errors import AgentCacheError, RequestError
from agentcache.sessions.added_tools import AddedTools, beside
from agentcache.sessions.transcript import Prompt, Reply, Transcript, continue_chat, render_fresh
from agentcache.sessions.turn import Answered, Figures, Message, Turn
from agentcache.sessions.vault import Kept, digest_of

EVENTS_KEPT = 256
_CHANGES = frozenset({"turn", "rollback", "adopted"})
"""Events that change what a session holds."""


class SessionBusyError(AgentCacheError):
    """A second turn while one is in flight, or a change that cannot be made meanwhile (HTTP 429)."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a session begins with, before its first turn; never changed.

    Attributes:
        raw: continued with text or ids through completions; otherwise with messages through chat completions.
        transcript: of a chat session only an estimate of its first prompt's beginning (the first turn renders it anew,
            together with its own messages); empty where the template takes no conversation that ends here.
    """

    raw: bool
    messages: tuple[Message, ...] = ()
    tools: list[dict[str, Any]] | None = None
    transcript: Transcript = field(default_factory=Transcript)

    def begins_like(self, other: Head) -> bool:
        """Whether sessions of the two begin with the same: what a chat's first turn makes of it is no part of that."""
        if self is other:
            return True
        same_text = not self.raw or self.transcript.ids == other.transcript.ids
        return self.raw == other.raw and self.messages == other.messages and self.tools == other.tools and same_text


@dataclass(frozen=True, slots=True)
class Home:
    """Where a session lives: whose it is, and the namespace of its pages."""

    owner: bytes
    root: bytes
    salt: str | None = None


@dataclass(slots=True)
class VaultCopy:
    """What is known of a session's record in the vault.

    Attributes:
        version: the last one that this server has read or written; 0 before there is one.
        digest: of that record.  A vault that has lost what it had counts versions anew, so the number alone says nothing.
        owed: the session has gone on since, while the vault did not answer.
        tried: digests of records that may have been written, while the vault did not say so.
        expires: what the record says of the end of its time, in Unix seconds.
    """

    version: int = 0
    digest: bytes = b""
    owed: bool = False
    tried: set[bytes] = field(default_factory=set)
    expires: float = 0.0

    def is_of(self, kept: Kept) -> bool:
        """Whether this is a copy of that record."""
        return kept.version == self.version and digest_of(kept.record) == self.digest


@dataclass(slots=True, eq=False)
class Session:
    """The transcript of one conversation, or of one raw text.

    Times are seconds on the engine's clock.

    Args:
        transcript: of the head and every committed turn.
        ttl_s: it ends when it was not used for so long.
        lease_until: when the pin or the wait that keeps its pages ends.
        bookmark: what the engine knows of its tokens.
        copy: what the vault has of it.
    """

    id: str
    home: Home
    head: Head
    ttl_s: float
    created: float
    transcript: Transcript
    metadata: dict[str, Any] = field(default_factory=dict)
    parent: str | None = None
    turns: list[Turn] = field(default_factory=list)
    expires_at: float = 0.0
    lease_until: float | None = None
    closed: bool = False
    in_flight: TurnInFlight | None = None
    bookmark: Bookmark = field(default_factory=Bookmark)
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    copy: VaultCopy = field(default_factory=VaultCopy)

    @property
    def messages(self) -> list[Message]:
        """What was said, as it was sent."""
        return [*self.head.messages, *(message for turn in self.turns for message in turn.messages)]

    @property
    def rendered_messages(self) -> list[Message]:
        """The same as the chat template is given it."""
        return [*self.head.messages, *(message for turn in self.turns for message in turn.rendered_messages)]

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """Those of the head and those that turns added, in order; ``None`` for none at all."""
        added = [tool for turn in self.turns if turn.added is not None for tool in turn.added.schemas]
        return [*(self.head.tools or ()), *added] or None

    def transcript_at(self, turn: int) -> Transcript:
        """The transcript as it was at the end of the first ``turn`` turns."""
        if not turn:
            return self.head.transcript
        transcript = self.transcript
        for later in reversed(self.turns[turn:]):
            transcript = later.replaced or transcript
        last = self.turns[turn - 1]
        return transcript.cut(last.mark, last.end)

    def touch(self, now: float) -> None:
        self.expires_at = now + self.ttl_s

    def note(self, kind: str, now: float, **facts: Any) -> None:
        self.events.append({"event": kind, "at": now, **facts})

    def begin(
        self, messages: Sequence[Message] = (), ids: Sequence[int] = (), added: AddedTools | None = None
    ) -> TurnInFlight:
        """Start a turn; leaving it without ``commit`` leaves the session as it was.

        Args:
            messages: what is new, for a chat session.
            ids: what is new, for a raw one.
            added: tools that are new with the turn.

        Raises:
            SessionBusyError: a turn is in flight already.
            RequestError: nothing is new, and there is nothing to reply to; or new tools without a new message.
        """
        if self.in_flight is not None:
            raise SessionBusyError(f"session {self.id} is generating; one turn at a time")
        if self.head.raw:
            if not ids and not len(self.transcript):
                raise RequestError("prompt: got none, and the session is empty: expected text or token ids", "prompt")
        elif not messages:
            known = self.messages
            if not known or known[-1].get("role") == "assistant":
                raise RequestError(
                    "messages: got none, and nothing in the session waits for a reply: expected at least one message",
                    "messages",
                )
            if added is not None:
                raise RequestError("tools: got new ones in a turn without messages, expected at least one", "tools")
        self.in_flight = TurnInFlight(self, tuple(messages), array("I", ids), added=added)
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
            lease_until=None, in_flight=None, bookmark=Bookmark(self.bookmark.tokens), metadata=dict(self.metadata),
            events=deque(maxlen=EVENTS_KEPT), copy=VaultCopy(),
        )  # fmt: skip
        twin.note("forked", now, parent=self.id, turns=kept)
        self.note("fork", now, child=new_id, turns=kept)
        return twin

    def frozen(self) -> Session:
        """A copy of the committed turns, for a writer that takes its time."""
        return replace(self, turns=self.turns.copy(), in_flight=None, events=deque())

    def draft(self) -> Session:
        """A copy to make a change to, which is then written down before it is made here."""
        events = deque(self.events, maxlen=EVENTS_KEPT)
        twin = replace(self, turns=self.turns.copy(), metadata=dict(self.metadata), bookmark=Bookmark(), events=events)
        if self.in_flight is not None:
            twin.in_flight = replace(self.in_flight, session=twin, over=asyncio.Event())
        return twin

    def become(self, other: Session) -> None:
        """Go on as ``other``, a newer state of this session from elsewhere."""
        self.transcript, self.turns = other.transcript, other.turns
        self.metadata, self.events, self.parent = other.metadata, other.events, other.parent
        self.ttl_s, self.created, self.expires_at = other.ttl_s, other.created, other.expires_at
        self.copy, self.bookmark = other.copy, Bookmark()

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

    def adopt(self, fork: Session, now: float) -> None:
        """Go on with the turns of ``fork``, a session that begins as this one does.  It shares nothing with it afterwards.

        ::

            self   [ head ][ 1 ][ 2 ][ 3 ]            [ head ][ 1 ][ 2 ][ a ][ b ]     dropped: 1
            fork   [ head ][ 1 ][ 2 ][ a ][ b ]  ->

        Raises:
            SessionBusyError: one of the two has a turn in flight.
        """
        for session in (self, fork):
            if session.in_flight is not None:
                raise SessionBusyError(f"session {session.id} is generating; adopt when the turn is over")
        common = 0
        for ours, theirs in zip(self.turns, fork.turns, strict=False):
            if ours is not theirs and ours != theirs:
                break
            common += 1
        self.note("adopted", now, child=fork.id, turns=len(fork.turns), dropped=len(self.turns) - common)
        self.turns, self.transcript = fork.turns.copy(), fork.transcript
        self.bookmark = Bookmark(fork.bookmark.tokens)

    def has_just_adopted(self, fork_id: str) -> bool:
        """Whether that was the last change, so that asking for it again asks for nothing."""
        last = next((event for event in reversed(self.events) if event["event"] in _CHANGES), None)
        return last is not None and last.get("child") == fork_id

    def _turns_kept(self, count: int | None, param: str) -> int:
        if count is None:
            return len(self.turns)
        if not 0 <= count <= len(self.turns):
            raise RequestError(f"{param}: got {count}, expected 0 to {len(self.turns)}, the turns so far", param)
        return count


def as_message(said: ReplyMessage) -> Message:
    """What a model said, in the shape in which clients send it back."""
    message: Message = {"role": "assistant", "content": said.content or (None if said.calls else "")}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in said.calls
        ]
    return message


@dataclass(slots=True, eq=False)
class TurnInFlight:
    """A turn that has begun; ``commit`` or the end of the ``with`` block ends it.

    Attributes:
        cancel: ends the generation; called when the session is deleted.
        over: set when the turn has ended, committed or not.
        turn_id, added, answered: see ``Turn``.
    """

    session: Session
    messages: tuple[Message, ...]
    new_ids: array[int]
    prompt: Prompt | None = None
    committed: bool = False
    cancel: Callable[[], None] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    turn_id: str | None = None
    added: AddedTools | None = None
    answered: Answered | None = None

    @property
    def all_messages(self) -> list[Message]:
        """The whole conversation as the chat template is given it."""
        return [*self.session.rendered_messages, *beside(self.messages, self.added)]

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """All that the reply may call."""
        added = () if self.added is None else self.added.schemas
        return [*(self.session.tools or ()), *added] or None

    def make_prompt(self, renderer: ChatRenderer, template_kwargs: Mapping[str, Any] | None = None) -> Prompt:
        """What to send to the engine: the transcript as it is, and tokens for what is new.

        Raises:
            ChatTemplateError: the template refuses the messages.
        """
        session = self.session
        before = session.transcript
        if session.head.raw:
            self.prompt = Prompt(Transcript(before.ids + self.new_ids), kept=before.mark)
            return self.prompt
        chat = ChatInput(self.all_messages, session.head.tools, template_kwargs, root=session.home.root)
        self.prompt = continue_chat(before, chat, renderer) if session.turns else render_fresh(renderer, chat)
        return self.prompt

    def commit(self, reply: Reply, transcript: Transcript, figures: Figures, now: float) -> None:
        """Append the turn, which made ``transcript``.  Does nothing when the session was closed meanwhile."""
        session, prompt = self.session, self.prompt
        assert prompt is not None, "a turn is committed after its prompt was made"
        if session.closed or session.in_flight is not self:
            return
        answer = () if session.head.raw else (as_message(reply.said),)
        turn = Turn(
            messages=(*self.messages, *answer),
            mark=transcript.mark,
            end=transcript.end,
            replaced=None if prompt.broken_at is None else session.transcript,
            figures=figures,
            turn_id=self.turn_id,
            added=self.added,
            answered=self.answered,
        )
        session.turns.append(turn)
        session.transcript = transcript
        session.note("turn", now, **turn.to_json())
        session.touch(now)
        self.committed = True
        self.end()

    def end(self) -> None:
        if self.session.in_flight is self:
            self.session.in_flight = None
        self.over.set()

    def __enter__(self) -> TurnInFlight:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
