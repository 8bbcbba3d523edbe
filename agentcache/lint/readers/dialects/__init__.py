"""APIs that requests are written for, each brought to the body of a chat completion as the server does it.

::

    body ── detect ──► chat | responses | anthropic | completions ──► Translated(body, places) ──► Record
    answer ── read_answer ──► reply, usage, ids                                                     ▲
                                └──────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentcache.errors import RequestError
from agentcache.lint.readers.dialects.answers import Answer, read_answer
from agentcache.lint.readers.dialects.anthropic import anthropic_request
from agentcache.lint.readers.dialects.body import Given, Translated
from agentcache.lint.readers.dialects.chain import ResponseChain
from agentcache.lint.readers.dialects.chat import chat_request
from agentcache.lint.readers.dialects.completions import completion_request
from agentcache.lint.readers.dialects.detect import dialect_of
from agentcache.lint.readers.dialects.names import ignored_in, scope_of, session_of
from agentcache.lint.readers.dialects.responses import responses_request
from agentcache.lint.records import Record, Unreadable

__all__ = ["Sent", "record_of", "to_record"]


@dataclass(frozen=True, slots=True)
class Sent:
    """A request body and what is known of its sending.

    Attributes:
        prefix: where the body stands in the record: empty, or ``body.``.
        url: address or path that it was sent to, if known: tells dialects apart.
        response: what was answered, as JSON: a whole answer, its body, or the chunks of a stream.
        prompt: path of the prompt, of a completion.
    """

    body: Mapping[str, Any]
    prefix: str = ""
    url: str | None = None
    headers: Mapping[str, str] | None = None
    response: object = None
    prompt: str = "prompt"


def to_record(
    value: Mapping[str, Any],
    file: str,
    line: int,
    *,
    prefix: str = "",
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    response: object = None,
) -> Record | Unreadable:
    """A request body of any dialect as a record, or the reason why it is none; see ``Sent``.

    Args:
        value: the request's body.
        line: which record of the file it is, from 1.
    """
    return record_of(Sent(value, prefix, url, headers, response), file, line, ResponseChain())


def record_of(sent: Sent, file: str, line: int, chain: ResponseChain) -> Record | Unreadable:
    """The same for one request of a file.

    Args:
        chain: the responses of the file so far; this request's is added.
    """
    try:
        found = _translated(sent, chain)
        answer = read_answer(sent.response)
    except RequestError as error:
        return Unreadable(file, line, f"{sent.prefix}{error}")
    except RecursionError:
        return Unreadable(file, line, f"{sent.prefix or 'the body '}is nested too deep to be read")
    if found.dialect == "responses" and answer is not None:
        _keep(found, answer, sent, chain)
    return _record(found, answer, sent, Record(file, line, found.body))


def _translated(sent: Sent, chain: ResponseChain) -> Translated:
    given = Given(sent.body, sent.prefix)
    match dialect_of(sent.body, sent.url, sent.headers):
        case "anthropic":
            return anthropic_request(given)
        case "responses":
            return responses_request(given, chain)
        case "completions":
            return completion_request(given, sent.prompt)
    return chat_request(given)


def _keep(found: Translated, answer: Answer, sent: Sent, chain: ResponseChain) -> None:
    if answer.id is None or answer.reply is None or answer.reply.message is None:
        return
    previous = sent.body.get("previous_response_id")
    before = previous if isinstance(previous, str) else None
    chain.keep(answer.id, before, [*found.said, answer.reply.message], [*found.items, *answer.items])


def _record(found: Translated, answer: Answer | None, sent: Sent, record: Record) -> Record:
    prompt_ids = found.prompt_ids
    if prompt_ids is None and answer is not None:
        prompt_ids = answer.prompt_ids
    return replace(
        record,
        places=found.places,
        session=session_of(sent.body, sent.headers),
        scope=scope_of(sent.body),
        prompt_ids=prompt_ids,
        reply=None if answer is None else answer.reply,
        usage=None if answer is None else answer.usage,
        dialect=found.dialect,
        ignored=ignored_in(sent.body),
    )
