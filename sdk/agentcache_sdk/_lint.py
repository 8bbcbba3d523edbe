"""``client.lint``: what one request would lose, counted by the server's own template and tokenizer.

A place in a message becomes a token by changing the character there and rendering again::

    as it is    [ system ... 12:30 ... )[ tools )[ user ... )
    changed     [ system ... x2:30 ... )[ tools )[ user ... )
    in common   [ ........... )
    lost                      [ .............................. )    should the place say something else next time
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentcache_sdk import _calls
from agentcache_sdk._calls import Steps
from agentcache_sdk._codes import code_name
from agentcache_sdk._look import ClientLook
from agentcache_sdk._session_calls import is_missing_route
from agentcache_sdk._static import Prompt, beside, common_length, leading_system, served_model, static_part
from agentcache_sdk.alignment import LintResult
from agentcache_sdk.cache_warnings import code_prefixes
from agentcache_sdk.errors import AgentCacheError, APIError, BadRequest
from agentcache_sdk.tools import Tool, tool_schemas
from agentcache_sdk.types import Finding, Fix, Location

_PLACES = 32
"""Findings whose place is rendered; each costs a request."""
_RENDERED = ("chat_template_kwargs", "cache_salt")
"""Options of a chat request that its prompt depends on, beside messages, tools and model: a salt has replies of its own."""
_SHAPE = ("type", "role")
"""Keys whose values templates compare with words of their own."""


@dataclass(frozen=True)
class LintInput:
    """A chat request, as the user gave it."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Tool] | None
    options: Mapping[str, Any]
    ignore: str | Iterable[str] = ()
    """Codes, or beginnings of codes."""

    def request(self) -> Request:
        """
        Raises:
            TypeError, ValueError: messages or tools that are none, no message, or a code that is none.
        """
        options = dict(self.options)
        messages = _calls.with_volatile(self.messages, options.pop("volatile", None))
        plain = tuple(_calls.message_list(messages))
        if not plain:
            raise ValueError("messages: got none, expected at least one")
        return Request(plain, tuple(tool_schemas(self.tools or ())), options, code_prefixes("ignore", self.ignore))


