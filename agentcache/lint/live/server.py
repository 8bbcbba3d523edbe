"""Fetches a server's findings, and says clearly what is wrong when there are none to be had."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Annotated, Any, Final

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentcache.errors import AgentCacheError
from agentcache.lint.finding import Finding, Location

_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 64 << 20
_SHOWN: Final = 200
_ROUTE: Final = "/v1/findings"


Count = Annotated[int, Field(strict=True, ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e11)]
"""Since 1970; in the years to come."""


class LiveError(AgentCacheError):
    """A server that cannot be asked, or whose answer says nothing."""


class _Told(BaseModel):
    """Fields that nobody here knows are a newer server's."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Row(_Told):
    """A request with findings."""

    request_id: str
    session: str | None
    started: Seconds
    prompt_tokens: Count
    cached_tokens: Count
    miss: Mapping[str, Any] | None
    findings: tuple[Finding, ...]

    @field_validator("findings", mode="before")
    @classmethod
    def _known_fields(cls, value: object) -> object:
        return [_known(Finding, finding) for finding in value] if isinstance(value, list) else value

    @field_validator("findings", mode="after")
    @classmethod
    def _sane(cls, value: tuple[Finding, ...]) -> tuple[Finding, ...]:
        if not all(0 <= (finding.tokens_lost or 0) <= 2**53 for finding in value):
            raise ValueError("tokens_lost: expected a number of tokens")
        return value


def _known(model: type[BaseModel], value: object) -> object:
    if not isinstance(value, dict):
        return value
    known = {name: item for name, item in value.items() if name in model.model_fields}
    if model is Finding and "location" in known:
        known["location"] = _known(Location, known["location"])
    return known


class Continued(_Told):
    """A request that goes on with replies which the server did not generate."""

    request_id: str
    started: Seconds
    replies: Count
    prompt_tokens: Count
    cached_tokens: Count


class Pages(_Told):
    """Pages by state, and why pages left."""

    page_size: int = Field(ge=1)
    total: Count
    free: Count
    live: Count
    cached: Count
    pinned: Count
    evictions: Mapping[str, Count] = {}
    namespace_pages: int | None = None
    host_pages: Count = 0
    enabled: bool = True


class Process(_Told):
    """
    Attributes:
        started: Unix seconds.
    """

    model: str
    started: Seconds


class Answer(_Told):
    """What the latest requests of a key found in the cache.

    Attributes:
        requests: how many are remembered; sums are over all of them.
        misses: how many answers carried each code.
    """

    requests: Count
    with_findings: Count
    sessions: Count = 0
    prompt_tokens: Count
    cached_tokens: Count
    misses: Mapping[str, Count] = {}
    data: tuple[Row, ...]
    continued: tuple[Continued, ...] = ()
    cache: Pages
    server: Process


def fetch(url: str, api_key: str | None, limit: int, timeout_s: float = _TIMEOUT_S) -> Answer:
    """Ask the server at ``url``.

    Args:
        limit: requests with findings, at most.
        timeout_s: for the whole answer.

    Raises:
        LiveError: it cannot be reached, refuses, is another kind of server, or takes too long.
    """
    address = address_of(url)
    headers = {"accept": "application/json"}
    if api_key is not None:
        if not api_key.isascii() or not api_key.isprintable() or not api_key:
            raise LiveError("the API key has characters that no HTTP header can carry")
        headers["authorization"] = f"Bearer {api_key}"
    try:
        with (
            httpx.Client(timeout=timeout_s, follow_redirects=False) as client,
            client.stream("GET", address, params={"limit": limit}, headers=headers) as reply,
        ):
            body = _read(reply, url, timeout_s)
    except httpx.TimeoutException:
        raise LiveError(f"{url} did not answer within {timeout_s:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise LiveError(f"{url} cannot be reached: {_printable(str(error)) or type(error).__name__}") from None
    if reply.status_code != 200:
        raise LiveError(_refusal(url, reply.status_code, body, keyed=api_key is not None))
    return _parsed(url, body)


def address_of(url: str) -> str:
    """Where the findings of the server at ``url`` are: with or without a scheme, ``/v1`` or a slash at its end.

    Raises:
        LiveError: it is no address of a server.
    """
    given = url.strip()
    if "://" not in given:
        given = f"http://{given}"
    try:
        parsed = httpx.URL(given)
    except (httpx.InvalidURL, ValueError) as error:
        raise LiveError(f"got {url!r}, expected the URL of a server: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise LiveError(f"got {url!r}, expected the URL of a server, such as http://127.0.0.1:8100")
    path = parsed.path.rstrip("/").removesuffix(_ROUTE).removesuffix("/v1")
    return str(parsed.copy_with(path=path + _ROUTE, query=None, fragment=None))


def _read(reply: httpx.Response, url: str, timeout_s: float) -> bytes:
    """
    Raises:
        LiveError: it is too long, or does not end in time.
    """
    deadline = time.monotonic() + timeout_s
    pieces, size = [], 0
    for piece in reply.iter_bytes():
        size += len(piece)
        if size > _MOST_BYTES:
            raise LiveError(f"{url} answers more than {_MOST_BYTES >> 20} MiB: is it an agentcache server?")
        if time.monotonic() > deadline:
            raise LiveError(f"{url} did not answer within {timeout_s:g} s")
        pieces.append(piece)
    return b"".join(pieces)


def _refusal(url: str, status: int, body: bytes, *, keyed: bool) -> str:
    if status in (401, 403):
        return f"{url} does not know this API key" if keyed else f"{url} needs an API key"
    if status in (404, 405):
        return f"{url} has no {_ROUTE}: is it an agentcache server, and not an older one?"
    said = _said(body)
    return f"{url} answered {status}" + (f": {said}" if said else ", expected 200")


def _said(body: bytes) -> str:
    """The error's own words, where it has any."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return _printable(message) if isinstance(message, str) else ""


def _parsed(url: str, body: bytes) -> Answer:
    try:
        return Answer.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise LiveError(
            f"{url} answered something else than findings ({place}: {_printable(first['msg'])}): is it an agentcache server?"
        ) from None


def _printable(text: str) -> str:
    """One line, cut, without what could steer a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)[:_SHOWN].strip()
