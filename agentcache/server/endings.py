"""What is done when a request has been generated: a turn is committed, a transcript remembered, a miss explained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool

from agentcache.cache.manager import CacheManager
from agentcache.chat.messages import normalize_messages, normalize_tools
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import AgentCacheError, EngineStoppedError
from agentcache.lint.finding import Finding
from agentcache.request import SequenceReport
from agentcache.server.context import Context
from agentcache.server.errors import ApiError, from_runtime
from agentcache.server.findings.foreign import foreign_replies
from agentcache.server.findings.look import text_finding, to_json
from agentcache.server.findings.runtime import Known, cache_finding, fork_finding, template_finding
from agentcache.server.findings.sharing import sharing_finding
from agentcache.server.findings.spot import Basis
from agentcache.server.generation import Delta, Generation
from agentcache.server.misses import Asked, Places, describe, share_point_list, template_break
from agentcache.server.share_points import SharePoint, ShareSearch
from agentcache.server.usage import Notes
from agentcache.sessions.naming import name_conversation
from agentcache.sessions.session import Session, TurnInFlight, as_message
from agentcache.sessions.store import SessionNotFoundError
from agentcache.sessions.transcript import Reply, Transcript
from agentcache.sessions.turn import Answered, Figures

_ORIGINS = frozenset({"restored", "moved", "turn"})
"""Events that say whether a session's last turn was computed here, or came from elsewhere."""


@dataclass(frozen=True)
class LookedBack:
    """What is known of a request at its end.

    Attributes:
        prompt: number of the prompt that ``miss`` is about, the first that has one.
        finding: what in that prompt's text kept it from being reused.
        sharing: what is to be said of the place at which it parts from others.
    """

    prompt: int
    miss: dict[str, Any] | None
    share_points: list[dict[str, Any]]
    finding: Finding | None
    sharing: Finding | None


@dataclass(frozen=True)
class Namespace:
    """Whose pages a request uses."""

    key: str | None
    root: bytes
    salt: str | None


