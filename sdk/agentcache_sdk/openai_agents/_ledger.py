"""What the model calls of a conversation cost, and what each should have found cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from agentcache_sdk._codes import CODES, code_of_miss, sentence_of_miss
from agentcache_sdk.report import ReportRow, SessionReport
from agentcache_sdk.types import CacheReport, Finding, Location

HANDOFF = (
    "the beginning of the prompt is another agent's: its instructions or tools stand before the conversation; "
    "run_config(preamble=...) and share_tools(...) keep the beginning shared"
)
CUT = "a limit left out the oldest items, so the prompt no longer begins as the last one did"


@dataclass(frozen=True)
class Head:
    """What a prompt begins with, as digests."""

    instructions: str
    tools: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Head:
        """Of a request to either API."""
        messages = body.get("messages") or [{}]
        first = messages[0] if messages[0].get("role") in ("system", "developer") else {}
        return cls(_digest(body.get("instructions") or first.get("content")), _digest(body.get("tools") or []))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ModelCall:
    """One request, in tokens.

    Attributes:
        items: how many of the session's items its prompt ends behind.
        why: a code and a sentence, or a sentence.
    """

    items: int
    head: Head
    sent: int
    cached: int
    computed: int | None
    lost: int
    why: str = ""
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ModelCall:
        return cls(**{**value, "head": Head(**value["head"])})


@dataclass(frozen=True)
class Heard:
    """An answered model call of a session.

    Attributes:
        items: how many of the session's items the prompt ends behind.
        cut: how many of them at the beginning were left out.
    """

    body: Mapping[str, Any]
    cache: CacheReport
    items: int
    cut: int


@dataclass(frozen=True)
class Judgement:
    """A call's row, and findings with sentences about them for people (empty: the finding has its own)."""

    row: ModelCall
    told: list[tuple[Finding, str]]


@dataclass
class Ledger:
    """::

    calls            0        1            2  ...                        everything that was asked
    reachable        0        1                 the prompts that are still beginnings of the conversation
    """

    calls: list[ModelCall] = field(default_factory=list)
    reachable: list[ModelCall] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def copy(self) -> Ledger:
        return Ledger(list(self.calls), list(self.reachable), list(self.notes))

    def truncate(self, items: int, note: str) -> None:
        """The conversation has been cut to its first ``items`` items."""
        self.reachable = [call for call in self.reachable if call.items <= items]
        self.note(note)

    def note(self, text: str) -> None:
        self.notes.append(f"before call {len(self.calls)}: {text}")

    def add(self, call: ModelCall) -> None:
        self.calls.append(call)
        self.reachable.append(call)

    def judge(self, heard: Heard) -> Judgement:
        """What the call lost, and what is to be said about it.  A loss of up to a page is where a shared prefix ends."""
        cache, head = heard.cache, Head.of(heard.body)
        same_head = [call for call in self.reachable if call.head == head]
        # Of an agent that has spoken before, its own last prompt is what could be cached.
        before = (same_head or self.reachable)[-1] if self.reachable else None
        lost = max(0, before.sent - cache.cached_tokens) if before else 0
        row = ModelCall(heard.items, head, cache.prompt_tokens, cache.cached_tokens, cache.computed_tokens, lost)
        told = [(finding, "") for finding in cache.findings]
        if before is not None and lost > (cache.page_size or 0):
            broken = _broken(heard, None if before.head == head else before.head)
            by_text = [finding for finding in cache.findings if finding.code[:3] in _OF_TEXT]
            if broken is not None and (broken.surely or not by_text):
                told = [(finding, "") for finding in cache.findings if finding not in by_text]
                finding = _finding(broken, min(lost, cache.prompt_tokens - cache.cached_tokens), cache)
                told.insert(0, (finding, broken.sentence))
                row = replace(row, why=f"{broken.code} {broken.sentence}", fix=CODES[broken.code].fix)
            elif by_text:
                code = by_text[0].code
                row = replace(row, why=f"{code} {by_text[0].name}", fix=CODES[code].fix if code in CODES else "")
        if not row.why and (lost or not self.calls) and cache.miss is not None:
            row = replace(row, why=f"{cache.miss.code}{': ' + cache.miss.detail if cache.miss.detail else ''}")
        return Judgement(row, told)

    def report(self) -> SessionReport:
        rows = (
            ReportRow(index, call.sent, call.cached, call.computed, call.lost, call.why, call.fix)
            for index, call in enumerate(self.calls)
        )
        return SessionReport(tuple(rows), tuple(self.notes))


_OF_TEXT = ("AC1", "AC2", "AC3", "AC4")
"""Findings about where two prompts part."""


@dataclass(frozen=True)
class _Broken:
    """What broke the prefix, and where.

    Attributes:
        surely: known from what was sent, whatever a comparison of the texts may find as well.
    """

    code: str
    path: str | None
    sentence: str
    surely: bool = True


def _broken(heard: Heard, other_head: Head | None) -> _Broken | None:
    """Args: other_head: the head of the prompt that this one is compared with, where it is not this one's."""
    miss = heard.cache.miss
    if miss is None:
        return None
    if heard.cut:
        return _Broken("AC402", "session_settings.limit", CUT)
    if other_head is not None and miss.code in ("diverged", "cold", "below_page"):
        tools_too = other_head.tools != Head.of(heard.body).tools
        return _Broken("AC301" if tools_too else "AC401", "tools" if tools_too else "instructions", HANDOFF)
    code, sentence = code_of_miss(miss.code), sentence_of_miss(miss.code)
    if code is None or sentence is None:
        return None
    sentence = f"{sentence}{f' ({miss.detail})' if miss.detail else ''}"
    return _Broken(code, miss.path, sentence, surely=miss.code != "diverged")


def _finding(broken: _Broken, lost: int, cache: CacheReport) -> Finding:
    miss = cache.miss
    return Finding(
        code=broken.code,
        name=CODES[broken.code].name,
        severity="warning",
        confidence="confirmed",
        verdict="unavoidable" if broken.code == "AC801" else "waste",
        location=Location(path=broken.path, token=miss.at_token if miss else None),
        before=miss.was if miss else None,
        after=miss.now if miss else None,
        tokens_lost=lost,
        tokens_lost_kind="exact",
    )
