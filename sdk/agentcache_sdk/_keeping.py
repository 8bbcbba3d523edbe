"""What only a server that holds sessions can do with them: leases, snapshots, explanations."""

from __future__ import annotations

from agentcache_sdk import _session_calls as calls
from agentcache_sdk._calls import Steps
from agentcache_sdk._core import SessionCore, not_held
from agentcache_sdk._durations import parse_ttl
from agentcache_sdk._revival import Kept
from agentcache_sdk.types import Explanation, Pin, Snapshot


def pin(core: SessionCore, ttl: str | float) -> Steps[Pin]:
    ttl_s = parse_ttl(ttl)
    yield from _held(core, "pin")
    return (yield from core.on_server(lambda known: calls.pin(known, ttl_s)))


def unpin(core: SessionCore) -> Steps[None]:
    yield from _held(core, "unpin")
    yield from core.on_server(calls.unpin)


def snapshot(core: SessionCore, name: str) -> Steps[Snapshot]:
    yield from _held(core, "snapshot")
    yield from core.settle_alone()
    made = yield from core.on_server(lambda known: calls.snapshot(known, name))
    with core.lock:
        turns = core.transcript.turns
        all_of_it = made.turns in (None, len(turns))  # a turn in flight may have ended on the server meanwhile
        core.kept = Kept(name, turns[-1] if turns else None) if all_of_it else None
    return made


def explain(core: SessionCore) -> Steps[Explanation]:
    yield from _held(core, "explain")
    return (yield from core.on_server(calls.explain))


def _held(core: SessionCore, verb: str) -> Steps[None]:
    """Open the session, which the server must hold.

    Raises:
        AgentCacheError: it holds none.
    """
    yield from core.open()
    if core.id is None:
        raise not_held(verb)
