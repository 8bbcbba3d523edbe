"""Giving up old turns for a summary of them: explicit, priced, and never behind anybody's back.

The turns that stay lie at other places than before, so their keys and values have to be computed again; what the
session begins with stays as it is, and stays cached::

    before  [ head ][ 0 ][ 1 ][ 2 ][ 3 ]
    after   [ head ][ summary of 0, 1, 2; 3 ]        keep_turns = 1
              cached  computed again, once
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentcache_sdk import _session_calls as calls
from agentcache_sdk._branches import fork
from agentcache_sdk._calls import Steps
from agentcache_sdk._core import SessionCore
from agentcache_sdk._flights import SessionFlight, TurnInput, whole
from agentcache_sdk._transcript import Message, Transcript
from agentcache_sdk.cache_warnings import CallSite
from agentcache_sdk.errors import AgentCacheError, SessionDiverged
from agentcache_sdk.types import SessionInfo

ASK = "Summarise our conversation so far for yourself: what was asked, what was found and done, and what is left to do."
_TITLE = "Summary of the conversation so far:"
_GO_ON = "I will go on from there."


@dataclass(frozen=True)
class CompactInput:
    """The arguments of ``compact``."""

    summary: str | None
    keep_turns: int
    ask: str
    max_tokens: int
    site: CallSite


@dataclass(frozen=True)
class Compaction:
    """What a compaction did (finding AC403, legitimate: it was asked for).  Figures in tokens.

    Attributes:
        turns_dropped, turns_kept: of the turns before it.
        summary: what stands for the dropped ones.
        tokens_before: transcript before it, as far as the client knows.
        tokens_after: transcript after it; ``None`` where the server does not say.
        summary_computed: what writing the summary cost, 0 for one that was given.
        recomputed: what the next turn computes again, at most; ``None`` where it is not known.
    """

    turns_dropped: int
    turns_kept: int
    summary: str
    tokens_before: int
    tokens_after: int | None
    summary_computed: int
    recomputed: int | None

    def __str__(self) -> str:
        if not self.turns_dropped:
            return "nothing to compact"
        after = "an unknown number of" if self.tokens_after is None else f"{self.tokens_after:,}"
        turns = f"{self.turns_dropped} turn{'s' * (self.turns_dropped != 1)}"
        text = f"AC403 compacted {turns}: {self.tokens_before:,} -> {after} tokens"
        costs = [f"the summary computed {self.summary_computed:,}"] if self.summary_computed else []
        costs += [] if self.recomputed is None else [f"the next turn computes about {self.recomputed:,} again"]
        return f"{text}; {', '.join(costs)}" if costs else text


def compact(core: SessionCore, given: CompactInput) -> Steps[Compaction]:
    """
    Raises:
        ValueError: a wrong ``keep_turns``, a raw session, or tool calls that wait for results and would be dropped.
        Busy: a turn is in flight.
    """
    if given.keep_turns < 0:
        raise ValueError(f"keep_turns: got {given.keep_turns}, expected 0 or more")
    yield from core.open()
    if core.raw:
        raise ValueError("compact: a raw session has no messages to summarise; begin a new one with a shorter text")
    if core.transcript.resumed:
        raise AgentCacheError("compact: this server does not tell what was said before the session was resumed")
    with core.alone():
        yield from core.settle()
        before = core.transcript
        cut = _cut(before, given.keep_turns)
        if not cut:
            return Compaction(0, len(before.turns), "", _tokens(before), _tokens(before), 0, 0)
        if cut == len(before.turns) and (before.open_calls() or before.pending):
            raise ValueError("compact: tool calls wait for their results; keep_turns must be 1 or more")
        if core.id is not None:
            yield from _unchanged(core, len(before.turns))
        summary, computed = (given.summary, 0) if given.summary is not None else (yield from _summary(core, given))
        after = _compacted(before, cut, summary)
        # The new session comes last, so that whatever fails before it leaves the session as it was.
        info = yield from _remade(core, after)
        tokens = None if info is None else info.tokens
        again = None if tokens is None or core.head_tokens is None else max(0, tokens - core.head_tokens)
        done = Compaction(cut, len(before.turns) - cut, summary, _tokens(before), tokens, computed, again)
        yield from _switch(core, before, after, info, done)
        return done


def _unchanged(core: SessionCore, turns: int) -> Steps[None]:
    """
    Raises:
        SessionDiverged: another client has gone on with the session; what it said would be lost.
    """
    info: SessionInfo = yield from core.on_server(calls.state)
    if len(info.turns) != turns:
        message = (
            f"compact: the session has {len(info.turns)} turns and this client knows {turns}: another has changed it"
        )
        raise SessionDiverged(message, 422, "session_diverged", "if_turns")


def _switch(
    core: SessionCore, before: Transcript, after: Transcript, info: SessionInfo | None, done: Compaction
) -> Steps[None]:
    """Go on with the new session and end the old one, which must still be as it was."""
    with core.lock:
        old, core.id = core.id, None if info is None else info.id
        kept, core.kept = core.kept, None
        notes, core.notes = core.notes, (*core.notes, str(done))
        core.transcript = after
    if old is not None:
        try:
            yield calls.delete(old, len(before.turns))
        except SessionDiverged:  # in the moment since it was looked at
            with core.lock:
                new, core.id, core.kept, core.notes, core.transcript = core.id, old, kept, notes, before
            if new is not None:
                yield from core.discard(new)
            raise
        except AgentCacheError:
            pass  # it ends by itself when its ttl is over
    if core.closed and core.id is not None:
        yield from core.discard(core.id)


def _cut(transcript: Transcript, keep_turns: int) -> int:
    """How many turns go: those that stay begin with a user message, since a result must not lose its call."""
    cut = max(0, len(transcript.turns) - keep_turns)
    while 0 < cut < len(transcript.turns) and transcript.turns[cut].messages[0].get("role") != "user":
        cut -= 1
    return cut


def _summary(core: SessionCore, given: CompactInput) -> Steps[tuple[str, int]]:
    """Asked of a fork, where the whole conversation is cached, so that the session itself is left as it is."""
    (twin,) = yield from fork(core, 1, len(core.transcript.turns))
    try:
        sampling = {"tool_choice": "none"} if twin.transcript.known_tools else {}
        flight = SessionFlight(twin, TurnInput(given.ask, given.max_tokens, None, sampling), given.site)
        turn = yield from whole(flight)
    finally:
        yield from twin.close()
    return turn.text.strip(), turn.cache.computed_tokens or 0


def _compacted(before: Transcript, cut: int, summary: str) -> Transcript:
    """With the summary in what it begins with, so that whoever takes the session up or restores it has it too."""
    said = f"{_TITLE}\n{summary}"
    kept: list[Message] = [dict(message) for record in before.turns[cut:] for message in record.messages]
    if kept:
        kept[0] = {**kept[0], "content": f"{said}\n\n{kept[0]['content']}"}
    else:  # with an answer to it, because many templates want user and assistant to take turns
        kept = [{"role": "user", "content": said}, {"role": "assistant", "content": _GO_ON}]
    added = [schema for record in before.turns for schema in record.tools]
    return replace(
        before,
        head=(*before.head, *kept),
        turns=[],
        pending=list(before.pending),
        new_tools=(*added, *before.new_tools),
        past=before.report(()).rows,
        beginning="AC403 compacted: what stayed was computed again, once",
    )


def _remade(core: SessionCore, after: Transcript) -> Steps[SessionInfo | None]:
    """A transcript is never edited: the server makes a new session, and the old one ends."""
    if core.id is None:
        return None
    fields = {**core.options.fields(), "messages": list(after.head) or None, "tools": list(after.tools) or None}
    info: SessionInfo = yield calls.create({**fields, "from_snapshot": None})
    return info


def _tokens(transcript: Transcript) -> int:
    return transcript.turns[-1].turn.usage.total_tokens if transcript.turns else 0
