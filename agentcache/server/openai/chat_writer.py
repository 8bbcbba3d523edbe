"""Chat completions in OpenAI's shape, calls and reasoning included."""

from __future__ import annotations

from typing import Any

from agentcache.chat.replies.pieces import CallArguments, CallStart, Content, Piece
from agentcache.chat.replies.reader import ReplyReader
from agentcache.dialects.reply_message import message_json
from agentcache.request import FinishReason
from agentcache.server.context import Context
from agentcache.server.generation import Delta
from agentcache.server.job import Job
from agentcache.server.openai.choices import ChoiceWriter
from agentcache.server.openai.logprobs import chat_logprobs


class ChatWriter(ChoiceWriter):
    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, job: Job, context: Context) -> None:
        super().__init__(job, context)
        self._readers: dict[int, ReplyReader] = {}
        self._calling: set[int] = set()

    def first(self, delta: Delta) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def pieces(self, delta: Delta) -> list[dict[str, Any]]:
        reader = self._readers.get(delta.choice)
        if reader is None:
            reader = self._readers[delta.choice] = self.job.reading.reader(delta.choice)
        found = reader.push(delta.text)
        if delta.finish_reason is not None:
            found += reader.flush()
        if any(isinstance(piece, CallStart) for piece in found):
            self._calling.add(delta.choice)
        written = [piece_json(piece) for piece in found]
        if not written and self.reports_tokens(delta):
            written = [{"content": ""}]
        figures = [self._logprobs(delta)] + [None] * len(written)
        return [
            {"delta": piece, "logprobs": logprobs, "finish_reason": None}
            for piece, logprobs in zip(written, figures, strict=False)
        ]

    def closing(self, delta: Delta) -> dict[str, Any]:
        return {"delta": {}, "logprobs": None, **self._finish(delta, calls=delta.choice in self._calling)}

    def choice(self, delta: Delta) -> dict[str, Any]:
        reply = self.job.reading.read(delta.choice, delta.text)
        return {
            "message": message_json(reply),
            "logprobs": self._logprobs(delta),
            **self._finish(delta, calls=bool(reply.calls)),
        }

    def usage(self) -> dict[str, Any]:
        usage = super().usage()
        if self.job.reading.reasoning is None:
            return usage
        reasoned = sum(self.reasoning_tokens(choice) for choice in self.choices)
        return usage | {"completion_tokens_details": {"reasoning_tokens": reasoned}}

    def _finish(self, delta: Delta, *, calls: bool) -> dict[str, Any]:
        fields = self.finish_fields(delta)
        if calls and delta.finish_reason is FinishReason.STOP:
            fields["finish_reason"] = "tool_calls"
        return fields

    def _logprobs(self, delta: Delta) -> dict[str, Any] | None:
        return None if self.job.params.logprobs is None else chat_logprobs(self.tokenizer, delta.logprobs)


def piece_json(piece: Piece) -> dict[str, Any]:
    """The ``delta`` of a chunk."""
    if isinstance(piece, Content):
        return {"content": piece.text}
    if isinstance(piece, CallStart):
        function = {"name": piece.name, "arguments": ""}
        return {"tool_calls": [{"index": piece.index, "id": piece.id, "type": "function", "function": function}]}
    if isinstance(piece, CallArguments):
        return {"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]}
    return {"reasoning_content": piece.text}
