"""What became of requests, and what share of their prompts was cached over time, from the journal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

from agentcache.server.watch.journal import RequestRecord

BUCKET_S = 5
BUCKETS = 60
_REQUESTS = 200


def record_json(record: RequestRecord) -> dict[str, Any]:
    return {
        "id": record.request_id,
        "answer": record.answer_id,
        "route": record.route,
        "session": record.session,
        "streamed": record.streamed,
        "started": round(record.started, 3),
        "first_token_s": None if record.first_token_s is None else round(record.first_token_s, 4),
        "total_s": round(record.total_s, 4),
        "status": record.status,
        "error": record.error,
        "finish_reasons": list(record.finish_reasons),
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "computed_tokens": record.computed_tokens,
        "completion_tokens": record.completion_tokens,
        "miss": record.miss,
        "findings": list(record.findings),
    }


def latest_json(records: Iterable[RequestRecord]) -> list[dict[str, Any]]:
    """The newest first."""
    return [record_json(record) for record in islice(records, _REQUESTS)]


def history_json(records: Iterable[RequestRecord], now: float) -> dict[str, Any]:
    """Prompt and cached tokens of the requests that came to their end in each interval of the last minutes, the oldest first.

    Intervals begin at multiples of ``interval_s``, so that a client can go on where it was.
    """
    last = math.floor(now / BUCKET_S)
    first = last - BUCKETS + 1
    buckets = [[0, 0, 0] for _ in range(BUCKETS)]
    for record in records:
        place = math.floor((record.started + record.total_s) / BUCKET_S) - first
        if 0 <= place < BUCKETS and record.measured and record.prompt_tokens:
            bucket = buckets[place]
            bucket[0] += 1
            bucket[1] += record.prompt_tokens
            bucket[2] += record.cached_tokens
    return {"interval_s": BUCKET_S, "from": first * BUCKET_S, "buckets": buckets}
