"""Going off and coming back: forks, rollbacks, and taking over what a fork came to.

::

    session  [ head ][ 0 ][ 1 ]                         [ head ][ 0 ][ 1 ][ 2a ][ 3a ]   adopt(a): a is closed
                            |- fork a  [ 2a ][ 3a ] ----^
                            '- fork b  [ 2b ]                                            goes on by itself, or is closed
"""

from __future__ import annotations

from dataclasses import replace

from agentcache_sdk import _session_calls as calls
from agentcache_sdk._calls import Steps
from agentcache_sdk._core import SessionCore, SessionState
from agentcache_sdk._transcript import Transcript
from agentcache_sdk.types import SessionInfo


def fork(core: SessionCore, n: int, at_turn: int | None) -> Steps[list[SessionCore]]:
    """Works while a turn runs: the copies end at the last committed one.

    Raises:
        ValueError: ``n`` is less than 1, or there are not that many turns.
    """
    if n < 1:
        raise ValueError(f"fork: got {n}, expected at least 1")
    yield from core.open()
    with core.lock:
        copies = [core.transcript.kept(at_turn) for _ in range(n)]
    ids: list[str | None] = [None] * n
    if core.id is not None:
        # The turn is always named: the server may have committed one that this client has not read yet.
        kept = len(copies[0].turns)
        infos: list[SessionInfo] = yield from core.on_server(lambda known: calls.fork(known, n, kept))
        ids = [info.id for info in infos]
    return [_twin(core, transcript, session_id) for transcript, session_id in zip(copies, ids, strict=True)]


def _twin(core: SessionCore, transcript: Transcript, session_id: str | None) -> SessionCore:
    """Of this session's kind, with nothing shared that changes."""
    fresh = SessionCore(core.options, core.server, transcript, core.sink.copy(), core.clock)
    return replace(
        fresh, id=session_id, opened=True, raw=core.raw, family=core.family, functions=dict(core.functions),
        padding=core.padding, kept=core.kept, head_tokens=core.head_tokens, notes=core.notes,
    )  # fmt: skip


def rollback(core: SessionCore, to_turn: int) -> Steps[None]:
    """
    Raises:
        ValueError: there are not that many turns.
    """
    yield from core.open()
    with core.alone():
        kept = core.transcript.kept(to_turn)
        yield from core.settle()
        known_turns = len(core.transcript.turns)
        if core.id is not None and to_turn < known_turns:
            yield from core.on_server(lambda known: calls.rollback(known, to_turn, known_turns))
        with core.lock:
            core.transcript = kept


def adopt(core: SessionCore, other: SessionCore) -> Steps[None]:
    """``core`` goes on with what ``other``, a fork of it, came to; ``other`` is closed.

    Raises:
        ValueError: ``other`` is no fork of the session.
        Busy: one of them has a turn in flight.
        SessionDiverged: another client has gone on with the session meanwhile.
    """
    if other is core:
        raise ValueError("adopt: got the session itself, expected one of its forks")
    if other.family is not core.family:
        raise ValueError("adopt: got another session, expected a fork of this one (or a fork of its forks)")
    with core.alone(), other.alone():
        yield from core.settle()
        yield from other.settle()
        if core.id is not None and other.id is not None:
            fork_id, turns = other.id, len(core.transcript.turns)
            yield from core.on_server(lambda known: calls.adopt(known, fork_id, turns))
        with core.lock, other.lock:
            core.transcript = other.transcript
            core.functions = {**core.functions, **other.functions}
            core.waits += other.waits
            core.kept = other.kept
            core.notes += tuple(note for note in other.notes if note not in core.notes)
            other.state, other.id, other.transcript = SessionState.CLOSED, None, other.transcript.kept(None)
