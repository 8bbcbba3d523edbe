"""Going off and coming back: forks, rollbacks, and taking over what a fork came to.

::

    session  [ head ][ 0 ][ 1 ]                         [ head ][ 0 ][ 1 ][ 2a ][ 3a ]   adopt(a): a is closed
                            |- fork a  [ 2a ][ 3a ] ----^
                            '- fork b  [ 2b ]                                            goes on by itself, or is closed
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentcache_sdk import _session_calls as calls
from agentcache_sdk._calls import Steps
from agentcache_sdk._core import SessionCore, SessionState
from agentcache_sdk._transcript import Transcript
from agentcache_sdk.errors import APIError, NotFound
from agentcache_sdk.types import SessionInfo


def fork(core: SessionCore, n: int, at_turn: int | None) -> Steps[list[SessionCore]]:
    """Works while a turn runs: the copies end at the last committed one.

    Raises:
        ValueError: ``n`` is less than 1, or there are not that many turns.
    """
    if n < 1:
        raise ValueError(f"fork: got {n}, expected at least 1")
    yield from core.open()
    if core.doubt is not None:
        with core.alone():
            yield from core.settle()
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
        fresh, id=session_id, opened=True, raw=core.raw, lineage=(*core.lineage, object()), functions=dict(core.functions),
        padding=core.padding, kept=core.kept, head_tokens=core.head_tokens, notes=core.notes,
    )  # fmt: skip


def rollback(core: SessionCore, to_turn: int) -> Steps[None]:
    """
    Raises:
        TypeError: no whole number.
        ValueError: there are not that many turns.
    """
    if not isinstance(to_turn, int):
        raise TypeError(f"to_turn: got {to_turn!r}, expected an integer, how many turns are kept")
    yield from core.open()
    with core.alone():
        yield from core.settle()
        core.transcript.kept(to_turn)  # a wrong number is refused before anything is sent
        yield from core.change(Rollback(core, to_turn, len(core.transcript.turns)))


@dataclass(frozen=True)
class Rollback:
    """To the first ``to_turn`` of ``known`` turns."""

    core: SessionCore
    to_turn: int
    known: int

    def make(self) -> Steps[None]:
        core = self.core
        if core.id is not None and self.to_turn < self.known:
            yield from core.on_server(lambda session: calls.rollback(session, self.to_turn, self.known))
        with core.lock:
            core.transcript = core.transcript.kept(self.to_turn)

    def again(self) -> Steps[None]:
        return self.make()


def adopt(core: SessionCore, other: SessionCore) -> Steps[None]:
    """``core`` goes on with what ``other``, a fork of it, came to; ``other`` is closed.

    Raises:
        ValueError: ``other`` is no fork of the session.
        Busy: one of them has a turn in flight.
        SessionDiverged: another client has gone on with the session meanwhile.
    """
    if other is core:
        raise ValueError("adopt: got the session itself, expected one of its forks")
    taken_up = any(one.options.session_id or one.options.from_snapshot for one in (core, other))
    if other.lineage[0] is core.lineage[0]:
        if core.lineage[-1] not in other.lineage:
            raise ValueError(
                "adopt: got a session that this one was forked from, or beside; expected one of its own forks"
            )
    elif not taken_up:  # of a session that was taken up only the server knows
        raise ValueError("adopt: got another session, expected a fork of this one (or a fork of its forks)")
    with core.alone():
        lost = core.doubt
        yield from core.settle()
        if isinstance(lost, Adoption) and lost.fork is other and other.state is SessionState.CLOSED:
            return  # it is made now
        with other.alone():
            yield from other.settle()
            yield from core.change(Adoption(core, other, other.id, other.transcript.kept(None)))


@dataclass
class Adoption:
    """Of a fork that the server knows as ``known_as``, with the transcript that it had when that was first asked for.

    ::

        make    adopt -> 200
                      -> 404: whichever is gone comes back from its snapshot, adopt -> 200
        again   adopt -> 200: made now, or before
                      -> 404: never made, and the fork has ended: the session is as it was
    """

    core: SessionCore
    fork: SessionCore
    known_as: str | None
    transcript: Transcript

    def make(self) -> Steps[None]:
        core, fork = self.core, self.fork
        if core.id is not None and self.known_as is not None:
            try:
                yield calls.adopt(core.id, self.known_as, len(core.transcript.turns))
            except APIError as error:
                if error.code != "session_not_found":
                    raise
                # One of the two is gone; each comes back if a snapshot has all of it.
                yield from core.on_server(calls.info)
                yield from fork.on_server(calls.info)
                assert fork.id is not None
                self.known_as = fork.id
                yield calls.adopt(core.id, fork.id, len(core.transcript.turns))
        self._take_over(fork, fork.transcript)

    def again(self) -> Steps[None]:
        """The fork may have been closed meanwhile, or have gone on, where the server never heard of its adoption."""
        fork = self.fork
        if fork.state is SessionState.CLOSED or fork.id != self.known_as:
            yield from self._of_what_was()
            return
        with fork.alone():
            yield from self._end_cut_turn()
            try:
                yield from self.make()
            except NotFound:
                yield from self.core.on_server(calls.info)  # the session is there: then it is as before

    def _of_what_was(self) -> Steps[None]:
        core = self.core
        assert core.id is not None
        assert self.known_as is not None
        try:
            yield calls.adopt(core.id, self.known_as, len(core.transcript.turns))
        except NotFound:
            yield from core.on_server(calls.info)
        else:
            self._take_over(None, self.transcript)

    def _end_cut_turn(self) -> Steps[None]:
        fork = self.fork
        if fork.unsettled and self.known_as is not None:
            turn = fork.next_turn
            try:
                yield calls.drop_turn(self.known_as, turn["if_turns"], turn["turn_id"])
            except NotFound:
                pass  # adopted, so there was no turn after that
            fork.unsettled = False

    def _take_over(self, fork: SessionCore | None, transcript: Transcript) -> None:
        core, other = self.core, self.fork
        with core.lock:
            core.transcript = transcript
            core.functions = {**core.functions, **other.functions}
            core.waits += other.waits
            core.kept = other.kept
            core.notes += tuple(note for note in other.notes if note not in core.notes)
        if fork is not None:
            with fork.lock:
                fork.state, fork.id, fork.transcript = SessionState.CLOSED, None, transcript.kept(None)
