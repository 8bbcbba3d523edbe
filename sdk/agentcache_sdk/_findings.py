"""What a turn's report says about the turn before it."""

from __future__ import annotations

from agentcache_sdk._codes import CODES, code_of_miss, sentence_of_miss
from agentcache_sdk.types import CacheReport, Finding, Location


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
    miss = report.miss
    code = None if miss is None else code_of_miss(miss.code)
    if lost <= 0 or miss is None or code is None:
        return None
    finding = Finding(
        code=code,
        name=CODES[code].name,
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
    return finding, f"{sentence_of_miss(miss.code)}{f' ({miss.detail})' if miss.detail else ''}"
