"""Answering requests for replies: scripted words, real accounting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from agentcache_sdk.testing._choices import make_choice
from agentcache_sdk.testing._chunks import Choice, Envelope
from agentcache_sdk.testing._http import DONE, Answer, AnyAnswer, Asked, Refusal, Stream, event
from agentcache_sdk.testing._jobs import Job, make_job
from agentcache_sdk.testing._rendering import Prompt
from agentcache_sdk.testing._state import State
from agentcache_sdk.testing.replies import (
    Delay,
    ErrorFault,
    Fault,
    HangUp,
    LoseAnswer,
    Raise,
    RefuseConnection,
    Reply,
    as_reply,
)
from agentcache_sdk.testing.requests import Request
from agentcache_sdk.testing.script import ScriptExhausted
from agentcache_sdk.types import Miss


def generate(state: State, asked: Asked, *, chat: bool) -> AnyAnswer:
    """The answer to a request for a chat completion, or for a completion.

    Raises:
        Refusal: the request cannot be served as it stands.
        ScriptExhausted: nobody said what to reply.
        httpx.RequestError: the script says that the connection fails.
    """
    job = make_job(state, asked, chat=chat)
    flight = _Flight(state, job)
    try:
        return flight.answer()
    except BaseException:
        flight.drop()
        raise


@dataclass
class _Flight:
    """One request on its way.

    Attributes:
        fault: what happens to the answer on its way back.
        figures: the ``agentcache`` object, and ``usage``.
    """

    state: State
    job: Job
    choices: list[Choice] = field(default_factory=list)
    fault: Fault | None = None
    report: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    over: bool = False

    def answer(self) -> AnyAnswer:
        replies = self._replies()
        self._look_up()
        n = int(self.job.body.get("n") or 1)
        for index, reply in enumerate(replies):
            request = self.job.requests[index // n]
            room = self.state.setup.capacity - request.prompt_tokens
            self.choices.append(make_choice(index, reply, self.job.body, room, self._new_call))
        self._count([finding for reply in replies for finding in reply.findings])
        if self.job.body.get("stream"):
            return Stream(self._events(), self.drop)
        if isinstance(self.fault, ErrorFault):
            raise self._failure(self.fault)
        if isinstance(self.fault, HangUp):
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        self.finish()
        if isinstance(self.fault, LoseAnswer):
            raise httpx.ReadError("the connection was lost")
        return Answer(self._envelope().whole(self.choices, self.usage, self.report))

    def _replies(self) -> list[Reply]:
        n = int(self.job.body.get("n") or 1)
        return [self._reply(request) for request in self.job.requests for _ in range(n)]

    def _reply(self, request: Request) -> Reply:
        if request.kind == "prewarm":
            return Reply("warm")
        try:
            said = self.state.scripts.next(request)
        except ScriptExhausted as error:
            request.outcome = "script_exhausted"
            self.state.exhausted.append(error)
            raise
        while isinstance(said, Fault):
            self._begin(said)
            said = as_reply(said.then)
        if said.calls and not self.job.chat:
            raise TypeError(f"script: got calls for {request.describe()}, expected a text: it is no chat")
        return said

    def _begin(self, fault: Fault) -> None:
        """What a fault does before there is any answer."""
        if isinstance(fault, RefuseConnection):
            raise httpx.ConnectError("Connection refused")
        if isinstance(fault, Raise):
            raise fault.error
        if isinstance(fault, ErrorFault) and fault.after_chunks is None:
            raise self._failure(fault)
        if not isinstance(fault, Delay):
            self.fault = fault
            return
        patience = self.job.asked.patience
        waited = fault.seconds if patience is None else min(patience, fault.seconds)
        if waited < math.inf:
            self.state.advance(waited)
        if waited < fault.seconds or waited == math.inf:
            raise httpx.ReadTimeout("timed out")

    def _failure(self, fault: ErrorFault) -> Refusal:
        for request in self.job.requests:
            request.outcome = fault.code or str(fault.status)
        return Refusal(
            fault.status, fault.message, param=fault.param, code=fault.code, retry_after=fault.retry_after
        )  # fmt: skip

    def _look_up(self) -> None:
        """What the prompts find in the cache; then they are in it."""
        state, job = self.state, self.job
        state.cache.lapse(state.now())
        for request in job.requests:
            tokens = request.rendered.tokens
            request.cached_tokens = state.cache.cached(job.root, tokens)
            miss = state.why(job.asked.owner, job.root, request.rendered)
            request.miss = None if miss is None else Miss.model_validate(miss)
            request.forgotten = max(0, state.ever.cached(job.asked.owner, tokens) - request.cached_tokens)
            request.computed_tokens = len(tokens) - request.cached_tokens
            points = state.cache.partings(job.root, tokens)
            if request is job.requests[0]:
                self.report = {"share_points": [self._point(request.rendered, token) for token in points]}
            state.note_beginning(job.asked.owner, job.root, tokens)
            self._keep(tokens)

    def _point(self, prompt: Prompt, token: int) -> dict[str, Any]:
        path = prompt.place(token)[1] if prompt.spans else "prompt"
        return {"path": path, "token": token, "tail": token % self.state.setup.page_size}

    def _keep(self, tokens: list[int]) -> None:
        self.state.cache.add(self.job.root, tokens)
        self.state.ever.add(self.job.asked.owner, tokens)

    def _count(self, findings: list[Any]) -> None:
        job, size = self.job, self.state.setup.page_size
        n = len(self.choices) // len(job.requests)
        for index, request in enumerate(job.requests):
            own = self.choices[index * n : (index + 1) * n]
            request.completion_tokens = sum(choice.completion_tokens for choice in own)
            # The token that is drawn last is never run; every further reply runs the prompt's last token again.
            request.computed_tokens += request.completion_tokens - len(own) + (len(own) - 1)
        prompt = sum(request.prompt_tokens for request in job.requests)
        cached = sum(request.cached_tokens for request in job.requests)
        completion = sum(request.completion_tokens for request in job.requests)
        tails = sum(request.prompt_tokens % size for request in job.requests)
        miss = next((request.miss for request in job.requests if request.miss is not None), None)
        self.usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        self.report = {
            "session": None if job.session is None else job.session.id,
            "source": job.source,
            "page_size": size,
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "cached_pages": sum(request.cached_tokens // size for request in job.requests),
            "partial_tokens": sum(request.cached_tokens % size for request in job.requests),
            "computed_tokens": sum(request.computed_tokens for request in job.requests),
            "preemptions": 0,
            "tiers": {"device": cached, "host": 0, "disk": 0, "store": 0},
            "miss": None if miss is None else miss.model_dump(),
            "alignment": {"static_tokens": prompt - tails, "tail_tokens": tails, **self.report},
            "findings": [dict(finding) for finding in findings],
        }

    def finish(self) -> None:
        """The replies are complete: they are cached, remembered and committed."""
        state, job = self.state, self.job
        n = len(self.choices) // len(job.requests)
        for choice in self.choices:
            request = job.requests[choice.index // n]
            tokens = [*request.rendered.tokens, *choice.tokens]
            self._keep(tokens[:-1] if choice.finish_reason == "length" else tokens)
            if job.chat:
                state.memory.note(request.rendered.tokens, choice.message)
            if choice.index % n == 0:
                request.reply, request.sequence, request.outcome = choice.message, tokens, "replied"
        request = job.requests[0]
        figures = {
            "prompt_tokens": request.prompt_tokens,
            "cached_tokens": request.cached_tokens,
            "computed_tokens": request.computed_tokens,
            "completion_tokens": request.completion_tokens,
            "miss": self.report["miss"],
        }
        job.commit(self.choices[0].message, self.choices[0].tokens, figures, state.now())
        if job.session is not None:
            state.follow(job.session, request.sequence)
        self.over = True

    def drop(self) -> None:
        """The request has ended, whatever became of it; a turn that was not finished leaves nothing."""
        if not self.over and self.job.session is not None:
            self.job.session.in_flight = False
        self.over = True

    def _events(self) -> Iterator[bytes]:
        fault, envelope, sent = self.fault, self._envelope(), 0
        if isinstance(fault, LoseAnswer):
            with self.state.lock:
                self.finish()
            raise httpx.ReadError("the connection was lost")
        last = fault.after_chunks if isinstance(fault, (HangUp, ErrorFault)) else None
        for is_piece, chunk in envelope.chunks(self.choices):
            if is_piece and sent == last:
                break
            sent += is_piece
            yield event(chunk)
        if isinstance(fault, HangUp):
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")
        failure = self._failure(fault) if isinstance(fault, ErrorFault) else self._gone()
        if failure is not None:
            yield event({"error": failure.error})
            yield DONE
            return
        with self.state.lock:
            self.finish()
        for chunk in envelope.closing(self.choices[-1], self.usage, self.report):
            yield event(chunk)
        yield DONE

    def _gone(self) -> Refusal | None:
        session = self.job.session
        if session is None or session.id in self.state.store.sessions:
            return None
        message = "the session was deleted while it generated"
        return Refusal(404, message, param="session", code="session_not_found")

    def _envelope(self) -> Envelope:
        body, requests = self.job.body, self.job.requests
        envelope = Envelope(
            id=f"{'chatcmpl' if self.job.chat else 'cmpl'}-{next(self.state.numbers)}",
            model=self.state.setup.model,
            created=int(self.state.now()),
            chat=self.job.chat,
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            return_ids=bool(body.get("return_token_ids")),
        )
        return replace(
            envelope,
            prompt_ids=requests[0].rendered.tokens,
            echo=requests[0].prompt if body.get("echo") and not self.job.chat else "",
        )

    def _new_call(self) -> str:
        return f"call_{next(self.state.numbers)}"
