"""Which of our reasons for a miss the provider has a word for."""

from __future__ import annotations

import pytest

from agentcache.server.anthropic.diagnostics import refined

NOT_FOUND = {"cache_miss_reason": {"type": "previous_message_not_found"}}
CHANGED = {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 7}}
MODEL = {"cache_miss_reason": {"type": "model_changed", "cache_missed_input_tokens": 9}}
UNAVAILABLE = {"cache_miss_reason": {"type": "unavailable"}}


@pytest.mark.parametrize(
    ("found", "code", "told"),
    [
        *[
            (None, code, None)
            for code in (None, "cold", "below_page", "evicted", "expired", "in_flight", "disabled", "diverged")
        ],
        *[(CHANGED, code, CHANGED) for code in (None, "diverged", "model", "salt", "template", "evicted")],
        (None, "model", MODEL),
        (NOT_FOUND, "model", MODEL),
        (NOT_FOUND, "cold", NOT_FOUND),
        (None, "salt", UNAVAILABLE),
        (None, "template", UNAVAILABLE),
    ],
)
def test_the_cache_adds_what_comparing_two_requests_cannot_tell(found, code, told):
    assert refined(found, None if code is None else {"code": code}, 9) == told
