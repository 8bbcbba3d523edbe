"""From what a request found in the cache to its findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentcache.cache.explain import Miss
from agentcache.lint.finding import Finding
from agentcache.server.findings.history import history_finding
from agentcache.server.findings.prompt_text import Part, PartedPrompt
from agentcache.server.findings.slots import find_slot, slot_finding
from agentcache.server.findings.spot import Basis
from agentcache.server.findings.tools import tools_finding
from agentcache.server.misses import Places


def text_finding(places: Places, miss: Miss, told: Mapping[str, Any], basis: Basis) -> Finding | None:
    """What in the prompt's own text parted it from what is cached; ``None`` where prompts may well part.

    Takes a while for some: not on the event loop.

    Args:
        told: the miss as the response says it.
    """
    if miss.code != "diverged":
        return None
    prompt = places.asked.prompt
    if miss.at_token < prompt.kept.tokens:
        return None  # this part is not the client's: what is missing there was evicted
    parted = PartedPrompt(places, miss, told, basis)
    return _LOOKS[parted.part](parted)


def _system(parted: PartedPrompt) -> Finding | None:
    slot = find_slot(parted)
    if slot is None:
        return None
    found = slot_finding(parted, slot, "the system text")
    # Another text in front of the same tools is another agent; something else in the same text is a slot.
    return None if found.code == "AC103" and parted.own_text_beside(slot.char + slot.start, slot.end) < 0.5 else found


def _frame(parted: PartedPrompt) -> Finding | None:
    """Tools; or the place where the system text ends in one of both and goes on in the other."""
    return tools_finding(parted) or (_system(parted) if parted.ends_content else None)


def _nothing(parted: PartedPrompt) -> Finding | None:
    return None


_LOOKS: Mapping[Part, Callable[[PartedPrompt], Finding | None]] = {
    Part.SYSTEM: _system,
    Part.FRAME: _frame,
    Part.HISTORY: history_finding,
    Part.NEWEST: _nothing,
    Part.RAW: history_finding,
}


def to_json(findings: Sequence[Finding | None]) -> list[dict[str, Any]]:
    """As the response carries them."""
    return [finding.model_dump(mode="json") for finding in findings if finding is not None]
