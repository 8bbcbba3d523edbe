"""What a client takes a session to be, checked before it is changed: two clients on one session must not undo each other."""

from __future__ import annotations

from starlette.requests import Request

from agentcache.dialects.wording import shown
from agentcache.server.errors import ApiError, bad_field
from agentcache.server.sessions.bodies import AdoptBody, RollbackBody
from agentcache.sessions.session import Session


def turns_wanted(request: Request) -> int | None:
    """``if_turns`` of the address.

    Raises:
        ApiError: 400, it is no number of turns.
    """
    value = request.query_params.get("if_turns")
    if value is not None and not (value.isascii() and value.isdigit() and len(value) < 10):
        raise bad_field("if_turns", f"got {shown(value)}, expected an integer from 0")
    return None if value is None else int(value)


def check_turns(session: Session, expected: int | None) -> None:
    """
    Raises:
        ApiError: 422, the session has not as many turns as ``expected`` (``None`` expects nothing).
    """
    found = len(session.turns)
    if expected is not None and found != expected:
        raise _diverged(f"if_turns: got {expected}, and the session has {found} turns", "if_turns")


def check_rollback(session: Session, body: RollbackBody) -> None:
    """Where there is nothing to drop all is well: a rollback whose answer was lost may be made again.

    ::

        to_turn 2, only_turn_id x:   [ 1 ][ 2 ]        nothing to drop
                                     [ 1 ][ 2 ][ x ]   x is dropped
                                     [ 1 ][ 2 ][ y ]   422: y is somebody else's
                                     [ 1 ]             422: somebody dropped 2

    Raises:
        ApiError: 422, the session is not what ``if_turns`` and ``only_turn_id`` say.
    """
    found = len(session.turns)
    if session.in_flight is not None or found == body.to_turn:
        return  # the session itself refuses the one, and has nothing to do for the other
    check_turns(session, body.if_turns)
    if body.only_turn_id is not None and [turn.turn_id for turn in session.turns[body.to_turn :]] != [
        body.only_turn_id
    ]:
        message = (
            f"only_turn_id: the session has {found} turns, expected the first {body.to_turn}"
            " and behind them at most the one of that id"
        )
        raise _diverged(message, "only_turn_id")


def check_adopt(session: Session, fork: Session, body: AdoptBody) -> None:
    """What two sessions must share is where they live and what they begin with: then every page of the one is good for the other.

    Forks share it, of whatever turn, also forks of forks; so do sessions that were made or restored alike.

    Raises:
        ApiError: 422, the two do not begin alike, or the session has not as many turns as ``if_turns``.
    """
    if session.in_flight is not None or fork.in_flight is not None:
        return  # the session itself refuses that
    differ = None
    if session.home != fork.home:
        differ = f"cache_salt ({shown(session.home.salt)} and {shown(fork.home.salt)})"
    elif session.head.raw != fork.head.raw:
        differ = "kind (one is raw, the other one of messages)"
    elif not session.head.begins_like(fork.head):
        differ = "beginning (what the sessions were made of)"
    if differ is not None:
        message = f"session: {fork.id} and {session.id} have not the same {differ}, expected a fork of {session.id}"
        raise ApiError(422, message, param="session", code="session_diverged")
    check_turns(session, body.if_turns)


def _diverged(message: str, param: str) -> ApiError:
    return ApiError(422, f"{message}: another client has changed it", param=param, code="session_diverged")
