"""The static part of an agent's prompts, measured with the server's own template and tokenizer.

Static is what every conversation with one system text and one list of tools begins with, up to the first user text.
Renderings that differ only in that text have exactly this part in common::

    [ system text, tools, role markers ... )What ...
    [ system text, tools, role markers ... )7 files ...
    [ system text, tools, role markers ... )(see ...
    [ static ............................. )
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache_sdk import _calls
from agentcache_sdk._calls import Call, Steps
from agentcache_sdk._session_calls import is_missing_route
from agentcache_sdk.errors import APIError
from agentcache_sdk.types import Model, Tokens, Wire

Message = Mapping[str, Any]
USER_TEXTS = ("What is this?", "7 files", "(see below)")
"""A word, a digit and a sign: where a template writes no control token before the user's text, one of them merges with what
stands there if anything does, and the static part ends before it."""


class _Rendered(Wire):
    token_ids: list[int]


@dataclass(frozen=True)
class Prompt:
    """What is rendered: messages, and what the template gets beside them (``tools``, ``model`` ...)."""

    messages: tuple[Message, ...]
    beside: Mapping[str, Any]

    @property
    def _body(self) -> dict[str, Any]:
        return {"messages": list(self.messages), **{key: value for key, value in self.beside.items() if value}}

    def ids(self) -> Steps[list[int]]:
        """As the model would be given them, the generation prompt included."""
        call = Call("POST", "/tokenize", lambda reply: reply.parse(Tokens, reply.body()), self._body)
        tokens: Tokens = yield call
        return tokens.tokens

    def rendered(self) -> Steps[list[int]]:
        """The same, with the replies among the messages as they were generated, where the server knows them."""
        path = f"{_calls.CHAT}/render"
        call = Call("POST", path, lambda reply: reply.parse(_Rendered, reply.body()), self._body)
        try:
            rendered: _Rendered = yield call
        except APIError as error:
            if not is_missing_route(error):
                raise
            return (yield from self.ids())
        return rendered.token_ids

    def said(self, *texts: str) -> Prompt:
        """The conversation going on with ``texts``, the user's and the assistant's by turns."""
        roles = ("user", "assistant")
        new = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
        return Prompt((*self.messages, *new), self.beside)


@dataclass(frozen=True)
class StaticPart:
    """``ids`` of it, and what follows it for each of ``USER_TEXTS``."""

    ids: tuple[int, ...]
    behind: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.ids)


def leading_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The system (or developer) messages that ``messages`` begin with."""
    roles = [message.get("role") for message in messages]
    end = next((index for index, role in enumerate(roles) if role not in ("system", "developer")), len(roles))
    return tuple(messages[:end])


def beside(tools: Sequence[Mapping[str, Any]] | None, model: str | None, **more: Any) -> dict[str, Any]:
    """Fields that belong to a prompt beside its messages; those that are not given are left out."""
    return {"tools": list(tools or ()), "model": model, **more}


def static_part(head: Prompt, *, replies: bool = False) -> Steps[StaticPart]:
    """What all conversations that begin with ``head`` and go on with a user's text have in common.

    Args:
        replies: there may be some in ``head`` that the server generated.
    """
    prompts: list[list[int]] = []
    for text in USER_TEXTS:
        said = head.said(text)
        ids = yield from said.rendered() if replies else said.ids()
        prompts.append(ids)
    common = min(common_length(prompts[0], other) for other in prompts[1:])
    return StaticPart(tuple(prompts[0][:common]), tuple(tuple(ids[common:]) for ids in prompts))


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def served_model(name: str | None) -> Steps[Model | None]:
    """The model that a request naming ``name`` gets, as the server describes it; ``None`` where it describes none."""
    try:
        models: list[Model] = yield _calls.models()
    except APIError as error:
        if not is_missing_route(error):
            raise
        return None
    return next((model for model in models if model.id == name), models[0] if models else None)
