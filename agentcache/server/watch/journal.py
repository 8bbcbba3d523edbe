"""What became of each request: one record when it is over, for whoever asked to be told, and the latest of them to look at."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentcache.request import SamplingParams

if TYPE_CHECKING:
    from agentcache.server.watch.exchanges import Exchange

logger = logging.getLogger(__name__)

_KEPT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request that asked for generation, after its end.

    Attributes:
        request_id: as ``x-request-id`` names it.
        answer_id: the ``id`` of the answer; empty where there was none.
        route: path of the route.
        owner: whose it is (``Home.owner``): records are shown to that key only.
        started: Unix seconds.
        first_token_s, total_s: seconds from ``started``; no first token where none was generated.
        status: HTTP status of the answer; 499 where the client hung up.
        error: code of the error that ended it, also in the middle of a stream.
        finish_reasons: one a choice.
        cached_tokens, computed_tokens, completion_tokens: as the answer has them; 0 unless ``measured``.
        measured: whether every choice came to its end, and with it the figures of what it cost.
        miss, findings: as the answer has them.
        foreign_replies: earlier replies in what was not cached that were not generated here.
        queue_s: seconds from ``started`` until it was first admitted, where that is known.
        exchange: the HTTP request that it answers (``request.state.exchange``); learns of this record by ``note``.
    """

    request_id: str
    answer_id: str
    route: str
    model: str
    owner: bytes
    session: str | None
    streamed: bool
    started: float
    first_token_s: float | None
    total_s: float
    status: int
    error: str | None
    finish_reasons: tuple[str, ...]
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    completion_tokens: int
    miss: dict[str, Any] | None
    params: SamplingParams | None
    findings: tuple[dict[str, Any], ...] = ()
    foreign_replies: int = 0
    queue_s: float | None = None
    exchange: Exchange | None = None
    measured: bool = True


class Journal:
    """Used on the event loop only."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._latest: deque[RequestRecord] = deque(maxlen=kept)

    def note(self, record: RequestRecord) -> None:
        """Once a request, before its last byte goes out."""
        if record.exchange is not None:
            record.exchange.record = record
        self._latest.append(record)

    def latest(self, owner: bytes | None = None) -> Iterator[RequestRecord]:
        """The newest first; of one owner, or of all."""
        return (record for record in reversed(self._latest) if owner is None or record.owner == owner)
