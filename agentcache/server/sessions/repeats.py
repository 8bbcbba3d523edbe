"""A turn that is sent again although it was committed: it is answered as it was answered, and not made again.

::

    session   [ 1 ][ 2 ][ x ]        sent again: turn_id x, the same input
                                     answered again, without the engine; nothing changes

Whoever did not hear the answer (a gateway whose replica died, a client whose connection was cut) need not find out whether there
is a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from agentcache.errors import AgentCacheError
from agentcache.request import FinishReason, SequenceReport
from agentcache.server.bodies import GenerationBody
from agentcache.server.context import Context
from agentcache.server.errors import ApiError
from agentcache.server.generation import Delta, Generation
from agentcache.server.job import Job, Prompt
from agentcache.server.params import sampling_params
from agentcache.server.reply import STREAM_HEADERS, EventStream, Recorder
from agentcache.server.sessions.steps import Steps
from agentcache.server.usage import Notes
from agentcache.server.writer import Writer, encode
from agentcache.sessions.session import Session, TurnInFlight
from agentcache.sessions.transcript import Transcript
from agentcache.sessions.turn import Answered, Turn


@dataclass(frozen=True)
class Committed:
    """A turn that is committed already.

    Attributes:
        again: the same turn, begun on a copy of the session as it was before.
        transcript: as it is behind the turn.
    """

    turn: Turn
    answered: Answered
    again: TurnInFlight
    transcript: Transcript

    @property
    def prompt(self) -> Sequence[int]:
        return self.transcript.ids[: self.turn.figures.prompt_tokens]

    @property
    def reply(self) -> Delta:
        """What was generated, as far as it is kept."""
        figures, ids = self.turn.figures, self.transcript.ids
        text = self.answered.text
        if text is None:
            reply = self.transcript.replies[-1]
            text = self.transcript.text[reply.start.characters : reply.end.characters]
        return Delta(
            0,
            pieces=[text] if text else [],
            token_ids=ids[figures.prompt_tokens :].tolist(),
            finish_reason=FinishReason(self.answered.finish_reason),
            stop_reason=self.answered.stop_reason,
            end_token=None if self.turn.end is None else self.turn.end.token,
        )

    def report(self, page_size: int) -> SequenceReport:
        figures = self.turn.figures
        pages, partial = divmod(figures.cached_tokens, page_size)
        return SequenceReport(
            figures.prompt_tokens, figures.completion_tokens, figures.cached_tokens, pages, partial,
            figures.computed_tokens, preemptions=0, miss=None,
        )  # fmt: skip


async def committed_as(session: Session, body: GenerationBody, steps: Steps) -> Committed | None:
    """The turn that ``body`` asks for, where it is the session's last one: of the same ``turn_id``, and the same input.

    With ``if_turns`` only where that is said of the session before the turn.
    """
    last = session.turns[-1] if session.turns else None
    if last is None or last.answered is None or last.turn_id != body.turn_id or session.in_flight is not None:
        return None
    before = len(session.turns) - 1
    if body.if_turns not in (None, before):
        return None
    draft = session.draft()
    draft.transcript = session.transcript_at(before)
    del draft.turns[before:]
    try:
        again = (await steps.check(draft))()
    except (ApiError, AgentCacheError):
        return None  # it does not fit there, so it is another one
    if session.head.raw:
        ids = draft.transcript.ids + again.new_ids
        same = ids == session.transcript.ids[: last.figures.prompt_tokens]
    else:
        same = again.messages == last.messages[:-1] and again.added == last.added and bool(session.transcript.replies)
    return Committed(last, last.answered, again, session.transcript) if same else None


async def answer_again(
    context: Context, request: Request, body: GenerationBody, steps: Steps, committed: Committed
) -> Response:
    """
    Raises:
        ApiError: 422, log-probabilities are asked for, which are not kept.
    """
    params = sampling_params(body, context.engine.info.vocab_size)
    if params.logprobs is not None or params.prompt_logprobs is not None:
        message = "turn_id: the turn of that id was committed, and its log-probabilities are not kept"
        raise ApiError(422, message, param="turn_id", code="session_diverged")
    home, answered = committed.again.session.home, committed.answered
    question = await run_in_threadpool(steps.ask, committed.again, params, answered.job)
    source = "transcript" if question.asked.prompt.kept.tokens else "template"
    notes = Notes(committed.again.session.id, source, committed.turn.figures.miss)
    job = Job(
        body, [Prompt(committed.prompt, question.prompt.text)], question.params, home.root, home.owner, _Told(notes),
        reading=question.reading, id=answered.job, created=answered.created, asked=[question.asked], salt=home.salt,
    )  # fmt: skip
    writer = steps.make_writer(job)
    recorder = Recorder(context, request, job, writer)
    reply = committed.reply
    reply.report = committed.report(context.engine.info.page_size)
    await writer.gather([reply])
    response = (
        _streamed(writer, reply) if body.streaming else Response(encode(writer.whole()), media_type="application/json")
    )
    recorder.over(200)
    return response


def _streamed(writer: Writer, reply: Delta) -> Response:
    events = writer.opening() + b"".join(writer.events([reply])) + writer.ending()
    return Response(events, media_type=EventStream.media_type, headers=STREAM_HEADERS)


class _Told:
    """The end of a job that was done before."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def started(self, generation: Generation) -> None:
        """It is not started."""

    async def finish(self, choices: Sequence[Delta]) -> Notes:
        return self._notes

    def drop(self) -> None:
        """Nothing is held."""
