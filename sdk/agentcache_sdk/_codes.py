"""What warnings can say: every code with its name and one sentence of advice.

The codes are those of ``agentcache lint`` and of the findings in a server's answers; where the linter has the rule, the
name here is the rule's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Code:
    """One kind of finding.

    Attributes:
        code: ``AC`` and three digits, the stable interface; the first digit is the group.
        name: two or three words with hyphens, stable too.
        fix: what to do about it, in one sentence.
    """

    code: str
    name: str
    fix: str


_TABLE = (
    (
        "AC101",
        "volatile-time",
        "give the time in volatile={...} (or at the end of the newest message) and keep it out of everything before",
    ),
    (
        "AC102",
        "volatile-id",
        "keep ids of runs, requests and temporary paths out of the shared text, or give them in volatile={...}",
    ),
    (
        "AC103",
        "varying-slot",
        "move the part that varies behind everything that does not, into volatile={...} or the newest message",
    ),
    (
        "AC104",
        "environment-block",
        "give facts about the machine and the working tree behind the instructions: in volatile={...} or the first user message",
    ),
    (
        "AC105",
        "user-text-first",
        "put the instructions that all requests share first, and what is particular to a user or a task behind them",
    ),
    ("AC106", "retrieved-text-first", "put retrieved documents behind the instructions, next to the question"),
    ("AC201", "schema-key-order", "write a tool's schema once and send that text again, keys and numbers as they were"),
    ("AC202", "tool-order", "send the tools in one fixed order"),
    ("AC203", "set-order", "sort what comes out of a set before it is written into a prompt"),
    ("AC204", "white-space", "write blanks and line ends in one way; strip and join texts in one place only"),
    ("AC205", "unicode-form", "bring texts to one Unicode form (NFC) where they enter the program"),
    ("AC206", "json-escapes", "write JSON in one way, with the same setting of ensure_ascii everywhere"),
    (
        "AC207",
        "call-arguments-rewritten",
        "replay a call's arguments as the very text that was generated, without parsing and writing them again",
    ),
    ("AC208", "call-id-regenerated", "replay the ids that the reply's calls came with, and answer under the same ones"),
    ("AC301", "tool-set-changed", "offer the same tools for the whole conversation, and add new ones with add_tools"),
    ("AC302", "tool-schema-changed", "keep a tool's schema, descriptions included, free of everything that changes"),
    (
        "AC303",
        "reply-format-changed",
        "keep tool_choice and response_format the same for a conversation where the template writes them into the prompt",
    ),
    ("AC401", "history-edited", "append what is new, and leave what was sent before as it was sent"),
    (
        "AC402",
        "history-dropped",
        "keep the old messages, or shorten the history rarely and in one go (a session's compact)",
    ),
    ("AC403", "history-compacted", "nothing: a shorter history costs its new beginning once; compact rarely"),
    ("AC404", "inserted-before-tail", "add messages at the end only"),
    ("AC405", "reasoning-stripped", "replay replies with the reasoning that they came with, or use a session"),
    (
        "AC501",
        "unaligned-share-point",
        'pad the shared part to a page boundary (pad="system"), or leave it if it is small',
    ),
    ("AC502", "prefix-below-page", "move more of what all requests share to the beginning, so that it fills a page"),
    ("AC503", "fork-inside-page", "fork after a turn's end rather than inside a page, or accept the copy of that page"),
    ("AC601", "model-changed", "stay with one model for a conversation; each computes its own cache"),
    ("AC602", "cache-salt-changed", "send a conversation under one cache salt and one API key"),
    ("AC603", "adapter-changed", "stay with one adapter for a conversation"),
    (
        "AC604",
        "template-option-changed",
        "keep options that the chat template renders the same from request to request",
    ),
    ("AC701", "template-clock", "use a chat template without a clock, and give the date in volatile={...}"),
    (
        "AC702",
        "not-append-only",
        "use a session, or a chat template that leaves earlier text as it is when messages are added",
    ),
    ("AC703", "retokenised-differently", "use a session, which keeps replies as the tokens that were generated"),
    ("AC704", "image-bytes-changed", "send an image as the same bytes each time, without encoding it again"),
    ("AC705", "control-tokens-in-text", "take the template's control tokens out of texts before they are sent"),
    (
        "AC801",
        "evicted",
        "pin the session, announce long tools with waiting(...), or give the server more pages (--host-pages, --disk-dir)",
    ),
    ("AC802", "lease-expired", "ask for a longer ttl, or say how long a tool runs with waiting(..., expect_s=...)"),
    (
        "AC803",
        "routed-elsewhere",
        "send a conversation to the server that served its last turn, and keep that one running",
    ),
    ("AC804", "never-cached", "prewarm the common beginning before the requests that share it"),
    ("AC901", "unused-suppression", "remove the suppression: nothing is found there any more"),
    ("AC902", "unknown-code", "correct the code: there is no rule of that name"),
    ("AC903", "unreadable-record", "mend the record, or the program that wrote it"),
    ("AC904", "usage-not-reported", "have the server report usage, so that what was cached can be compared"),
)

CODES: Mapping[str, Code] = MappingProxyType({row[0]: Code(*row) for row in _TABLE})
"""Every code, in order."""


@dataclass(frozen=True)
class _Broken:
    """What a miss in a later turn of an append-only conversation means."""

    code: str
    sentence: str


# Misses that are absent here say nothing about the prompt: another request was computing the same pages, the prompt is
# shorter than a page, or the cache is off.
_MISSES: Mapping[str, _Broken] = MappingProxyType(
    {
        "cold": _Broken(
            "AC803", "the server does not have what it computed a turn ago: was it restarted, or is it another?"
        ),
        "evicted": _Broken("AC801", "the server needed the pages for other work"),
        "expired": _Broken("AC802", "the lease on the pages ran out"),
        "diverged": _Broken("AC401", "the prompt is not a continuation of the previous turn's"),
        "salt": _Broken("AC602", "the turn went out under another cache salt or API key"),
        "model": _Broken("AC601", "the turn was served by another model"),
        "template": _Broken("AC702", "the chat template rewrites earlier text when messages are added"),
    }
)


def code_of_miss(miss_code: str) -> str | None:
    """The code of a miss (``evicted``, ``cold`` ...) in a later turn; ``None`` for one that nobody can do anything about."""
    broken = _MISSES.get(miss_code)
    return None if broken is None else broken.code


def sentence_of_miss(miss_code: str) -> str | None:
    """The same in words, for people."""
    broken = _MISSES.get(miss_code)
    return None if broken is None else broken.sentence


def code_name(code: str) -> str | None:
    """``volatile-time`` for ``AC101``; ``None`` for a code that this version does not know."""
    known = CODES.get(code)
    return None if known is None else known.name
