"""Answers in the shape of OpenAI's two older endpoints: a list of choices, or chunks that each add to one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from agentcache.server.context import Context
from agentcache.server.generation import Delta
from agentcache.server.job import Job
from agentcache.server.writer import Writer, event


class ChoiceWriter(Writer):
    """What chat and completions have in common; subclasses write a single choice."""

    prefix: str
    whole_object: str
    chunk_object: str

    def __init__(self, job: Job, context: Context) -> None:
        super().__init__(job, context)
        self.tokenizer = context.engine.tokenizer
        self._opened: set[int] = set()
        self._first_chunk = True

    # -- what a subclass writes

    @abstractmethod
    def first(self, delta: Delta) -> dict[str, Any] | None:
        """The first chunk of a choice, before any text."""

    @abstractmethod
    def pieces(self, delta: Delta) -> list[dict[str, Any]]:
        """Chunks with what ``delta`` adds: one at least where it has tokens that are reported (``reports_tokens``)."""

    @abstractmethod
    def closing(self, delta: Delta) -> dict[str, Any]:
        """The chunk with the finish reason."""

    @abstractmethod
    def choice(self, delta: Delta) -> dict[str, Any]:
        """A choice of an answer that is not streamed."""

    def reports_tokens(self, delta: Delta) -> bool:
        """Whether the tokens of ``delta`` are told, also where they add no text yet."""
        return bool(delta.token_ids) and (bool(self.job.body.return_token_ids) or self.job.params.logprobs is not None)

    def finish_fields(self, delta: Delta) -> dict[str, Any]:
        reason = delta.finish_reason.value if delta.finish_reason else None
        return {"finish_reason": reason, "stop_reason": delta.stop_reason}

    def usage(self) -> dict[str, Any]:
        """``usage`` of what has finished."""
        return self.costs().usage()

    # -- the envelope

    @property
    def answer_id(self) -> str:
        return self.prefix + self.job.id

    def whole(self) -> dict[str, Any]:
        costs = self.costs()
        answer = self._envelope(self.whole_object, [self._of(d, self.choice(d), d.token_ids) for d in self.choices])
        if self.job.body.return_token_ids:
            answer["prompt_token_ids"] = self.job.prompt_token_ids()
        return answer | {"usage": self.usage(), "agentcache": costs.cache_report(self.notes)}

    def events(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        return (event(chunk) for chunk in self._chunks(deltas))

    def _chunks(self, deltas: Sequence[Delta]) -> Iterator[dict[str, Any]]:
        body = self.job.body
        closed = [delta.choice for delta in deltas if delta.finish_reason is not None]
        for delta in deltas:
            if delta.choice not in self._opened:
                self._opened.add(delta.choice)
                if (first := self.first(delta)) is not None:
                    yield self._chunk(delta, first)
            token_ids = delta.token_ids
            for piece in self.pieces(delta):
                yield self._chunk(delta, piece, token_ids)
                token_ids = []
            if delta.finish_reason is not None:
                done = self.finished and delta.choice == closed[-1]
                closing = self._chunk(delta, self.closing(delta))
                yield closing | (self._cache_report() if done and not body.include_usage else {})
                if done and body.include_usage:
                    yield self._empty_chunk() | {"usage": self.usage()} | self._cache_report()

    def _chunk(self, delta: Delta, content: dict[str, Any], token_ids: Sequence[int] = ()) -> dict[str, Any]:
        return self._dressed(self._envelope(self.chunk_object, [self._of(delta, content, token_ids)]))

    def _empty_chunk(self) -> dict[str, Any]:
        return self._dressed(self._envelope(self.chunk_object, []))

    def _dressed(self, chunk: dict[str, Any]) -> dict[str, Any]:
        if self.job.body.include_usage:
            chunk["usage"] = None
        if self._first_chunk and self.job.body.return_token_ids:
            chunk["prompt_token_ids"] = self.job.prompt_token_ids()
        self._first_chunk = False
        return chunk

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.answer_id,
            "object": kind,
            "created": int(self.job.created),
            "model": self.model,
            "choices": choices,
        }

    def _of(self, delta: Delta, content: dict[str, Any], token_ids: Sequence[int]) -> dict[str, Any]:
        choice = {"index": delta.choice} | content
        return choice | {"token_ids": list(token_ids)} if self.job.body.return_token_ids else choice

    def _cache_report(self) -> dict[str, Any]:
        return {"agentcache": self.costs().cache_report(self.notes)}
