"""How an endpoint puts an answer into words: one object, or events as they come."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from agentcache.chat.detokenizer import TextStream
from agentcache.server.context import Context
from agentcache.server.errors import ApiError
from agentcache.server.generation import Delta
from agentcache.server.job import Job
from agentcache.server.replies.reading import reasoning_tokens
from agentcache.server.usage import Costs, Notes


class Writer(ABC):
    """Writes the answer to one job.  Made for that job: it keeps what was written so far.

    Of a stream, the methods are called in this order::

        opening() (gather(deltas) events(deltas))* [failed(error)] ending()
                  any number of keep_alive in between
    """

    prompt_field = "messages"
    """The field of the body that the prompt came in."""
    keep_alive = b": keep-alive\n\n"
    """Sent while nothing is generated yet, so that nobody on the way takes the connection for dead."""

    def __init__(self, job: Job, context: Context) -> None:
        self.job = job
        self.context = context
        self.model = context.engine.info.model_name
        self.notes = Notes()
        self._generated: dict[int, Delta] = {}

    async def gather(self, deltas: Sequence[Delta]) -> None:
        """Note what was generated; with the last choice that finishes, the job ends."""
        for delta in deltas:
            if self.job.body.streaming:  # log-probabilities are not kept: they are told as they come
                self._generated.setdefault(delta.choice, Delta(delta.choice)).merge(delta)
            else:
                self._generated[delta.choice] = delta  # the only one of its choice
        if self.finished:
            self.notes = await self.job.ending.finish(self.choices)

    @property
    def choices(self) -> list[Delta]:
        """All that each choice has generated so far, in order."""
        return [self._generated[choice] for choice in sorted(self._generated)]

    @property
    def finished(self) -> bool:
        """Whether every choice has its finish reason."""
        done = sum(choice.finish_reason is not None for choice in self._generated.values())
        return done == self.job.num_choices

    def costs(self) -> Costs:
        """Of what has finished."""
        reports = [choice.report for choice in self.choices if choice.report is not None]
        return Costs(reports, self.job.params.n, self.context.engine.info.page_size)

    def reasoning_tokens(self, choice: Delta) -> int:
        """How many tokens a choice spent on reasoning."""
        tags = self.job.reading.reasoning
        if tags is None or not self.job.reading.read(choice.choice, choice.text).reasoning:
            return 0
        spelling = TextStream(self.context.engine.tokenizer, shown=self.job.params.shown_tokens)
        return reasoning_tokens(choice.text, choice.token_ids, tags, spelling)

    @property
    @abstractmethod
    def answer_id(self) -> str:
        """The ``id`` of the answer."""

    @abstractmethod
    def whole(self) -> dict[str, Any]:
        """The answer in one object, when everything was gathered."""

    def opening(self) -> bytes:
        """Events that stand before anything generated."""
        return b""

    @abstractmethod
    def events(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        """Events for ``deltas``, which were gathered, in order; after the last finish also those that end the answer."""

    def failed(self, error: ApiError) -> bytes:
        """What tells a client that has part of the answer that no more comes."""
        return event(error.envelope())

    def ending(self) -> bytes:
        """What ends every stream, failed or not."""
        return b"data: [DONE]\n\n"


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


def event(value: Any, name: str | None = None) -> bytes:
    """One event.  Many clients split lines wherever Unicode sees an end of line, so those ends are escaped."""
    data = encode(value)
    for end in ("\x85", "\u2028", "\u2029"):
        data = data.replace(end.encode(), f"\\u{ord(end):04x}".encode())
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"
