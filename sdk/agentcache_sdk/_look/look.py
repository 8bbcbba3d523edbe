"""The client's own look at what it is about to send: what it can know without a tokenizer."""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache_sdk._look.causes import finding, parting_findings, replay_finding, setting_finding, tool_finding
from agentcache_sdk._look.history import HEAD_ROLES, Parting, part
from agentcache_sdk._look.memory import Memory, Request, Sent
from agentcache_sdk._look.said import Said, form_of, said, setting_of, tokens
from agentcache_sdk._look.tools import in_common, tool_change
from agentcache_sdk._look.volatile_text import Slot, suspicious_slots
from agentcache_sdk.types import Finding, Turn

_NEW_TEXTS = 256
"""System texts whose suspicious slots are remembered."""
_COMPARED = 4
"""Earlier requests that a new one is compared with text by text."""
_EDGE = 32
_NEVER_MIND = frozenset({None, "diverged", "template", "below_page"})
"""Codes of misses that do not explain by themselves why a prompt was not cached further."""


@dataclass(frozen=True)
class Doubt:
    """Something that costs tokens on some servers only: the answer tells.

    Attributes:
        expected: tokens that would be cached if it did not matter.
    """

    finding: Finding
    expected: int | None


@dataclass
class Glance:
    """One request, looked at.

    Attributes:
        findings: what can be said before it is sent.
        doubts: what can only be said when the answer is there.
    """

    look: ClientLook
    request: Request
    findings: list[Finding]
    doubts: list[Doubt]

    def sending(self) -> None:
        """It goes out now."""
        with self.look.lock:
            self.look.requests.add(self.request)

    def failed(self) -> None:
        """It was not answered in full."""
        with self.look.lock:
            self.look.requests.remove(self.request)

    def ended(self, turn: Turn) -> list[Finding]:
        """It was answered by ``turn``: remember what came back, and say what the answer confirms."""
        replies = [said(choice.message) for choice in (turn.choices or [turn]) if choice.message]
        usage = turn.usage
        with self.look.lock:
            memory = self.look.requests
            memory.settle(self.request)
            total = usage.prompt_tokens + usage.completion_tokens if usage.prompt_tokens else None
            memory.add_replies(self.request.name, replies, total, usage.completion_tokens)
        return [sure for doubt in self.doubts if (sure := _confirmed(doubt, turn))]


def _confirmed(doubt: Doubt, turn: Turn) -> Finding | None:
    """The finding with the server's figure, if the server had to compute again what it had."""
    cache, details = turn.cache, turn.usage.prompt_tokens_details
    reported = cache.page_size is not None or (details is not None and details.cached_tokens is not None)
    if not reported or doubt.expected is None or (cache.miss and cache.miss.code) not in _NEVER_MIND:
        return None
    # Up to a page less is the ordinary end of a shared beginning.
    lost = min(doubt.expected, turn.usage.prompt_tokens) - cache.cached_tokens
    if lost <= (cache.page_size or 0):
        return None
    return doubt.finding.model_copy(update={"tokens_lost": lost, "tokens_lost_kind": "exact"})


