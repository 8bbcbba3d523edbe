"""What a request for a reply asks: its prompts, and the session that it is a turn of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentcache_sdk.testing._http import Asked, Refusal, bad_field, busy, check_generation, check_messages
from agentcache_sdk.testing._rendering import NEW_TOOLS, Prompt, render
from agentcache_sdk.testing._sessions import HeldSession, HeldTurn, check_turns
from agentcache_sdk.testing._state import State
from agentcache_sdk.testing._tokens import BEGIN, decode, encode
from agentcache_sdk.testing.requests import Request, continuation_break


@dataclass
class Job:
    """
    Attributes:
        root: namespace of its pages.
        requests: one a prompt.
        entries, new_ids: what a turn adds before its reply.
        source: ``transcript`` where the ids go on from a known reply.
    """

    asked: Asked
    chat: bool
    root: str
    requests: list[Request] = field(default_factory=list)
    session: HeldSession | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)
    new_ids: list[int] = field(default_factory=list)
    source: str = "template"

    @property
    def body(self) -> dict[str, Any]:
        return self.asked.body

    def commit(self, reply: dict[str, Any], reply_ids: list[int], figures: dict[str, Any], now: float) -> None:
        """Append the turn to the session, unless that has ended meanwhile."""
        session = self.session
        if session is None:
            return
        entries = () if session.raw else (*self.entries, reply)
        ids = (*self.new_ids, *reply_ids) if session.raw else ()
        turn = HeldTurn(entries, ids, figures, self.body.get("turn_id"))
        session.turns.append(turn)
        session.in_flight = False
        session.note("turn", now, messages=len(turn.messages), **figures)
        session.expires_at = now + session.ttl_s


def make_job(state: State, asked: Asked, *, chat: bool) -> Job:
    """
    Raises:
        Refusal: the request cannot be served as it stands.
    """
    body = asked.body
    state.check_model(body.get("model"))
    check_generation(body)
    if body.get("session") is not None and state.setup.sessions:
        job = _turn(state, asked, chat=chat)
    elif chat:
        job = _chat(state, asked)
    else:
        job = _completion(state, asked)
    for request in job.requests:
        state.check_size(request.rendered.tokens, "messages" if chat else "prompt")
        request.prompt_tokens = len(request.rendered.tokens)
        # What a new session is made of is its maker's choice: a summary in place of old turns, for instance.
        begins = job.session is not None and not job.session.turns
        request.broken = None if begins or not chat else continuation_break(request, state.requests)
        request.number = len(state.requests)
        state.requests.append(request)
    return job


def _chat(state: State, asked: Asked) -> Job:
    body = asked.body
    messages, tools = check_messages(body.get("messages")), body.get("tools") or []
    prompt = render(messages, tools, state.memory)
    request = Request(0, "chat", body, messages, messages, tools, rendered=prompt)
    source = "transcript" if prompt.known else "template"
    return Job(asked, True, state.root(asked.owner, body.get("cache_salt")), [request], source=source)


def _completion(state: State, asked: Asked) -> Job:
    body = asked.body
    if "prompt" not in body:
        raise bad_field("prompt", "missing, expected text, a list of texts, a list of token ids", "missing_field")
    prompts = [Prompt(ids) for ids in _prompts(body["prompt"])]
    kind = "prewarm" if _only_warms(body) else "completion"
    requests = [Request(0, kind, body, prompt=decode(prompt.tokens), rendered=prompt) for prompt in prompts]
    return Job(asked, False, state.root(asked.owner, body.get("cache_salt")), requests)


def _only_warms(body: dict[str, Any]) -> bool:
    """Whether it asks for one token behind the ids of a conversation's beginning, as ``client.prewarm`` does."""
    prompt = body["prompt"]
    return isinstance(prompt, list) and prompt[:1] == [BEGIN] and body.get("max_tokens") == 1 and not body.get("stream")


def _turn(state: State, asked: Asked, *, chat: bool) -> Job:
    body = asked.body
    session = state.store.get(str(body["session"]), asked.owner)
    if session.raw and chat:
        raise bad_field("session", "got a raw session, which goes on through /v1/completions")
    if not session.raw and not chat:
        raise bad_field("session", "got a session of messages, which goes on through /v1/chat/completions")
    known = session.ids if session.raw else session.turns
    job = Job(asked, chat, session.root, session=session, source="transcript" if known else "template")
    request = _chat_turn(state, job, session) if chat else _raw_turn(job, session)
    if session.in_flight:
        raise busy(session.id)
    check_turns(session, body.get("if_turns"))
    session.in_flight = True
    job.requests.append(request)
    return job


def _chat_turn(state: State, job: Job, session: HeldSession) -> Request:
    messages = check_messages(job.body.get("messages"), least=0)
    new_tools = session.new_tools(job.body.get("tools") or [])
    known = session.messages
    if not messages and (not known or known[-1]["role"] == "assistant"):
        message = "got none, and nothing in the session waits for a reply: expected at least one message"
        raise bad_field("messages", message)
    if new_tools and not messages:
        raise bad_field("tools", "got new ones in a turn without messages, expected at least one")
    told = [{"role": NEW_TOOLS, "tools": new_tools}] if new_tools else []
    job.entries = [*told, *messages]
    prompt = render([*session.entries, *job.entries], session.tools, state.memory)
    tools = [*session.all_tools, *new_tools]
    return Request(0, "chat", job.body, [*known, *messages], messages, tools, session=session.id, rendered=prompt)


def _raw_turn(job: Job, session: HeldSession) -> Request:
    given = job.body.get("prompt", "")
    prompts = [[]] if given in ("", []) else _prompts(given)
    if len(prompts) > 1:
        raise bad_field("prompt", f"got {len(prompts)} prompts, expected one: a session is one text")
    job.new_ids = prompts[0]
    ids = [*session.ids, *job.new_ids]
    if not ids:
        raise bad_field("prompt", "got none, and the session is empty: expected text or token ids")
    return Request(0, "completion", job.body, prompt=decode(ids), session=session.id, rendered=Prompt(ids))


def _prompts(prompt: Any) -> list[list[int]]:
    """Ids of each prompt of a completion.

    Raises:
        Refusal: 400, there is none, or one is neither text nor ids.
    """
    if isinstance(prompt, str):
        return [_ids_of(prompt)]
    if not isinstance(prompt, list) or not prompt:
        raise bad_field("prompt", f"got {prompt!r}, expected text, a list of texts, or token ids")
    if isinstance(prompt[0], int):
        return [_ids_of(prompt)]
    return [_ids_of(item) for item in prompt]


def _ids_of(item: Any) -> list[int]:
    if isinstance(item, str) and item:
        return encode(item)
    if isinstance(item, list) and item and all(type(token) is int and token >= 0 for token in item):
        return list(item)
    raise _wrong(item)


def _wrong(item: Any) -> Refusal:
    return bad_field("prompt", f"got {item!r}, expected text or a list of token ids that is not empty")
