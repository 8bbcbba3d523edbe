"""From an HTTP request to what it is routed by: the very pages that the engine which gets it will look for.

Reading a body, rendering and tokenising it takes as long as it does on the replica: not on the event loop.

::

    POST /v1/chat/completions  ─► the same checks, template, tokenizer ─► ids ─► keys of their pages under the caller's namespace
    POST /v1/sessions/sess_…-r3/pin  ─► r3
    GET  /v1/models  ─► anybody

A request that is wrong in any way has no key: any replica refuses it, in the right words.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from agentcache.cache.hashing import namespace_root
from agentcache.chat.messages import Message, normalize_messages, normalize_tools
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.splice import ChatInput
from agentcache.errors import AgentCacheError
from agentcache.replica_ids import replica_of
from agentcache.routing.keys import RoutingKey
from agentcache.routing.profile import ModelProfile
from agentcache.server.anthropic.bodies import MessagesBody
from agentcache.server.anthropic.jobs import as_taken
from agentcache.server.anthropic.translate import Conversation, chat_body, conversation
from agentcache.server.bodies import ChatBody, ChatPrompt, CompletionBody, check
from agentcache.server.errors import ApiError
from agentcache.server.gate.auth import Keys
from agentcache.server.gate.bounds_text import TextBounds
from agentcache.server.gate.json_body import parse_object
from agentcache.server.params import split_prompts
from agentcache.server.responses.bodies import ResponseBody, chat_fields
from agentcache.server.responses.items import read_input
from agentcache.server.responses.tools import chat_choice, read_tools
from agentcache.server.sessions.bodies import HEADERS, CreateBody
from agentcache.sessions.naming import name_conversation
from agentcache.sessions.transcript import Prompt, fresh_prompt, render


class Kind(enum.Enum):
    """Who may answer a request."""

    GENERATE = "generate"
    """Anybody; best who has its prompt."""
    SESSION = "session"
    """Best who has the session that it names."""
    RESPONSE = "response"
    """Only who has the response or the answer that it names."""
    ANY = "any"
    """Anybody, and nobody better than others."""
    ALL = "all"
    """Everybody: what it does is to be done everywhere."""
    MERGE = "merge"
    """Everybody, and what they say is put together."""


class ReadRequest(NamedTuple):
    kind: Kind
    key: RoutingKey


_NOTHING = RoutingKey()
_MERGED = frozenset({"/metrics", "/v1/cache", "/v1/cache/tree", "/v1/findings", "/v1/sessions"})
_EVERYWHERE = frozenset({"/v1/cache/flush", "/debug/clock", "/debug/fault", "/debug/check"})
_SESSION = re.compile(r"/v1/sessions/([^/]+)(?:/[a-z]+)?")
_RESPONSE = re.compile(r"/v1/responses/([^/]+)(?:/[a-z_]+)?")
_LONGEST_NAME = 256

Headers = Sequence[tuple[bytes, bytes]]


class RequestReader:
    """Reads requests to engines of one profile.  Safe to use from any thread.

    Raises:
        UnsupportedModelError: the profile holds no tokenizer that can be used.
        ChatTemplateError: or no template that can.
    """

    def __init__(self, profile: ModelProfile) -> None:
        self._profile = profile
        self._tokenizer = profile.tokenizer()
        self._renderer = ChatRenderer(
            self._tokenizer, allow_special_tokens=profile.settings.allow_special_tokens
        )  # fmt: skip
        self._public = profile.prefixes()
        self._keys = Keys(profile.settings)
        self._bounds = TextBounds(self._tokenizer, profile.capacity)
        self._readers: dict[str, Callable[[_Asked], RoutingKey]] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/responses": self._response,
            "/v1/messages": self._message,
            "/v1/sessions": self._session_head,
        }

    def read(self, method: str, path: str, headers: Headers = (), body: bytes = b"") -> ReadRequest:
        """What ``method path`` is routed by; never raises.

        Args:
            path: without the query.
            headers: as ASGI has them.
            body: all of it.
        """
        path = path.rstrip("/") or "/"
        if method == "POST" and path in self._readers:
            return self._read_body(path, headers, body)
        if method == "POST" and path in _EVERYWHERE:
            return ReadRequest(Kind.ALL, _NOTHING)
        if method in {"GET", "HEAD"} and path in _MERGED:
            return ReadRequest(Kind.MERGE, _NOTHING)
        if found := _SESSION.fullmatch(path):
            return ReadRequest(Kind.SESSION, _named(found[1]))
        if (found := _RESPONSE.fullmatch(path)) and found[1] != "input_tokens":
            return ReadRequest(Kind.RESPONSE, _named(found[1]))
        if method == "POST" and path == "/v1/responses/input_tokens":
            return self._count(body)
        return ReadRequest(Kind.ANY, _NOTHING)

    def _read_body(self, path: str, headers: Headers, body: bytes) -> ReadRequest:
        request = Request({"type": "http", "headers": list(headers)})
        try:
            key, _ = self._keys.admit(request)
            fields = parse_object(body) if body.strip() or path != "/v1/sessions" else {}
        except ApiError:
            return ReadRequest(Kind.GENERATE, _NOTHING)
        asked = _Asked(fields, key, _header_session(request))
        if path in {"/v1/chat/completions", "/v1/completions"}:
            session = fields.get("session") or asked.header
            if isinstance(session, str) and (fields.get("session") or replica_of(session)):
                return ReadRequest(Kind.SESSION, _named(session))
        named = _answer_named(path, fields)
        if named is not None:
            return ReadRequest(Kind.RESPONSE, _named(named))
        kind = Kind.SESSION if path == "/v1/sessions" else Kind.GENERATE
        try:
            return ReadRequest(kind, self._readers[path](asked))
        except (ApiError, AgentCacheError, RecursionError, OverflowError):
            return ReadRequest(kind, _NOTHING._replace(affinity=asked.affinity))

    def _count(self, body: bytes) -> ReadRequest:
        try:
            named = _answer_named("/v1/responses", parse_object(body))
        except ApiError:
            named = None
        return ReadRequest(Kind.ANY, _NOTHING) if named is None else ReadRequest(Kind.RESPONSE, _named(named))

    # -- one endpoint each -----------------------------------------------------------------------------------------

    def _chat(self, asked: _Asked) -> RoutingKey:
        return self._conversation(asked, check(ChatBody, asked.fields))

    def _completion(self, asked: _Asked) -> RoutingKey:
        body = check(CompletionBody, asked.fields)
        first = split_prompts(body.prompt, self._profile.vocab_size, len(body.prompt) or 1)[0]
        return self._key(asked, self._raw(first), self._root(asked, body.cache_salt))

    def _response(self, asked: _Asked) -> RoutingKey:
        body = check(ResponseBody, asked.fields)
        turn = read_input(body.input, lambda _: None)
        messages: list[Mapping[str, Any]] = []
        if body.instructions:
            messages.append({"role": "system", "content": body.instructions})
        toolbox = read_tools(body.tools or ())
        chat = chat_fields(body, [*messages, *turn.messages], toolbox.chat, chat_choice(body.tool_choice))
        return self._conversation(asked, chat)

    def _message(self, asked: _Asked) -> RoutingKey:
        body = check(MessagesBody, asked.fields)
        said = conversation(body)

        def run(chat: ChatBody, said: Conversation) -> RoutingKey:
            try:
                return self._conversation(asked, chat, said.prefill or "")
            except AgentCacheError as error:
                raise ApiError(400, str(error), code=getattr(error, "code", None)) from error

        return as_taken(run, chat_body(body, asked.fields, said), said)

    def _session_head(self, asked: _Asked) -> RoutingKey:
        body = check(CreateBody, asked.fields)
        root = self._root(asked, body.cache_salt)
        if body.prompt:
            prompts = split_prompts(body.prompt, self._profile.vocab_size, 1)
            return self._key(asked, self._raw(prompts[0]), root)
        messages = [] if body.system is None else [{"role": "system", "content": body.system}]
        messages += body.messages or []
        if not messages:
            return _NOTHING
        chat = ChatPrompt.model_construct(
            messages=messages, tools=body.tools, chat_template_kwargs=None, add_generation_prompt=False
        )
        return self._of_messages(asked, chat, root)

    # -- from what was said to pages -------------------------------------------------------------------------------

    def _conversation(self, asked: _Asked, chat: ChatBody, beginning: str = "") -> RoutingKey:
        return self._of_messages(asked, chat, self._root(asked, chat.cache_salt), beginning)

    def _of_messages(self, asked: _Asked, chat: ChatPrompt, root: bytes, beginning: str = "") -> RoutingKey:
        messages, tools = normalize_messages(chat.messages), normalize_tools(chat.tools)
        self._bounds.check_messages(messages)
        adds = chat.add_generation_prompt is not False
        rendered = render(self._renderer, ChatInput(messages, tools, chat.chat_template_kwargs, adds, root))
        prompt = fresh_prompt(rendered)
        ids = prompt.ids
        if beginning:
            ids = [*ids, *self._tokenizer.encode(beginning, parse_special=False)]
        key = self._key(asked, ids, root, _thread(root, tools, messages))
        return key._replace(certain=_before_replies(prompt, messages) // self._profile.page_size)

    def _raw(self, prompt: str | list[int]) -> Sequence[int]:
        if not isinstance(prompt, str):
            return prompt
        self._bounds.check(prompt)
        return self._tokenizer.encode_prompt(prompt)

    def _root(self, asked: _Asked, salt: str | None) -> bytes:
        return namespace_root(*self._profile.root_base, asked.key, salt)

    def _key(self, asked: _Asked, ids: Sequence[int], root: bytes, thread: bytes = b"") -> RoutingKey:
        paged = self._public.paged(ids, root)
        return RoutingKey(tuple(paged.keys(paged.num_full_pages)), len(ids), None, asked.affinity, thread)


class _Asked(NamedTuple):
    """A body and who sent it.

    Attributes:
        key: that it was admitted with.
        header: the conversation that a header names.
    """

    fields: dict[str, Any]
    key: str | None
    header: str | None

    @property
    def affinity(self) -> bytes:
        given = self.fields.get("prompt_cache_key")
        name = given if isinstance(given, str) and given else self.header
        return b"" if not name else namespace_root("affinity", self.key, name[:_LONGEST_NAME])


def _named(name: str) -> RoutingKey:
    """Of a request that names something which a replica made."""
    return RoutingKey(sticky=replica_of(name), affinity=name[:_LONGEST_NAME].encode("utf-8", "surrogatepass"))


def _header_session(request: Request) -> str | None:
    return next((name for header in HEADERS if (name := request.headers.get(header))), None)


def _answer_named(path: str, fields: Mapping[str, Any]) -> str | None:
    """The answer that a request goes on from, or an item of one; only who gave it knows what it says."""
    named: Any = None
    if path == "/v1/responses":
        named = fields.get("previous_response_id") or _item_named(fields.get("input"))
    elif path == "/v1/messages":
        thread = fields.get("thread")
        named = thread.get("previous_message_id") if isinstance(thread, Mapping) else None
    return named if isinstance(named, str) else None


def _item_named(given: Any) -> Any:
    items: Iterable[Any] = given if isinstance(given, list) else ()
    references = (item for item in items if isinstance(item, Mapping) and item.get("type") == "item_reference")
    return next((item.get("id") for item in references), None)


def _before_replies(prompt: Prompt, messages: Sequence[Message]) -> int:
    """Tokens before the first reply; 0 where there is none, or where its text does not stand in the prompt as it was sent."""
    replies = (message for message in messages if message["role"] == "assistant")
    said = next((_first_words(message) for message in replies), "")
    at = prompt.transcript.text.find(said) if said else -1
    if at <= 0 or prompt.encoded is None:
        return 0
    return bisect_left(range(len(prompt.encoded.ids)), at, key=prompt.encoded.start)


def _first_words(reply: Message) -> str:
    calls = reply.get("tool_calls") or [{"function": {"name": ""}}]
    return str(reply["content"]).strip() or str(calls[0]["function"]["name"])


def _thread(root: bytes, tools: Sequence[Mapping[str, Any]] | None, messages: Sequence[Message]) -> bytes:
    """The name of the conversation up to its first question."""
    first = next((index for index, message in enumerate(messages) if message["role"] == "user"), len(messages) - 1)
    return name_conversation(root, tools, messages[: first + 1])[-1]
