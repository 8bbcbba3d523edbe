"""One HTTP request, ready for the engine, and how it gets there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from agentcache.cache.tokens import Bookmark
from agentcache.engine.bounds import Bounds, check_request
from agentcache.errors import RequestError
from agentcache.replica_ids import tagged
from agentcache.request import Output, Request, SamplingParams, Standing
from agentcache.server.context import Context
from agentcache.server.generation import Delta, Generation
from agentcache.server.replies.reading import PLAIN, Reading
from agentcache.server.usage import Notes

if TYPE_CHECKING:
    from agentcache.engine.streams import OutputStream
    from agentcache.server.bodies import GenerationBody
    from agentcache.server.misses import Asked


@dataclass(frozen=True)
class Prompt:
    token_ids: Sequence[int]
    text: str | None = None
    """As the client sent it, where it sent text."""


class Ending(Protocol):
    """What is left to do when all that was asked for has been generated, and before the client is told so."""

    def started(self, generation: Generation) -> None:
        """The engine has the request."""

    async def finish(self, choices: Sequence[Delta]) -> Notes:
        """Every choice has finished."""

    def drop(self) -> None:
        """The answer is over, finished or not.  Idempotent."""


def new_id(replica: str | None) -> str:
    """
    Args:
        replica: this server's name among others, which the id ends with.
    """
    return tagged(uuid4().hex, replica)


@dataclass(frozen=True)
class Job:
    """One HTTP request, ready for the engine.

    Attributes:
        owner: whose it is (``Home.owner``).
        bookmark: of the session that it is a turn of.
        reading: how its replies are read.
        id: of its answer, without the prefix that its kind has.
        created: Unix seconds.
        asked: what each prompt was made of.
        salt: the ``cache_salt`` of the namespace.
    """

    body: GenerationBody
    prompts: Sequence[Prompt]
    params: SamplingParams
    root: bytes
    owner: bytes
    ending: Ending
    id: str
    bookmark: Bookmark | None = None
    reading: Reading = PLAIN
    created: float = field(default_factory=time.time)
    asked: Sequence[Asked] = ()
    salt: str | None = None

    @property
    def num_choices(self) -> int:
        return len(self.prompts) * self.params.n

    def prompt_token_ids(self) -> list[int] | list[list[int]]:
        """A list of ids; for several prompts a list of such lists."""
        ids = [list(prompt.token_ids) for prompt in self.prompts]
        return ids[0] if len(ids) == 1 else ids


def submit(context: Context, job: Job) -> Generation:
    """Hand every prompt of ``job`` to the engine, or none of them.

    Raises:
        ApiError: 503 while shutting down.
        RequestError: a prompt that can never be served.
        QueueFullError: too many wait.
    """
    context.check_open()
    if len(job.prompts) > 1:
        _check_all(context, job)
    streams: list[OutputStream] = []
    try:
        for i, prompt in enumerate(job.prompts):
            stream = context.engine.submit(
                prompt.token_ids,
                job.params,
                root=job.root,
                request_id=f"{job.id}-{i}",
                standing=Standing(job.body.priority or 0, _program(job.body)),
                bookmark=job.bookmark,
            )
            streams.append(stream)
    except BaseException:
        for stream in streams:
            stream.abort()
        raise
    return Generation(streams, job.params.n, context.lifecycle)


def _program(body: GenerationBody) -> str | None:
    """What the request is a turn of, so that its next turn does not queue behind newcomers."""
    if body.session is not None:
        return f"session {body.session}"
    return None if body.prompt_cache_key is None else f"key {body.prompt_cache_key}"


def _check_all(context: Context, job: Job) -> None:
    """Find the prompt that can never be served before any other of its list has begun."""
    info = context.engine.info
    bounds = Bounds(info.max_model_len, info.capacity, info.vocab_size, info.max_running)
    for i, prompt in enumerate(job.prompts):
        try:
            check_request(Request(job.id, prompt.token_ids, job.params, job.root, sink=_drop), bounds)
        except RequestError as error:
            raise RequestError(f"prompt[{i}]: {error}", error.param, error.code) from error


def _drop(_: Output) -> None:
    """A request that is only checked has no outputs."""
