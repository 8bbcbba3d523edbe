"""AC501 and AC502: where requests that begin alike stop being equal, and page boundaries do not fall."""

from __future__ import annotations

from collections.abc import Sequence

from agentcache.lint.finding import Finding
from agentcache.server.findings.prompt_text import content_of, span_of
from agentcache.server.findings.spot import Basis, Spot, lost
from agentcache.server.misses import Asked, Places
from agentcache.server.share_points import SharePoint


def sharing_finding(points: Sequence[SharePoint], places: Places, cached: int, basis: Basis) -> Finding | None:
    """The place at which this prompt, now, became one more that parts from the others.

    What lies before ``cached`` was said when the conversation began; and only its beginning is meant to be shared: forks and
    second choices part where they part.
    """
    asked = places.asked
    point = next((point for point in points if point.token >= cached), None)
    if point is None or not asked.messages or asked.prompt.encoded is None:
        return None
    index, _ = places.message_at(asked.prompt.encoded.start(point.token))
    if index is None or any(message.get("role") == "assistant" for message in asked.messages[: index + 1]):
        return None
    ended = _shared_end(asked, index, point.token, basis.page_size)
    if ended is None:
        return None
    token, spot, place = ended
    others, tail = point.sharers(token), token % basis.page_size
    if not others or not tail:
        return None
    return _short(token, others, spot, basis) if token < basis.page_size else _unaligned(spot, others, place, basis)


def _shared_end(asked: Asked, index: int, token: int, page_size: int) -> tuple[int, Spot, str] | None:
    """The token at which the shared part ends, the place in the body, and words for it.

    ::

        system text ⟨user⟩ Fix the parser         two questions that begin with the same words do not share them on purpose:
        system text ⟨user⟩ Fix the lexer          within a page of its beginning, the message's beginning counts
                            ^       ^
                        counts      parting
    """
    encoded = asked.prompt.encoded
    assert encoded is not None
    start, end = span_of(asked.prompt.transcript.text, asked.messages[index])
    first = token
    while first and token - first < page_size and encoded.start(first) > start:
        first -= 1
    if token - first < page_size and encoded.start(first) <= start:
        if not index:
            return None  # what the template alone writes is nobody's to change
        path = f"messages[{index - 1}].content"
        return first, Spot(first, path, len(content_of(asked.messages[index - 1]))), f"the end of {path}"
    char = encoded.start(token) - start
    if not 0 < char < end - start:
        return None
    path = f"messages[{index}].content"
    return token, Spot(token, path, char), f"character {char} of {path}"


def _unaligned(spot: Spot, others: int, place: str, basis: Basis) -> Finding:
    token, size = spot.token, basis.page_size
    tail = token % size
    return Finding(
        **{**basis.of("AC501", spot), "help": _padding(size - tail, tail, place)},
        severity="info",
        shared_by=others + 1,
        **lost(tail * others, "upper_bound"),
        message=(
            f"{others + 1} prompts share their first {token} tokens, {tail} more than whole pages of {size}: each holds a page "
            "of its own for those, and a cache that reuses only whole pages computes them again"
        ),
    )


def _padding(more: int, fewer: int, place: str) -> str:
    return f"{more} more tokens before {place} (or {fewer} fewer) would end the shared part with a page"


def _short(token: int, others: int, spot: Spot, basis: Basis) -> Finding:
    return Finding(
        **basis.of("AC502", spot),
        severity="info",
        shared_by=others + 1,
        **lost(token * others, "upper_bound"),
        message=(
            f"{others + 1} prompts share only their first {token} tokens, less than a page of {basis.page_size}: "
            "a cache that reuses only whole pages reuses nothing"
        ),
    )
