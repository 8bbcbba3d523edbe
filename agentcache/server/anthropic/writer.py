"""Answers in the shape of Anthropic's messages, whole or as a stream of named events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache.request import FinishReason
from agentcache.server.anthropic.content import ContentBlocks, Event, content_of
from agentcache.server.anthropic.diagnostics import refined
from agentcache.server.anthropic.errors import envelope
from agentcache.server.anthropic.names import Names
from agentcache.server.context import Context
from agentcache.server.errors import ApiError
from agentcache.server.generation import Delta
from agentcache.server.job import Job
from agentcache.server.usage import Costs, Notes
from agentcache.server.writer import Writer, event


@dataclass(frozen=True)
class Telling:
    """How a request wants to be answered.

    Attributes:
        max_tokens: as it was asked for.
        diagnosing: whether the request asked for diagnostics.
        diagnostics: those that are known before anything is generated.
        edits: whether the request spoke of context management.
    """

    names: Names
    request_id: str = ""
    max_tokens: int = 1
    show_thinking: bool = True
    diagnosing: bool = False
    diagnostics: Mapping[str, Any] | None = None
    edits: bool = False
    stops: Sequence[str] = field(default_factory=tuple)


def answer_id(job: Job) -> str:
    return f"msg_{job.id}"


class MessagesWriter(Writer):
    keep_alive = event({"type": "ping"}, "ping")

    def __init__(self, job: Job, context: Context, telling: Telling) -> None:
        super().__init__(job, context)
        self._telling = telling
        self._blocks = ContentBlocks(show_thinking=telling.show_thinking)
        self._reader = job.reading.reader(0)

    @property
    def answer_id(self) -> str:
        return answer_id(self.job)

    def whole(self) -> dict[str, Any]:
        (choice,) = self.choices
        content = content_of(self._content(choice)) if self._telling.max_tokens else []
        costs = self.costs()
        stopped = self._stopped(choice, costs)
        return self._message(content, usage(costs, self.notes)) | stopped | self._remarks(costs)

    def opening(self) -> bytes:
        # Nothing is known yet to be cached; the figures of the last event replace these.
        prompt = sum(len(prompt.token_ids) for prompt in self.job.prompts)
        begun = {
            "input_tokens": prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        return _named({"type": "message_start", "message": self._message([], begun)}) + self.keep_alive

    def events(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        for delta in deltas:
            for told in self._content(delta):
                yield _named(told)
            if delta.finish_reason is not None:
                yield from self._closing(delta)

    def _closing(self, delta: Delta) -> Iterator[bytes]:
        costs = self.costs()
        figures = usage(costs, self.notes)
        del figures["service_tier"], figures["cache_creation"]  # told at the beginning, or nowhere
        closing = {"type": "message_delta", "delta": self._stopped(delta, costs), "usage": figures}
        yield _named(closing | self._remarks(costs))
        yield _named({"type": "message_stop"})

    def failed(self, error: ApiError) -> bytes:
        return _named(envelope(error.status, error.message, error.code, self._telling.request_id))

    def ending(self) -> bytes:
        return b""

    def _content(self, delta: Delta) -> list[Event]:
        pieces = self._reader.push(delta.text)
        if delta.finish_reason is not None:
            pieces = [*pieces, *self._reader.flush()]
        events = [told for piece in pieces for told in self._blocks.add(piece)]
        return events if delta.finish_reason is None else [*events, *self._blocks.close()]

    def _message(self, content: list[dict[str, Any]], figures: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self.answer_id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "diagnostics": self._telling.diagnostics,
            "usage": figures,
        }

    def _remarks(self, costs: Costs) -> dict[str, Any]:
        edits: dict[str, Any] = {"context_management": {"applied_edits": []}} if self._telling.edits else {}
        return (
            edits | self._diagnosis(costs) | {"agentcache": self._telling.names.report(costs.cache_report(self.notes))}
        )

    def _diagnosis(self, costs: Costs) -> dict[str, Any]:
        if not self._telling.diagnosing:
            return {}
        missed = costs.usage()["prompt_tokens"] - costs.cached_tokens
        return {"diagnostics": refined(self._telling.diagnostics, self.notes.miss, missed)}

    def _stopped(self, choice: Delta, costs: Costs) -> dict[str, Any]:
        stop = choice.stop_reason if choice.stop_reason in self._telling.stops else None
        if stop is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": stop}
        return {"stop_reason": self._reason(choice, costs), "stop_sequence": None}

    def _reason(self, choice: Delta, costs: Costs) -> str:
        if choice.finish_reason is FinishReason.LENGTH:
            cut = costs.usage()["completion_tokens"] < self._telling.max_tokens
            return "model_context_window_exceeded" if cut else "max_tokens"
        return "tool_use" if self._blocks.calls else "end_turn"


def usage(costs: Costs, notes: Notes) -> dict[str, Any]:
    """Tokens, so that the three kinds of input add up to the prompt::

        [ cache_read: found in the cache ][ cache_creation: up to the last whole page ][ input: the rest ]

    Whole pages are what other prompts can share.  The last token of a prompt is computed whatever is cached, so it is always
    among the input.
    """
    figures = costs.usage()
    prompt, read = figures["prompt_tokens"], costs.cached_tokens
    whole = min(prompt - prompt % costs.page_size, prompt - 1)
    disabled = notes.miss is not None and notes.miss["code"] == "disabled"
    written = 0 if disabled else max(0, whole - read)
    return {
        "input_tokens": prompt - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": figures["completion_tokens"],
        "service_tier": "standard",
    }


def _named(told: dict[str, Any]) -> bytes:
    return event(told, str(told["type"]))
