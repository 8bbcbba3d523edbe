"""A response in words: one object, or the events of its making."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from agentcache.dialects.reply_message import message_json
from agentcache.request import FinishReason
from agentcache.server.context import Context
from agentcache.server.errors import ApiError
from agentcache.server.findings.renaming import renamed
from agentcache.server.generation import Delta
from agentcache.server.openai.logprobs import chat_logprobs
from agentcache.server.responses.ask import Asked
from agentcache.server.responses.attribution import PlainPieces, TokenPieces
from agentcache.server.responses.output import OutputItems
from agentcache.server.responses.shape import error_json, failed_json, response_json, usage_json
from agentcache.server.responses.store import KeptResponse, KeptTurn, ResponseStore, size_of
from agentcache.server.writer import Writer, event


class ResponseWriter(Writer):
    """Every event has the next sequence number, from 0.  A stream ends with the event that says how the response ended:
    there is no ``[DONE]``.
    """

    prompt_field = "input"

    def __init__(self, asked: Asked, context: Context, store: ResponseStore) -> None:
        super().__init__(asked.job, context)
        self._asked = asked
        self._store = store
        self._response = response_json(asked, self.answer_id, self.model)
        self._told = asked.job.params.logprobs is not None
        self._output = OutputItems(asked.job.id.partition("-")[0], asked.conversation.toolbox, logprobs=self._told)
        self._pieces = self._make_pieces()
        self._sequence = 0

    @property
    def answer_id(self) -> str:
        return f"resp_{self.job.id}"

    def begin(self) -> None:
        """Keep the response as one that is being made; ``abandon`` it if nothing comes of it."""
        if self._asked.body.kept:
            self._store.begin(self._asked.owner, self.answer_id, self._response)

    def abandon(self) -> None:
        self._store.abandon(self._asked.owner, self.answer_id)

    def whole(self) -> dict[str, Any]:
        for delta in self.choices:
            for _ in self._read(delta):
                pass
        return self._over()

    def opening(self) -> bytes:
        return self._event("created", response=self._response) + self._event("in_progress", response=self._response)

    def events(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        for delta in deltas:
            for found in self._read(delta):
                yield self._numbered(found)
        if self.finished:
            response = self._over()
            yield self._event(response["status"], response=response)

    def failed(self, error: ApiError) -> bytes:
        response = failed_json(self._response, error) | {"output": self._output.json()}
        if self._asked.body.kept:
            self._store.finish(self._asked.owner, KeptResponse(self.answer_id, response))
        return self._numbered(error_json(error)) + self._event("failed", response=response)

    def ending(self) -> bytes:
        return b""

    # -- what comes in

    def _make_pieces(self) -> PlainPieces | TokenPieces:
        reader = self.job.reading.reader(0)
        if not self._told:
            return PlainPieces(reader)
        return TokenPieces(reader, self.context.engine.tokenizer, self.job.params.shown_tokens)

    def _read(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """The events of ``delta``, without numbers."""
        tokenizer = self.context.engine.tokenizer
        for piece, tokens in self._pieces.take(delta):
            yield from self._output.add(piece, chat_logprobs(tokenizer, tokens)["content"])
        if delta.finish_reason is not None and not self._asked.body.prewarm:
            yield from self._output.end(cut=delta.finish_reason is FinishReason.LENGTH)

    # -- what goes out

    def _event(self, kind: str, **fields: Any) -> bytes:
        return self._numbered({"type": f"response.{kind}", **fields})

    def _numbered(self, fields: dict[str, Any]) -> bytes:
        number = self._sequence
        self._sequence += 1
        return event({**fields, "sequence_number": number}, fields["type"])

    def _over(self) -> dict[str, Any]:
        """The response at its end, kept if it is to be kept."""
        (choice,) = self.choices
        cut = choice.finish_reason is FinishReason.LENGTH and not self._asked.body.prewarm
        costs, report = self.costs(), self._report()
        response = self._response | {
            "status": "incomplete" if cut else "completed",
            "completed_at": None if cut else int(time.time()),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": self._output.json(),
            "usage": usage_json(costs, self.reasoning_tokens(choice), cached=_keeps(report)),
            "agentcache": report,
        }
        if self._asked.body.kept:
            self._keep(response, choice, costs.usage()["prompt_tokens"])
        return response

    def _report(self) -> dict[str, Any]:
        """The ``agentcache`` object, with paths in the response's own names."""
        report = self.costs().cache_report(self.notes)
        fields, comparison = self._asked.conversation.fields, self._asked.comparison
        points = [
            {**point, "path": fields.named(point["path"])} if isinstance(point["path"], str) else point
            for point in report["alignment"]["share_points"]
        ]
        named = report | {
            "miss": fields.miss(report["miss"]),
            "alignment": report["alignment"] | {"share_points": points},
            "findings": renamed(report["findings"], fields.named),
        }
        return named if comparison is None else named | {"comparison": comparison.detail}

    def _keep(self, response: dict[str, Any], choice: Delta, prompt_tokens: int) -> None:
        conversation, output = self._asked.conversation, response["output"]
        replies = [] if self._asked.body.prewarm else [message_json(self.job.reading.read(0, choice.text))]
        turn = KeptTurn(
            conversation.before,
            [*conversation.turn.items, *output],
            [*conversation.turn.messages, *replies],
            outputs=len(output),
            size=self._asked.size + size_of(output) + size_of(replies),
        )
        basis = conversation.basis(self._asked.body.instructions, prompt_tokens)
        self._store.finish(self._asked.owner, KeptResponse(self.answer_id, response, turn, basis))


def _keeps(report: dict[str, Any]) -> bool:
    """Whether the cache is on for this request."""
    return report["miss"] is None or report["miss"]["code"] != "disabled"
