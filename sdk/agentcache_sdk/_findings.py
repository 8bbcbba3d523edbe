"""The client's own look at messages and results: what it can know without a tokenizer.

Small on purpose: ``agentcache lint`` is the thorough one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcache_sdk.types import CacheReport, Finding, Location, Miss

CHARS_PER_TOKEN = 4
"""A usual figure for English and code; only ever used for losses that are marked as estimates."""

_PATTERNS = (
    ("AC101", "volatile-time", re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?|\b\d{1,2}:\d\d:\d\d\b")),
    (
        "AC102",
        "volatile-id",
        re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"),
    ),
)
VOLATILE_ADVICE = "it looks as if it changes from call to call: pass it as volatile={...}, which always goes last"

# What a later turn of an append-only session means when the server could not reuse the turn before it.  Misses that
# are absent here say nothing about the prompt: another request was computing the same pages, or the cache is off.
_BREAKS = {
    "cold": (
        "AC803",
        "routed-elsewhere",
        "the server does not have what it computed a turn ago: was it restarted, or is it another?",
    ),
    "evicted": ("AC801", "evicted", "the server needed the pages for other work"),
    "expired": ("AC802", "lease-expired", "the lease on the pages ran out"),
    "diverged": ("AC401", "history-edited", "the prompt is not a continuation of the previous turn's"),
    "salt": ("AC602", "cache-salt", "the turn went out under another cache salt or API key"),
    "model": ("AC601", "model-changed", "the turn was served by another model"),
    "template": ("AC702", "not-append-only", "the chat template rewrites earlier text when messages are added"),
}


def volatile_findings(messages: Sequence[Mapping[str, Any]], *, whole_history: bool) -> Iterator[Finding]:
    """Time stamps and UUIDs in system messages, with an estimate of the tokens that stand behind them.

    Args:
        whole_history: count the messages after the system text too.  Right for a caller who builds the system text
            anew for every call; a session's system text never changes while it lives.
    """
    for index, message in enumerate(messages):
        text = message.get("content")
        if message.get("role") != "system" or not isinstance(text, str):
            continue
        behind = sum(len(str(m.get("content") or "")) for m in messages[index + 1 :]) if whole_history else 0
        for code, name, pattern in _PATTERNS:
            if match := pattern.search(text):
                yield Finding(
                    code=code,
                    name=name,
                    severity="warning",
                    confidence="suspected",
                    verdict="waste",
                    location=Location(path=f"messages[{index}].content", char=match.start()),
                    before=match.group(),
                    tokens_lost=(len(text) - match.start() + behind) // CHARS_PER_TOKEN,
                    tokens_lost_kind="estimate",
                )


def lost_tokens(previous_prompt: int, report: CacheReport) -> int:
    """Tokens of the previous turn's prompt that this turn had to compute again.

    ::

        previous prompt  [ ................................ )
        cached now       [ ............. )
        lost                             [ ................ )
    """
    return max(0, previous_prompt - report.cached_tokens)


def break_finding(previous_prompt: int, report: CacheReport) -> tuple[Finding, str] | None:
    """A finding, and a sentence for people, when a session's turn reused far less than the turn before it sent.

    Up to a page less is the ordinary end of a shared prefix on a server that reuses whole pages only.
    """
    lost = lost_tokens(previous_prompt, report) - (report.page_size or 0)
    if lost <= 0 or report.miss is None or report.miss.code not in _BREAKS:
        return None
    code, name, sentence = _BREAKS[report.miss.code]
    miss: Miss = report.miss
    finding = Finding(
        code=code,
        name=name,
        severity="warning",
        confidence="confirmed",
        verdict="unavoidable" if code == "AC801" else "waste",
        location=Location(path=miss.path, token=miss.at_token),
        before=miss.was,
        after=miss.now,
        tokens_lost=lost,
        tokens_lost_kind="exact",
        miss=miss.model_dump(exclude_none=True),
    )
    return finding, f"{sentence}{f' ({miss.detail})' if miss.detail else ''}"
