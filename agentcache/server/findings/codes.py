"""Names of the codes that a server can give, and what to do about each, in words for every kind of client."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "AC101": "volatile-time",
        "AC102": "volatile-id",
        "AC103": "varying-slot",
        "AC201": "schema-key-order",
        "AC202": "tool-order",
        "AC204": "white-space",
        "AC205": "unicode-form",
        "AC206": "json-escapes",
        "AC301": "tool-set-changed",
        "AC302": "tool-schema-changed",
        "AC401": "history-edited",
        "AC402": "history-dropped",
        "AC403": "history-compacted",
        "AC404": "inserted-before-tail",
        "AC405": "reasoning-stripped",
        "AC501": "unaligned-share-point",
        "AC502": "prefix-below-page",
        "AC503": "fork-inside-page",
        "AC601": "model-changed",
        "AC602": "cache-salt-changed",
        "AC702": "not-append-only",
        "AC703": "retokenised-differently",
        "AC801": "evicted",
        "AC802": "lease-expired",
        "AC803": "routed-elsewhere",
        "AC804": "never-cached",
    }
)

HELP: Mapping[str, str] = MappingProxyType(
    {
        "AC101": "say the time at the end of the newest message, or fetch it with a tool, and keep all before it the same",
        "AC102": "keep ids of runs, requests and temporary paths out of shared text, or say them in the newest message",
        "AC103": "move the part that varies behind everything that does not: to the end of the newest message",
        "AC201": "write a tool's schema once and send that text again, keys and numbers as they were",
        "AC202": "send the tools in one fixed order",
        "AC204": "write blanks and line ends in one way; strip and join texts in one place only",
        "AC205": "bring texts to one Unicode form (NFC) where they enter the program",
        "AC206": "write JSON in one way, with the same setting of ensure_ascii everywhere",
        "AC301": "offer the same tools for the whole conversation; a tool that must not be called can stay in the list",
        "AC302": "keep a tool's schema, descriptions included, free of everything that changes",
        "AC401": "send what was sent before as it was sent, and append what is new; a session replays it for you",
        "AC402": "keep the old messages, or shorten the history rarely and in one go",
        "AC403": "a shorter history costs its new beginning once: compact rarely, and a good deal at a time",
        "AC404": "add messages at the end only",
        "AC405": "send replies back with the reasoning that they came with, or use a session",
        "AC502": "put what requests have in common (instructions, tools, examples) at the very start, or use smaller pages",
        "AC503": "fork where a page ends, or accept that the part of the page is computed again",
        "AC601": "stay with one model for a conversation; each computes its own cache",
        "AC602": "send requests that are to share a beginning under one cache_salt",
        "AC702": "use a template that prints replies as they were generated",
        "AC703": "send the ids that were generated, or use a session, which keeps them",
        "AC801": "pin the session, announce long tools with wait, or give the server more pages (--host-pages, --disk-dir)",
        "AC802": "ask for a longer lease, or say with wait how long a tool runs",
        "AC803": "send a conversation to the server that served its last turn, and keep that one running",
        "AC804": "leave the prefix cache on, and ask for log-probabilities of a prompt only where they are needed",
    }
)
"""AC501 says how many tokens are missing, so its sentence is made where that is known."""
