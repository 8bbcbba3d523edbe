"""``POST /v1/completions``: raw prompts, as text or as token ids."""

from __future__ import annotations

from array import array
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from agentcache.server.bodies import MAX_PROMPTS, CompletionBody, CompletionTurnBody, check
from agentcache.server.context import Context
from agentcache.server.endings import Namespace, PromptEnding
from agentcache.server.errors import bad_field
from agentcache.server.gate.auth import api_key
from agentcache.server.gate.json_body import parse_object, read_body
from agentcache.server.generation import Delta
from agentcache.server.job import Job, Prompt, new_id
from agentcache.server.misses import Asked
from agentcache.server.openai.choices import ChoiceWriter
from agentcache.server.openai.logprobs import CompletionLogprobs, joined
from agentcache.server.openapi import json_request
from agentcache.server.params import sampling_params, split_prompts
from agentcache.server.reply import answer
from agentcache.server.sessions.turns import completion_turn, named_session
from agentcache.sessions.transcript import Prompt as Text
from agentcache.sessions.transcript import Transcript


class CompletionWriter(ChoiceWriter):
    """With ``echo`` the prompt is the first piece of every choice."""

    prompt_field = "prompt"
    prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, job: Job, context: Context, *, echo: bool) -> None:
        super().__init__(job, context)
        self._echo = echo
        self._blocks: dict[int, CompletionLogprobs] = {}

    def first(self, delta: Delta) -> dict[str, Any] | None:
        if not self._echo:
            return None
        return {"text": self._prompt_text(delta), "logprobs": self._prompt_logprobs(delta), "finish_reason": None}

    def pieces(self, delta: Delta) -> list[dict[str, Any]]:
        if not delta.pieces and not self.reports_tokens(delta):
            return []
        return [{"text": delta.text, "logprobs": self._logprobs(delta), "finish_reason": None}]

    def closing(self, delta: Delta) -> dict[str, Any]:
        return {"text": "", "logprobs": None, **self.finish_fields(delta)}

    def choice(self, delta: Delta) -> dict[str, Any]:
        text, logprobs = delta.text, None
        if self.job.params.logprobs is not None:
            before = self._prompt_logprobs(delta) if self._echo else None
            after = self._logprobs(delta)
            logprobs = joined(before, after) if before and after else after
        if self._echo:
            text = self._prompt_text(delta) + text
        return {"text": text, "logprobs": logprobs, **self.finish_fields(delta)}

    def _logprobs(self, delta: Delta) -> dict[str, Any] | None:
        return None if self.job.params.logprobs is None else self._block(delta).block(delta.logprobs)

    def _prompt_logprobs(self, delta: Delta) -> dict[str, Any] | None:
        if self.job.params.prompt_logprobs is None or delta.prompt_logprobs is None:
            return None
        return self._block(delta).prompt_block(self._prompt(delta).token_ids, delta.prompt_logprobs)

    def _block(self, delta: Delta) -> CompletionLogprobs:
        return self._blocks.setdefault(delta.choice, CompletionLogprobs(self.tokenizer))

    def _prompt(self, delta: Delta) -> Prompt:
        return self.job.prompts[delta.choice // self.job.params.n]

    def _prompt_text(self, delta: Delta) -> str:
        prompt = self._prompt(delta)
        if prompt.text is not None:
            return prompt.text
        return self.tokenizer.decode(prompt.token_ids, skip_special_tokens=False)


def completions_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["generate"])
    engine = context.engine

    def prompt_of(item: str | list[int]) -> Prompt:
        if not isinstance(item, str):
            return Prompt(item)
        ids = context.encode(item)
        if not ids:
            raise bad_field("prompt", "got text of no tokens, expected at least one")
        return Prompt(ids, item)

    def prepare(raw: bytes, key: str | None, session: str | None) -> Job | CompletionTurnBody:
        fields = parse_object(raw)
        session = session if fields.get("session") is None else fields["session"]
        if session is not None:
            return check(CompletionTurnBody, {**fields, "session": session})
        body = check(CompletionBody, fields)
        context.check_model(body.model)
        params = sampling_params(body, engine.info.vocab_size)
        # More than the queue holds could never be served, however often it is tried again.
        limit = min(MAX_PROMPTS, context.settings.max_waiting)
        prompts = [prompt_of(item) for item in split_prompts(body.prompt, engine.info.vocab_size, limit)]
        space = Namespace(key, context.root(key, body.cache_salt), body.cache_salt)
        asked = [Asked(Text(Transcript(array("I", prompt.token_ids)))) for prompt in prompts]
        owner = context.desk.home(key, None).owner
        ending = PromptEnding(context, space, asked)
        job_id = new_id(context.settings.replica)
        return Job(body, prompts, params, space.root, owner, ending, id=job_id, asked=asked, salt=body.cache_salt)

    def writer(job: Job) -> CompletionWriter:
        echo = isinstance(job.body, CompletionBody) and bool(job.body.echo)
        return CompletionWriter(job, context, echo=echo)

    @router.post("/v1/completions", summary="Continue a prompt", openapi_extra=json_request(CompletionBody))
    async def completions(request: Request) -> Response:
        """OpenAI's completions.  Choices are ordered by prompt, then by sequence."""
        raw = await read_body(request, context.settings.max_body)
        # Parsing and tokenising a long prompt takes a while: not on the event loop.
        session = await named_session(context, request)
        job = await run_in_threadpool(prepare, raw, api_key(request), session)
        if isinstance(job, CompletionTurnBody):
            return await completion_turn(context, request, job, writer)
        return await answer(context, request, job, writer(job))

    return router
