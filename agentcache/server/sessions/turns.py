"""Turns of sessions: found, begun, answered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from agentcache.request import SamplingParams
from agentcache.server.bodies import ChatTurnBody, CompletionTurnBody, GenerationBody
from agentcache.server.context import Context
from agentcache.server.endings import TurnEnding
from agentcache.server.errors import bad_field
from agentcache.server.gate.auth import api_key
from agentcache.server.job import Job, Prompt, new_id
from agentcache.server.misses import Asked
from agentcache.server.params import sampling_params, split_prompts
from agentcache.server.replies.plan import wanted
from agentcache.server.replies.tool_choice import check_tools
from agentcache.server.reply import answer
from agentcache.server.sessions.added_tools import added_tools
from agentcache.server.sessions.bodies import HEADERS
from agentcache.server.sessions.keeping import Client
from agentcache.server.sessions.preconditions import check_turns
from agentcache.server.sessions.repeats import Committed, answer_again, committed_as
from agentcache.server.sessions.steps import Begin, MakeWriter, Question, Steps
from agentcache.sessions.session import Session, SessionBusyError, TurnInFlight
from agentcache.sessions.store import ID, SessionNotFoundError

_CUT_S = 0.5
"""How long a new turn waits for one that its client has just cut."""


async def named_session(context: Context, request: Request) -> str | None:
    """The session that a header names, for clients that cannot add to the body.

    Agents send ids of their own in these headers; one that is no session of this key is no matter.

    Raises:
        VaultUnavailableError: it may be a session of this key in the vault, which does not answer.
    """
    client = context.desk.client(api_key(request))
    for header in HEADERS:
        name = request.headers.get(header)
        if name and ID.fullmatch(name):
            with suppress(SessionNotFoundError):
                await context.desk.keeper.get(client, name, use=False)
                return name
    return None


async def chat_turn(context: Context, request: Request, body: ChatTurnBody, make_writer: MakeWriter) -> Response:
    """Append messages to a session, and tools that it does not know, and reply."""

    def call_example() -> str:
        return context.planner.format.example()  # the planner may have to be made first, which takes a while

    async def check(session: Session) -> Begin:
        if session.head.raw:
            raise bad_field("session", "got a raw session, which goes on through /v1/completions")
        if body.add_generation_prompt is False:
            raise bad_field("add_generation_prompt", "got false, expected true: a turn of a session has a reply")
        given = body.tools or []
        check_tools(given)
        example = await run_in_threadpool(call_example) if given else ""
        return lambda: session.begin(messages=body.messages, added=added_tools(session, given, example))

    def ask(turn: TurnInFlight, params: SamplingParams, job_id: str) -> Question:
        tools = turn.session.head.tools
        want = wanted(body, turn.tools)
        if turn.added is not None:
            context.text_bounds.check(turn.added.told, "tools")
        context.text_bounds.check_messages(turn.all_messages)
        prompt = turn.make_prompt(context.engine.renderer, body.chat_template_kwargs)
        text = prompt.transcript.text
        reading, params = context.planner.plan(want, params, text, job_id, turn.session.home.root)
        asked = Asked(prompt, turn.all_messages, tools, body.chat_template_kwargs, reading.read)
        return Question(asked, Prompt(prompt.transcript.ids, text), params, reading)

    return await _answer_turn(context, request, body, Steps(check, ask, make_writer))


async def completion_turn(
    context: Context, request: Request, body: CompletionTurnBody, make_writer: MakeWriter
) -> Response:
    """Append text or ids to a raw session and continue it."""

    async def check(session: Session) -> Begin:
        if not session.head.raw:
            raise bad_field("session", "got a session of messages, which goes on through /v1/chat/completions")
        ids = await run_in_threadpool(new_ids, context, body.prompt, first=not len(session.transcript))
        return lambda: session.begin(ids=ids)

    def ask(turn: TurnInFlight, params: SamplingParams, _: str) -> Question:
        prompt = turn.make_prompt(context.engine.renderer)
        return Question(Asked(prompt), Prompt(prompt.transcript.ids), params)

    return await _answer_turn(context, request, body, Steps(check, ask, make_writer))


def new_ids(context: Context, prompt: str | list[Any], *, first: bool) -> list[int]:
    """Ids that a raw session goes on with; only what comes first begins as the model expects texts to begin.

    Raises:
        ApiError: 400.
    """
    if prompt in ("", []):
        return []
    prompts = split_prompts(prompt, context.engine.info.vocab_size, 2)
    if len(prompts) > 1:
        raise bad_field("prompt", f"got {len(prompts)} prompts, expected one: a session is one text")
    (item,) = prompts
    return context.encode(item, add_special_tokens=first) if isinstance(item, str) else item


async def _answer_turn(
    context: Context,
    request: Request,
    body: GenerationBody,
    steps: Steps,
) -> Response:
    context.check_model(body.model)
    context.check_open()
    params = sampling_params(body, context.engine.info.vocab_size)
    key = api_key(request)
    turn = await _begun(context, context.desk.client(key), body, steps)
    if isinstance(turn, Committed):
        return await answer_again(context, request, body, steps, turn)
    turn.turn_id = body.turn_id
    session = turn.session
    try:
        job_id = new_id(context.settings.replica)
        question = await run_in_threadpool(steps.ask, turn, params, job_id)
        ending = TurnEnding(context, key, turn, question.asked, job_id)
        home = session.home
        job = Job(
            body, [question.prompt], question.params, home.root, home.owner, ending, bookmark=session.bookmark,
            reading=question.reading, id=job_id, created=ending.created, asked=[question.asked], salt=home.salt,
        )  # fmt: skip
        return await answer(context, request, job, steps.make_writer(job))
    except BaseException:
        turn.end()
        raise


async def _begun(context: Context, client: Client, body: GenerationBody, steps: Steps) -> TurnInFlight | Committed:
    """The turn that ``body`` asks for, begun; or the one that it was, where it is committed already."""
    desk, session_id, loop = context.desk, body.session, asyncio.get_running_loop()
    assert session_id is not None
    until = loop.time() + _CUT_S
    while True:
        async with desk.keeper.alone(client, session_id) as find:
            session = await find(session_id)
            if body.cache_salt is not None and body.cache_salt != session.home.salt:
                raise bad_field("cache_salt", "got another salt than the session's, which never changes; leave it out")
            begin = await steps.check(session)
            again = await committed_as(session, body, steps)
            desk.store.get(session_id, client.owner)  # it may have been deleted meanwhile
            running = session.in_flight
            if running is None or loop.time() >= until:  # which ``begin`` refuses
                if again is not None:
                    return again
                check_turns(session, body.if_turns)
                return begin()
        await _let_a_cut_turn_end(running, until - loop.time())


async def _let_a_cut_turn_end(turn: TurnInFlight, patience_s: float) -> None:
    """Whoever hangs up and sends the next turn at once may be faster than the news of the hang-up.

    Raises:
        SessionBusyError: the turn was not cut.
    """
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(turn.over.wait(), patience_s)
    if turn.committed:
        raise SessionBusyError(f"session {turn.session.id} was generating; one turn at a time")