class PromptEnding:
    """The end of a request without a session.

    Args:
        asked: one for each prompt.
        source: see ``Notes``.
    """

    def __init__(self, context: Context, space: Namespace, asked: Sequence[Asked], source: str = "template") -> None:
        self._context = context
        self._space = space
        self._asked = asked
        self._source = source
        self._basis = Basis(context.engine.info.page_size, None, space.root, context.said)
        self._search = ShareSearch(context.engine, context.engine.paged(asked[0].prompt.transcript.ids, space.root))

    def started(self, generation: Generation) -> None:
        self._search.start()

    def drop(self) -> None:
        self._search.drop()

    async def finish(self, choices: Sequence[Delta]) -> Notes:
        reports = [choice.report for choice in choices[:: len(choices) // len(self._asked)]]
        points = await self._search.found()
        seen = await run_in_threadpool(self._look_back, choices, reports, points)
        asked, report, miss = self._asked[seen.prompt], reports[seen.prompt], seen.miss
        prompts = [asked.prompt.transcript.ids for asked in self._asked]
        basis, found = self._basis, [seen.finding, seen.sharing]
        if miss is not None and report is not None and report.miss is not None:
            miss = await told_elsewhere(self._context, self._space, prompts[seen.prompt], miss)
            known = Known(asked.prompt.kept.tokens, len(asked.prompt.transcript.replies))
            found.insert(0, cache_finding(report.miss, miss, known, report.prompt_tokens, basis))
        for ids in prompts:
            self._context.desk.namespaces.note(self._space.key, self._space.root, self._space.salt, ids)
        told = counted(self._context, miss)
        foreign = 0 if seen.finding else foreign_replies(asked, miss, self._context.said, self._space.root)
        return Notes(None, self._source, told, seen.share_points, to_json(found), foreign)

    def _look_back(
        self, choices: Sequence[Delta], reports: Sequence[SequenceReport | None], points: Sequence[SharePoint]
    ) -> LookedBack:
        """Off the event loop: remember what was said, describe the first miss and the share points."""
        asked, engine = self._asked[0], self._context.engine
        for choice in choices if asked.messages else ():
            reply = _reply(asked, choice)
            transcript = extended(asked, reply, engine.tokenizer)
            remember(self._context, self._space.root, asked, reply, transcript)
            self._context.said.note(self._space.root, reply.said.content)
        places = [Places(asked, engine.renderer) for asked in self._asked]
        basis = self._basis
        shares = share_point_list(points, places[0], basis.page_size)
        sharing = sharing_finding(points, places[0], _cached(reports[0]), basis)
        for number, (place, report) in enumerate(zip(places, reports, strict=True)):
            if report is not None and report.miss is not None:
                told = describe(report.miss, place)
                finding = text_finding(place, report.miss, told, basis)
                return LookedBack(number, told, shares, finding, None if finding else sharing)
        return LookedBack(0, None, shares, None, sharing)


class TurnEnding:
    """The end of a session's turn.

    Args:
        job_id: what the ids of its answer are made from.
    """

    def __init__(self, context: Context, key: str | None, turn: TurnInFlight, asked: Asked, job_id: str) -> None:
        self.created = time.time()
        """Of the answer, in Unix seconds."""
        self._job_id = job_id
        self._context = context
        self._key = key
        self._turn = turn
        self._asked = asked
        self._before = turn.session.transcript
        session, ids = turn.session, asked.prompt.transcript.ids
        self._basis = Basis(context.engine.info.page_size, session.id, session.home.root, context.said)
        self._search = ShareSearch(context.engine, context.engine.paged(ids, session.home.root, session.bookmark))

    def started(self, generation: Generation) -> None:
        self._search.start()
        gone = _gone()
        self._turn.cancel = lambda: generation.fail(gone)
        if self._turn.session.closed:
            generation.fail(gone)

    async def finish(self, choices: Sequence[Delta]) -> Notes:
        (choice,) = choices
        report = choice.report
        assert report is not None, "a choice that has finished has a report"
        session = self._turn.session
        desk = self._context.desk
        reply = _reply(self._asked, choice)
        points = await self._search.found()
        transcript, seen = await run_in_threadpool(self._look_back, reply, report, points)
        miss, prompt, basis = seen.miss, self._asked.prompt, self._basis
        found = [seen.finding, seen.sharing]
        if prompt.broken_at is not None and miss is not None:
            found = [template_finding(miss, self._before, basis)]
            if report.cached_tokens >= report.prompt_tokens - 1:  # it cost nothing this time
                miss = None
        if miss is not None:
            space = Namespace(self._key, session.home.root, session.home.salt)
            miss = await told_elsewhere(self._context, space, prompt.transcript.ids, miss)
            found += self._lost(report, miss, basis)
        if self._turn.turn_id is not None:
            self._turn.answered = self._answered(choice, reply)
        await self._commit(reply, transcript, Figures.of(report, miss))
        desk.namespaces.note(self._key, session.home.root, session.home.salt, prompt.transcript.ids)
        await desk.leases.follow(session)
        source = "transcript" if prompt.kept.tokens else "template"
        return Notes(session.id, source, counted(self._context, miss), seen.share_points, to_json(found))

    async def _commit(self, reply: Reply, transcript: Transcript, figures: Figures) -> None:
        """Written down first where other servers may go on with the session.

        Raises:
            ApiError: another server was faster, or ended the session; the turn has not happened.
        """
        turn, now = self._turn, self._context.engine.now()

        def commit(session: Session) -> None:
            if session.in_flight is not None:
                session.in_flight.commit(reply, transcript, figures, now)

        keeper = self._context.desk.keeper
        try:
            async with keeper.alone(self._context.desk.client(self._key), turn.session.id):
                if turn.session.in_flight is turn and not turn.session.closed:
                    await keeper.change(turn.session, commit)
        except SessionNotFoundError as error:
            raise _gone() from error
        except AgentCacheError as error:
            raise from_runtime(error) from error

    def _answered(self, choice: Delta, reply: Reply) -> Answered:
        assert choice.finish_reason is not None, "a choice that has finished says why"
        text = reply.text if self._turn.session.head.raw else None
        return Answered(self._job_id, self.created, choice.finish_reason.value, choice.stop_reason, text)

    def _lost(self, report: SequenceReport, miss: dict[str, Any], basis: Basis) -> list[Finding | None]:
        """What the cache does not have of the session's earlier turns."""
        session, prompt = self._turn.session, self._asked.prompt
        if report.miss is None or prompt.broken_at is not None:
            return []
        past = [event["event"] for event in session.events]
        came = next((event for event in reversed(past) if event in _ORIGINS), "turn")
        known = Known(prompt.kept.tokens, len(session.turns), restored=came != "turn")
        found = cache_finding(report.miss, miss, known, report.prompt_tokens, basis)
        if found is None and session.turns and "forked" in past and "turn" not in past:
            return [fork_finding(report.miss, len(self._before), report.cached_tokens, basis)]
        return [found]

    def drop(self) -> None:
        self._search.drop()
        self._turn.end()

    def _look_back(
        self, reply: Reply, report: SequenceReport, points: Sequence[SharePoint]
    ) -> tuple[Transcript, LookedBack]:
        """Off the event loop: the transcript after the turn, why its prompt was not cached further, its share points."""
        engine, session = self._context.engine, self._turn.session
        transcript = extended(self._asked, reply, engine.tokenizer)
        if self._asked.messages:
            remember(self._context, session.home.root, self._asked, reply, transcript)
            self._context.said.note(session.home.root, reply.said.content)
        places, basis = Places(self._asked, engine.renderer), self._basis
        shares = share_point_list(points, places, basis.page_size)
        if self._asked.prompt.broken_at is not None:
            miss = template_break(places, self._before, report.cached_tokens)
            return transcript, LookedBack(0, miss, shares, None, None)
        sharing = None if session.turns else sharing_finding(points, places, report.cached_tokens, basis)
        if report.miss is None:
            return transcript, LookedBack(0, None, shares, None, sharing)
        told = describe(report.miss, places)
        finding = text_finding(places, report.miss, told, basis)
        return transcript, LookedBack(0, told, shares, finding, None if finding else sharing)


async def told_elsewhere(
    context: Context, space: Namespace, ids: Sequence[int], miss: dict[str, Any]
) -> dict[str, Any]:
    """A beginning that the same key sent under another salt, or to another model, is not merely cold."""
    desk = context.desk
    if miss["code"] != "cold" or miss["at_token"] != 0:
        return miss
    if desk.namespaces.elsewhere(space.key, space.root, ids):
        return {**miss, "code": "salt", "detail": "this key has sent this beginning under another salt"}
    names = desk.models_before.first_pages(space.key, space.salt, ids)
    if not names:
        return miss

    def kept(manager: CacheManager) -> bytes | None:
        tiers = () if manager.lower is None else manager.lower.tiers
        return next((name for name in names if any(name in tier for tier in tiers)), None)

    try:
        name = await context.engine.inspect(kept)
    except EngineStoppedError:
        return miss
    if name is None:
        return miss
    detail = f"this key has sent this beginning to another model, whose pages are on disk: {names[name]}"
    return {**miss, "code": "model", "detail": detail}


def _gone() -> ApiError:
    return ApiError(404, "the session was deleted while it generated", param="session", code="session_not_found")


def counted(context: Context, miss: dict[str, Any] | None) -> dict[str, Any] | None:
    """The ``miss`` that an answer carries, noted for ``/metrics``."""
    if miss is not None:
        context.misses[miss["code"]] += 1
    return miss


def _cached(report: SequenceReport | None) -> int:
    return 0 if report is None else report.cached_tokens


def _reply(asked: Asked, choice: Delta) -> Reply:
    text = choice.text
    cut = isinstance(choice.stop_reason, str)
    return Reply(text, choice.token_ids, choice.end_token, asked.read(choice.choice, text), cut)


def extended(asked: Asked, reply: Reply, tokenizer: Tokenizer) -> Transcript:
    """What was asked and what was said.  A raw transcript has no end tokens: it is what its client has seen."""
    before = asked.prompt.transcript
    if not asked.messages:
        return before.with_text(reply.ids(tokenizer), "")
    return before.with_reply(len(asked.messages), asked.prompt.header, reply, tokenizer)


def remember(context: Context, root: bytes, asked: Asked, reply: Reply, transcript: Transcript) -> None:
    """Keep a transcript for clients that send their whole history.

    Its text does not find it where a user or the model spelled out control tokens: the same text could then be other tokens,
    and what a user typed must never become one.
    """
    messages = normalize_messages([*asked.messages, as_message(reply.said)])
    names = name_conversation(root, normalize_tools(asked.tools), messages)
    spelled = "\n" + reply.text
    spells = asked.prompt.spells_controls or context.engine.tokenizer.last_control_before(spelled, len(spelled)) > 0
    context.desk.known.remember(names, transcript, None if spells else root)
