"""What was asked of the engine, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentcache_sdk.testing._page_cache import common
from agentcache_sdk.testing._rendering import Prompt, content_of
from agentcache_sdk.testing._tokens import decode
from agentcache_sdk.types import Miss

_SHOWN = 40


@dataclass(frozen=True)
class PrefixBreak:
    """A request that does not go on where the one before it ended.

    Attributes:
        since: number of the request that it should continue.
        at_token, message_index, path: the first place that is different.
        was, now: what the earlier conversation has there, and this one.
        tokens_lost: how many tokens of the earlier conversation lie behind that place.
    """

    since: int
    at_token: int
    message_index: int | None
    path: str | None
    was: str
    now: str
    tokens_lost: int


@dataclass(eq=False)
class Request:
    """One request for a reply.

    Attributes:
        number: 0 for the first; its place in ``engine.requests``.
        kind: ``chat``; ``completion`` for raw text; ``prewarm`` for what ``client.prewarm`` sends, which no script is
            asked about.
        messages: the whole conversation, what a session knew before included; empty for raw text.
        new_messages: those that this request brought.
        tools: schemas, those of the session included.
        prompt: the whole text, where it is no chat.
        body: as it was sent.
        session: id.
        reply: the assistant message that was given; ``None`` while there is none, or where the request failed.
        outcome: ``replied``, ``cut`` (the connection was lost, or the client hung up), or the code of an error.
        prompt_tokens, cached_tokens, computed_tokens, completion_tokens: as the server counts them.
        miss: why no more was cached; ``None`` when all was that could be.
        broken: the request does not continue the conversation that it repeats; see ``engine.assert_append_only``.
        forgotten: tokens that were computed before, and had to be again because their pages were gone.
    """

    number: int
    kind: str
    body: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)
    new_messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    prompt: str = ""
    session: str | None = None
    reply: dict[str, Any] | None = None
    outcome: str = "cut"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    completion_tokens: int = 0
    miss: Miss | None = None
    broken: PrefixBreak | None = None
    forgotten: int = 0
    rendered: Prompt = field(default_factory=Prompt, repr=False)
    sequence: list[int] = field(default_factory=list, repr=False)
    """Ids of the prompt and the reply."""

    @property
    def system(self) -> str:
        """The system text; empty without one."""
        first = self.messages[:1]
        return content_of(first[0]) if first and first[0].get("role") in ("system", "developer") else ""

    @property
    def text(self) -> str:
        """Text of the last message, or of the prompt: what is being asked."""
        return content_of(self.messages[-1]) if self.messages else self.prompt

    @property
    def tool_names(self) -> list[str]:
        return [str((tool.get("function") or {}).get("name")) for tool in self.tools]

    def describe(self) -> str:
        """One line for people."""
        role = self.messages[-1].get("role") if self.messages else "the prompt"
        shown = self.text if len(self.text) <= 80 else self.text[:79] + "…"
        where = f" in session {self.session}" if self.session else ""
        tools = f", tools {', '.join(self.tool_names)}" if self.tools else ""
        return f"request {self.number}{where} asked ({len(self.messages)} messages{tools}); {role}: {shown!r}"


def continuation_break(request: Request, earlier: list[Request]) -> PrefixBreak | None:
    """Where a conversation was changed after it was answered.

    A request goes on from the one whose reply it holds: that prompt and that reply must be what it begins with::

        request 3    [ system ][ user ][ reply 3 ]
        request 5    [ system ][ user ][ reply 3 ][ user ]      goes on
        request 6    [ system ][ us!r ][ reply 3 ][ user ]      broken in messages[1]
        request 7    [ system ][ user ][ re!ly 3 ][ user ]      broken in messages[2]
    """
    replied = [old for old in earlier if old.reply is not None and old.rendered.spans and old.kind == request.kind]
    before = _whose_reply_it_holds(request, replied)
    if before is None or _goes_on(request, before):
        before = _whose_reply_it_changed(request, replied)
    if before is None or _goes_on(request, before):
        return None
    tokens, known = request.rendered.tokens, before.sequence
    at = common(known, tokens)
    index, path = request.rendered.place(at)
    return PrefixBreak(
        before.number, at, index, path, _shown(known, at), _shown(tokens, at), tokens_lost=len(known) - at
    )  # fmt: skip


def _goes_on(request: Request, before: Request) -> bool:
    return _begins_with(request.rendered.tokens, before.sequence)


def _begins_with(tokens: list[int], beginning: list[int]) -> bool:
    """Looks at the end first: prompts that differ mostly do so there, and these lists are long."""
    length = len(beginning)
    return tokens[length - 8 : length] == beginning[-8:] and tokens[:length] == beginning


def _whose_reply_it_holds(request: Request, replied: list[Request]) -> Request | None:
    """Of the requests that gave its last known reply, the one that is most like it."""
    for message in reversed(request.messages):
        if message.get("role") != "assistant":
            continue
        said = [old for old in reversed(replied) if _says_the_same(old.reply or {}, message)]
        if said:
            continued = next((old for old in said if _goes_on(request, old)), None)
            return continued or max(said, key=lambda old: common(old.sequence, request.rendered.tokens))
    return None


def _whose_reply_it_changed(request: Request, replied: list[Request]) -> Request | None:
    """The longest earlier conversation that it repeats up to the reply, and not with the reply."""
    tokens, roles = request.rendered.tokens, [message.get("role") for message in request.messages]
    asked = [old for old in replied if roles[len(old.messages) :][:1] == ["assistant"]]
    asked.sort(key=lambda old: len(old.rendered.tokens), reverse=True)
    longest = next((old for old in asked if _begins_with(tokens, old.rendered.tokens)), None)
    if longest is None:
        return None
    alike = [old for old in asked if old.rendered.tokens == longest.rendered.tokens]
    return next((old for old in alike if _goes_on(request, old)), longest)


def _says_the_same(reply: dict[str, Any], message: dict[str, Any]) -> bool:
    def names(calls: Any) -> list[Any]:
        return [(call.get("function") or {}).get("name") for call in calls or ()]

    return content_of(reply).strip() == content_of(message).strip() and names(reply.get("tool_calls")) == names(
        message.get("tool_calls")
    )


def _shown(tokens: list[int], at: int) -> str:
    return decode(tokens[at : at + _SHOWN])[:_SHOWN]
