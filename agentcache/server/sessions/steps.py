"""How a turn of a session is made, by the kind of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentcache.request import SamplingParams
from agentcache.server.job import Job, Prompt
from agentcache.server.misses import Asked
from agentcache.server.replies.reading import PLAIN, Reading
from agentcache.server.writer import Writer
from agentcache.sessions.session import Session, TurnInFlight

MakeWriter = Callable[[Job], Writer]
Begin = Callable[[], TurnInFlight]


@dataclass(frozen=True)
class Question:
    """What a turn asks the engine, and how what comes back is read."""

    asked: Asked
    prompt: Prompt
    params: SamplingParams
    reading: Reading = PLAIN


@dataclass(frozen=True)
class Steps:
    """How a turn of one kind of session is made.

    Attributes:
        check: whether the body fits the session; gives what begins the turn, which nothing may come before any more.
        ask: renders and tokenises a turn, for a job of some id; off the event loop.
    """

    check: Callable[[Session], Awaitable[Begin]]
    ask: Callable[[TurnInFlight, SamplingParams, str], Question]
    make_writer: MakeWriter
