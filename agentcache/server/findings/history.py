"""AC401 to AC405 and AC703: a conversation whose earlier messages are no longer what they were."""

from __future__ import annotations

import re

from agentcache.cache.hashing import TOKEN_BYTES
from agentcache.chat.text import common_length
from agentcache.lint.finding import Finding, Severity
from agentcache.lint.times import mask_times
from agentcache.server.findings.meeting import Meeting, meet
from agentcache.server.findings.prompt_text import Branch, Part, PartedPrompt, content_of
from agentcache.server.findings.slots import find_slot, slot_finding, spelled_apart
from agentcache.server.findings.spot import lost

_SHOWN = 80
_REPEATED = 40
"""Characters of a reply that nobody writes twice by chance."""
_SAME_TEXT = 64
"""Tokens of which the text is compared."""
_SPELLED = 4
"""Tokens of the same text under other ids that are worth a word."""
_THOUGHT = re.compile(r"^\s*<(think|thinking|thought|reasoning)\b", re.IGNORECASE)
_REASONING = "the reasoning of an earlier reply is left out"
_SHIFTS = {
    "AC401": "an earlier message is not what it was",
    "AC402": "earlier messages are missing",
    "AC403": "earlier messages were replaced by fewer",
    "AC404": "messages were added before ones that had been sent",
    "AC405": _REASONING,
    "AC101": "a time in an earlier message is not the one that was sent",
    "AC204": "an earlier message differs in white space alone",
    "AC205": "an earlier message differs in its Unicode form alone",
    "AC206": "an earlier message differs in the escapes of its JSON alone",
}


def history_finding(parted: PartedPrompt) -> Finding | None:
    """What was changed of a conversation that is known; ``None`` where it is another conversation."""
    for branch in parted.branches:
        found = _retokenised(parted, branch)
        if found is None and parted.part is Part.HISTORY:
            meeting = meet(branch.was, branch.now)
            found = None if meeting is None else _shifted(parted, branch, meeting)
            found = found or _reply_changed(parted, branch)
        if found is not None:
            return found
    # What nobody generated here may be an example that is sent with many prompts.
    slot = find_slot(parted) if parted.part is Part.HISTORY else None
    return None if slot is None else slot_finding(parted, slot, "an earlier message")


def _retokenised(parted: PartedPrompt, branch: Branch) -> Finding | None:
    """The text goes on as it did, as other tokens: it was generated, and came back as text."""
    if parted.part is Part.HISTORY and not _is_reply(parted):
        return None
    was, now = parted.decode(branch.was, _SAME_TEXT), parted.decode(branch.now, _SAME_TEXT)
    common = common_length(was, now)
    covered = min(_tokens_in(parted, branch.was, common), _tokens_in(parted, branch.now, common))
    if covered < _SPELLED:
        return None
    ended = common in (len(was), len(now))
    left = min(len(branch.was), len(branch.now)) // TOKEN_BYTES
    return Finding(
        **parted.basis.of("AC703", parted.spot(branch.at)),
        severity="warning",
        before=was[:_SHOWN],
        after=now[:_SHOWN],
        **lost(left if ended else covered, "upper_bound" if ended else "estimate"),
        message="the same text was generated as other tokens than those that it is given back as",
    )


