"""What the client sees in what it is about to send: each defect once, by its name and in its place; nothing in clean prompts."""

from __future__ import annotations

import warnings

import pytest
from look_prompts import CLEAN, DEFECTS, Pair
from sdk_wire import WireServer

from agentcache_sdk import CacheWarning, Client, Finding


def findings_of(client: Client, wire: WireServer, pair: Pair) -> list[Finding]:
    """Both requests from one line of code, the first with the reply that the second goes on with."""
    wire.replies.append(pair.reply)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for messages, fields in ((pair.first, pair.fields[0]), (pair.second, pair.fields[1])):
            client.chat(messages, **{"model": "tiny", **fields})
    return [w.message.finding for w in caught if isinstance(w.message, CacheWarning)]


@pytest.mark.parametrize("pair", DEFECTS, ids=lambda pair: pair.name)
def test_each_defect_is_said_once_in_its_place(wire: WireServer, client: Client, pair: Pair) -> None:
    found = findings_of(client, wire, pair)
    assert [(f.code, f.location.path) for f in found] == [(pair.code, pair.path)]
    finding = found[0]
    assert finding.severity == pair.severity
    assert finding.tokens_lost is not None
    assert max(64, pair.lost[0]) <= finding.tokens_lost <= pair.lost[1]
    assert finding.name


@pytest.mark.parametrize("pair", CLEAN, ids=lambda pair: pair.name)
def test_clean_prompts_are_silent(wire: WireServer, client: Client, pair: Pair) -> None:
    assert findings_of(client, wire, pair) == []
