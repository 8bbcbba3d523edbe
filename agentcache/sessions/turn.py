"""A committed turn of a session: what was said, where it ended, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentcache.request import SequenceReport
from agentcache.sessions.added_tools import AddedTools, beside
from agentcache.sessions.transcript import EndToken, Mark, Transcript

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figures:
    """What a turn cost, in tokens, and why it was not cached further."""

    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    completion_tokens: int
    miss: dict[str, Any] | None

    @classmethod
    def of(cls, report: SequenceReport, miss: dict[str, Any] | None) -> Figures:
        return cls(
            report.prompt_tokens, report.cached_tokens, report.computed_tokens, report.completion_tokens, miss
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answered:
    """How a turn was answered, beside what was said and what it cost: so that it can be answered again.

    Attributes:
        job: what ids of the answer and of its calls are made from.
        created: Unix seconds.
        text: as it was shown; ``None`` where the transcript has it.
    """

    job: str
    created: float
    finish_reason: str
    stop_reason: str | int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A committed turn.

    Attributes:
        messages: what was sent, and the reply.
        mark, end: where the session's transcript ended with this turn, and the token that ended the reply.
        replaced: the transcript before this turn, where the template did not let it be continued.
        turn_id: the client's own name of it, by which it can tell its turn from another client's.
        added: tools that came with it.
        answered: of a turn that has a ``turn_id``.
    """

    messages: tuple[Message, ...]
    mark: Mark
    end: EndToken | None
    replaced: Transcript | None
    figures: Figures
    turn_id: str | None = None
    added: AddedTools | None = None
    answered: Answered | None = None

    @property
    def rendered_messages(self) -> list[Message]:
        """What the chat template is given of it: the messages, and what was told of tools beside them."""
        *sent, reply = self.messages
        return [*beside(sent, self.added), reply]

    def to_json(self) -> dict[str, Any]:
        figures = self.figures
        return {
            "messages": len(self.messages),
            "tools": [] if self.added is None else self.added.names,
            "prompt_tokens": figures.prompt_tokens,
            "cached_tokens": figures.cached_tokens,
            "computed_tokens": figures.computed_tokens,
            "completion_tokens": figures.completion_tokens,
            "miss": figures.miss,
        }