def _tokens_in(parted: PartedPrompt, packed: bytes, characters: int) -> int:
    """How many of the first tokens lie in the text's first ``characters``."""
    count, length = 0, 0
    while count < min(_SAME_TEXT, len(packed) // TOKEN_BYTES):
        length += len(parted.decode(packed[count * TOKEN_BYTES : (count + 1) * TOKEN_BYTES]))
        if length > characters:
            break
        count += 1
    return count


def _shifted(parted: PartedPrompt, branch: Branch, meeting: Meeting) -> Finding | None:
    """A reply that follows was generated here, and followed then."""
    was, now = parted.decode(branch.was, meeting.was), parted.decode(branch.now, meeting.now)
    if _is_reply(parted) and _THOUGHT.match(was) and not now.strip():
        return _changed(parted, branch, meeting, "AC405", (was, now))
    start = parted.character(branch.at + meeting.now)
    end = parted.character(branch.at + meeting.now + meeting.run)
    if not _repeats_a_reply(parted, start, end):
        return None
    code = _kind(parted, branch, meeting)
    if code == "AC401" and (spelling := spelled_apart(was, now)) is not None:
        code = spelling[0]
    elif code == "AC401" and was != now and was.strip() and mask_times(was) == mask_times(now):
        code = "AC101"
    return _changed(parted, branch, meeting, code, (was, now))


def _changed(parted: PartedPrompt, branch: Branch, meeting: Meeting, code: str, shown: tuple[str, str]) -> Finding:
    return Finding(
        **parted.basis.of(code, parted.spot(branch.at)),
        severity="info" if code == "AC403" else "warning",
        verdict="legitimate" if code == "AC403" else "waste",
        before=shown[0][:_SHOWN],
        after=shown[1][:_SHOWN],
        **lost(meeting.run, "estimate"),
        message=f"{_SHIFTS[code]}, and what follows is computed again",
    )


def _kind(parted: PartedPrompt, branch: Branch, meeting: Meeting) -> str:
    """Messages are counted by the control tokens that the template writes around them.

    ::

        dropped    was [u1][a1][u2][a2]     now [u2][a2]          nothing stands in place of what was there
        compacted  was [u1][a1][u2][a2]     now [summary][a2]
        inserted   was [u1][a1]             now [note][u1][a1]
    """
    was, now = (
        _controls(parted, data, count) for data, count in ((branch.was, meeting.was), (branch.now, meeting.now))
    )
    if was == now:
        return "AC401"
    if now < was:
        return "AC403" if meeting.now else "AC402"
    return "AC401" if meeting.was else "AC404"


def _controls(parted: PartedPrompt, packed: bytes, tokens: int) -> int:
    ids = memoryview(packed[: tokens * TOKEN_BYTES]).cast("I")
    return sum(parted.tokenizer.is_special(token) for token in ids)


def _repeats_a_reply(parted: PartedPrompt, start: int, end: int) -> bool:
    """Whether so much of a reply that was generated here lies in the characters that it is that reply."""
    place, messages = 0, parted.asked.messages
    drawn = {reply.message: reply for reply in parted.asked.prompt.transcript.replies}
    for index, message in enumerate(messages):
        if index in drawn:
            first, last = drawn[index].start.characters, drawn[index].end.characters
        else:
            content = content_of(message).strip()
            first = parted.text.find(content, place) if content else -1
            last = first + len(content)
        if first < 0:
            continue
        place = last
        shared = min(last, end) - max(first, start)
        if message.get("role") != "assistant" or shared < min(_REPEATED, last - first) or shared <= 0:
            continue
        if parted.generated(content_of(message)):
            return True
    return False


def _is_reply(parted: PartedPrompt) -> bool:
    return parted.index is not None and parted.asked.messages[parted.index].get("role") == "assistant"


def _reply_changed(parted: PartedPrompt, branch: Branch) -> Finding | None:
    """A reply that was generated here, and is replayed otherwise: the last thing that is known of its conversation."""
    if parted.index is None or not _is_reply(parted):
        return None
    was = _message_rest(parted, branch.was)
    now = _message_rest(parted, branch.now)
    code, severity = _reply_code(was, now)
    if code is None:
        return None
    left = min(len(branch.was), len(branch.now)) // TOKEN_BYTES
    words = {
        "AC405": _REASONING,
        "AC204": "an earlier reply differs in white space from what was generated",
    }
    return Finding(
        **parted.basis.of(code, parted.spot(branch.at)),
        severity=severity,
        confidence="suspected" if code == "AC401" else "confirmed",
        before=was[:_SHOWN],
        after=now[:_SHOWN],
        **lost(left, "upper_bound"),
        message=words.get(code, "an earlier reply is not what was generated"),
    )


def _reply_code(was: str, now: str) -> tuple[str | None, Severity]:
    kept, sent = was.split(), now.split()
    if _THOUGHT.match(was) and sent and sent[0] in kept and not _THOUGHT.match(now):
        return "AC405", "warning"
    common = min(len(kept), len(sent))
    if common and kept[:common] == sent[:common] and was != now:
        return "AC204", "warning"
    if common >= 8 and len(set(kept) & set(sent)) * 2 >= len(set(sent)):
        return "AC401", "warning"
    return None, "info"


def _message_rest(parted: PartedPrompt, packed: bytes) -> str:
    """The text up to the next control token."""
    ids = memoryview(packed[: _SAME_TEXT * 4 * TOKEN_BYTES]).cast("I")
    end = next((i for i, token in enumerate(ids) if parted.tokenizer.is_special(token)), len(ids))
    return parted.decode(packed, end)