@dataclass
class ClientLook:
    """What one client remembers of what it sent.  Safe to use from several threads.

    Memory is bounded: texts of the last 32 conversations (at most 4 million characters, mostly the caller's own strings),
    replies to recent requests (as many again), and digests of 4,096 requests.
    """

    requests: Memory = field(default_factory=Memory)
    heads: Memory = field(default_factory=Memory)
    slots: OrderedDict[str, tuple[Slot, ...]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def glance(
        self, messages: Sequence[Mapping[str, Any]], tools: Iterable[Any] | None, options: Mapping[str, Any]
    ) -> Glance:
        """A stateless request that is about to be sent; the caller says how it goes on with it."""
        request = Request.of([said(m) for m in messages], setting_of(tools, options), form_of(options))
        with self.lock:
            findings, doubts = _examined(self, self.requests, request)
        return Glance(self, request, findings, doubts)

    def of_request(
        self, messages: Sequence[Mapping[str, Any]], tools: Iterable[Any] | None, options: Mapping[str, Any]
    ) -> list[Finding]:
        """Everything about a stateless request, which is remembered as answered.

        Args:
            options: the other fields of the request: ``model``, ``cache_salt``, ``chat_template_kwargs``, ``tool_choice`` ...
        """
        glance = self.glance(messages, tools, options)
        with self.lock:
            self.requests.add(glance.request)
            self.requests.settle(glance.request)
        return [*glance.findings, *(doubt.finding for doubt in glance.doubts)]

    def of_head(
        self, messages: Sequence[Mapping[str, Any]], tools: Iterable[Any] | None = None, model: str | None = None
    ) -> list[Finding]:
        """What a new session begins with, next to what this client's other sessions began with."""
        request = Request.of([said(m) for m in messages], setting_of(tools, {"model": model}))
        if not request.messages and not request.setting.tools:
            return []
        with self.lock:
            findings, _ = _examined(self, self.heads, request)
            self.heads.add(request)
        return findings

    def slots_of(self, text: str) -> tuple[Slot, ...]:
        """Suspicious slots of a system text; each text is read once."""
        found = self.slots.get(text)
        if found is None:
            found = self.slots[text] = tuple(suspicious_slots(text))
            while len(self.slots) > _NEW_TEXTS:
                self.slots.popitem(last=False)
        return found


def _examined(look: ClientLook, memory: Memory, request: Request) -> tuple[list[Finding], list[Doubt]]:
    beginning = memory.beginning(request)
    known, doubts, findings = 0, [], []
    if beginning is not None:
        known, sent = beginning
        known = min(len(request.messages), known)
        findings += _setting_findings(known, sent, request)
        doubts += _form_doubts(known, sent, request)
        if known < len(request.messages) and request.messages[known].role == "assistant" and sent.replies:
            doubts += _replay_doubts(sent, request.messages[known], known)
            known += 1
    if not findings:
        findings += _tool_findings(memory, request)
    parted, more = _history_findings(memory, request, known)
    findings += parted
    doubts += more
    if beginning is not None and memory is look.requests:
        return findings, doubts  # what stood the test of a second request is no suspicion any more
    said_at = {(f.code, f.location.path) for f in findings}
    findings += [f for f in _suspicions(look, request) if (f.code, f.location.path) not in said_at]
    return findings, doubts


def _goes_on(known: int, sent: Sent, request: Request) -> bool:
    """The request is a later turn of the conversation that its first ``known`` messages, and their reply, are."""
    new = request.messages[known:]
    if not any(message.role == "assistant" for message in new):
        return False
    if new[0].role != "assistant" or not sent.replies:
        return True
    return any(reply.digest == new[0].digest or replay_finding(reply, new[0], known, 0) for reply in sent.replies)


def _setting_findings(known: int, sent: Sent, request: Request) -> list[Finding]:
    """The conversation goes on under another setting than all those that it had so far."""
    setting = request.setting
    if not _goes_on(known, sent, request) or any(
        way.shares_with(setting) and way.tools == setting.tools for way, _ in sent.ways
    ):
        return []
    chars = sum(message.chars for message in request.messages[:known])
    if near := next((way for way, _ in reversed(sent.ways) if way.shares_with(setting)), None):
        change = tool_change(near.tools, setting.tools)
        return [tool_finding(change, setting, chars)] if change else []
    lost = tokens(chars + sum(len(tool) for tool in setting.tools))
    found = setting_finding(sent.ways[-1][0], setting, lost)
    return [found] if found else []


def _form_doubts(known: int, sent: Sent, request: Request) -> list[Doubt]:
    forms = [form for way, form in sent.ways if way == request.setting]
    if not forms or request.form in forms or not _goes_on(known, sent, request):
        return []
    lost = tokens(sum(message.chars for message in request.messages[:known]))
    words = "the conversation goes on with another tool_choice or response_format, and the prompt is another"
    path = "response_format" if "response_format" in request.form + forms[-1] else "tool_choice"
    found = finding("AC303", path, lost, before=forms[-1] or None, after=request.form or "none", message=words)
    return [Doubt(found, None if sent.tokens is None else sent.tokens - sent.reply_tokens)]


def _replay_doubts(sent: Sent, replayed: Said, index: int) -> list[Doubt]:
    if any(reply.digest == replayed.digest for reply in sent.replies):
        return []
    for reply in reversed(sent.replies):
        if found := replay_finding(reply, replayed, index, tokens(reply.chars)):
            return [Doubt(found, sent.tokens)]
    return []


def _tool_findings(memory: Memory, request: Request) -> list[Finding]:
    """Tools that another request with the same first message had in another writing, order or choice."""
    setting, first = request.setting, request.messages[0] if request.messages else None
    if not setting.tools or first is None or first.role not in HEAD_ROLES:
        return []
    alike = [
        old
        for old in memory.latest()
        if old.setting.shares_with(setting) and old.messages and old.messages[0].digest == first.digest
    ]
    if not alike or any(old.setting.tools == setting.tools for old in alike):
        return []
    change = tool_change(alike[0].setting.tools, setting.tools)
    if change is None or (change.code == "AC301" and not _nearly_the_same(alike[0].setting.tools, setting.tools)):
        return []
    equal = alike[0].equal_messages(request)
    return [tool_finding(change, setting, sum(message.chars for message in request.messages[:equal]))]


def _nearly_the_same(earlier: tuple[str, ...], later: tuple[str, ...]) -> bool:
    """Agents with tools of their own are no finding; one tool more or less in the middle of many is."""
    short, long = sorted((earlier, later), key=len)
    if long[: len(short)] == short:
        return False
    return in_common(earlier, later) * 4 >= len(long) * 3


def _history_findings(memory: Memory, request: Request, known: int) -> tuple[list[Finding], list[Doubt]]:
    if known >= len(request.messages):
        return [], []
    alike = (old for old in memory.latest() if old.setting.shares_with(request.setting))
    ranked = [(_likeness(old, request), old) for old in alike if old.equal_messages(request) >= known]
    # Those that have most in common first, and of those the newest, so that a few are enough.
    near = heapq.nlargest(_COMPARED, ranked, key=lambda pair: pair[0])
    best = next(
        (found for _, old in near if (found := part(old, memory.replies_to(old), request, memory.generated))), None
    )
    if best is None:
        return [], []
    found_here = list(parting_findings(best, _others(memory, best)))
    if best.later[best.at].role != "assistant" or best.gone != best.new:
        return found_here, []
    sent = memory.sent.get(best.request.name)
    return [], [Doubt(f, sent.tokens if sent else None) for f in found_here]


def _likeness(old: Request, request: Request) -> tuple[int, bool]:
    """Equal messages, and whether the first that differs begins or ends alike."""
    at = old.equal_messages(request)
    if at >= min(len(old.messages), len(request.messages)):
        return at, False
    a, b = old.messages[at].text, request.messages[at].text
    return at, a[:_EDGE] == b[:_EDGE] or a[-_EDGE:] == b[-_EDGE:]


def _others(memory: Memory, parting: Parting) -> list[str]:
    at, role = parting.at, parting.later[parting.at].role
    texts = [old.messages[at] for old in memory.latest() if len(old.messages) > at]
    return [message.text for message in texts if message.role == role]


def _suspicions(look: ClientLook, request: Request) -> list[Finding]:
    """Slots in the system texts before the conversation begins."""
    found: list[Finding] = []
    for index, message in enumerate(request.messages):
        if message.role not in HEAD_ROLES:
            break
        for slot in look.slots_of(message.text):
            behind = len(message.text) - slot.start + sum(m.chars for m in request.messages[index + 1 :])
            day = slot.kind == "day"
            words = (
                "it looks as if it changes from day to day" if day else "it looks as if it changes from call to call"
            )
            found.append(
                finding(
                    slot.code,
                    f"messages[{index}].content",
                    tokens(behind),
                    char=slot.start,
                    severity="info" if day else "warning",
                    confidence="suspected",
                    before=message.text[slot.start : slot.end],
                    message=words,
                )
            )
    return found