@dataclass(frozen=True)
class Request:
    """The same, checked."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]
    options: Mapping[str, Any]
    ignore: tuple[str, ...]

    @property
    def prompt(self) -> Prompt:
        rendered = {name: self.options[name] for name in _RENDERED if self.options.get(name)}
        return Prompt(self.messages, beside(self.tools, self.options.get("model"), **rendered))


def linted(given: LintInput, look: ClientLook) -> Steps[LintResult]:
    """Findings of one request.  Nothing is generated, and neither side keeps anything of it.

    Args:
        look: what the client knows of the requests that it sent; what only an answer could confirm is left out.

    Raises:
        AgentCacheError: the server cannot tokenise, cannot be reached, or refuses the request.
    """
    request = given.request()
    try:
        return (yield from _linted(request, look))
    except APIError as error:
        if not is_missing_route(error):
            raise
        raise AgentCacheError("lint: this server does not tokenise (it has no /tokenize)") from error


def _linted(request: Request, look: ClientLook) -> Steps[LintResult]:
    served = yield from served_model(request.options.get("model"))
    page_size = None if served is None else served.page_size
    ids = yield from request.prompt.rendered()
    findings: list[Finding] = []
    # A glance is only remembered when its request is sent.
    for finding in look.glance(request.messages, request.tools, request.options).findings:
        if finding.code.startswith(request.ignore):
            continue
        placed = finding
        if len(findings) < _PLACES:
            placed = yield from _placed(finding, request, ids, page_size)
        findings.append(placed)
    system = leading_system(request.messages)
    static = yield from static_part(replace(request.prompt, messages=system))
    # The request itself may part earlier from what others with its system text say: it need not begin with a user's text.
    length = common_length(static.ids, ids)
    if page_size and (system or request.tools):
        alignment = _alignment(length, page_size, _end_of_static(system))
        findings += [finding for finding in alignment if not finding.code.startswith(request.ignore)]
    findings.sort(key=lambda f: len(ids) if f.location.token is None else f.location.token)
    tail = length % page_size if page_size else 0
    return LintResult(tuple(findings), len(ids), length, tail, page_size, None if served is None else served.id)


def _end_of_static(system: Sequence[Mapping[str, Any]]) -> str:
    return f"messages[{len(system) - 1}].content" if system else "tools"


def _alignment(static: int, page_size: int, path: str) -> list[Finding]:
    """AC501 or AC502, where the static part does not end with a page."""
    if static % page_size == 0:
        return []
    code = "AC502" if static < page_size else "AC501"
    finding = Finding(
        code=code,
        name=code_name(code),
        severity="info",
        confidence="confirmed",
        verdict="waste",
        location=Location(path=path, token=static, page=static // page_size),
        tokens_lost=static % page_size,
        # A cache of whole pages computes them again for every conversation; this server copies the equal beginning.
        tokens_lost_kind="upper_bound",
        fix=Fix(applicability="display"),
    )
    return [finding]


def _placed(finding: Finding, request: Request, ids: list[int], page_size: int | None) -> Steps[Finding]:
    """``finding`` with the token that its place is, and all that is behind it; as it was where that cannot be told."""
    changed = _changed(request, finding.location)
    if changed is None:
        return finding
    try:
        other = yield from changed.prompt.rendered()
    except BadRequest:
        return finding  # the template does not take it so
    token = common_length(ids, other)
    page = None if page_size is None else token // page_size
    location = finding.location.model_copy(update={"token": token, "page": page})
    # How long the request was that another finding compares with is not known here.
    kind = "exact" if finding.code.startswith("AC1") else "upper_bound"
    lost = {"location": location, "tokens_lost": len(ids) - token, "tokens_lost_kind": kind}
    return finding.model_copy(update=lost)


def _changed(request: Request, place: Location) -> Request | None:
    """``request`` with another character at ``place``; ``None`` where the place is not one in its messages or tools."""
    keys = _keys(place.path or "")
    if not keys or keys[0] not in ("messages", "tools"):
        return None
    body: dict[str, Any] = {"messages": list(request.messages), "tools": list(request.tools)}
    try:
        changed = _with(body, keys, lambda value: _other(value, place.char or 0))
    except (KeyError, IndexError, TypeError):
        return None
    return replace(request, messages=tuple(changed["messages"]), tools=tuple(changed["tools"]))


def _keys(path: str) -> list[str | int]:
    """``messages[0].content`` as ``["messages", 0, "content"]``."""
    return [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]


def _with(value: Any, keys: Sequence[str | int], change: Callable[[Any], Any]) -> Any:
    """A copy of ``value`` with the part at ``keys`` changed."""
    if not keys:
        return change(value)
    copy: Any = dict(value) if isinstance(value, Mapping) else list(value)
    copy[keys[0]] = _with(copy[keys[0]], keys[1:], change)
    return copy


def _other(value: Any, char: int) -> Any:
    """``value`` with another character at ``char``, counted through the texts of parts; of an object, with other texts."""
    if isinstance(value, str):
        char = min(char, max(0, len(value) - 1))
        return value[:char] + _another(value[char : char + 1]) + value[char + 1 :]
    if isinstance(value, Mapping):
        return {key: item if key in _SHAPE else _other(item, 0) for key, item in value.items()}
    if isinstance(value, list):
        return _other_part(value, char) if _is_parts(value) else [_other(item, 0) for item in value]
    return value


def _is_parts(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in value)


def _other_part(parts: list[dict[str, Any]], char: int) -> list[dict[str, Any]]:
    place = next(
        (i for i in range(len(parts)) if char < sum(len(part["text"]) for part in parts[: i + 1])), len(parts) - 1
    )
    char -= sum(len(part["text"]) for part in parts[:place])
    return [*parts[:place], {**parts[place], "text": _other(parts[place]["text"], char)}, *parts[place + 1 :]]


def _another(character: str) -> str:
    """Of the same kind, so that nothing before it is tokenised otherwise than it would be next time."""
    if character.isdigit():
        return "7" if character != "7" else "4"
    if character.isalpha():
        return "q" if character.lower() != "q" else "k"
    return "x"
