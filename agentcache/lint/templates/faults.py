"""What the survey found, as findings: each place of the template once, with all conversations that show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentcache.chat.messages import Message
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.finding import Finding, Location, LossKind, Severity
from agentcache.lint.rules import find_rule
from agentcache.lint.templates.clocks import Ticking
from agentcache.lint.templates.conversations import LATE_SYSTEM, REASONING_KEYS
from agentcache.lint.templates.survey import Survey
from agentcache.lint.templates.tokens import Spread, tokens_between
from agentcache.lint.templates.turns import Part, Rewrite, rewritten_message
from agentcache.lint.templates.writer import Options, Writer

_SMALL = 16
"""Tokens below which a loss is worth a remark, not a warning: the usual page."""
_SHOWN = 60
_START = 24
"""Characters that do not come again elsewhere by chance."""


@dataclass(frozen=True)
class Fault:
    """A place of a template that writes something another way in the next request.

    Attributes:
        rewrites: every turn that shows it; the dearest first.
        losses: tokens of each.
        line: of the template: what wrote the earlier text.
        now: the line that writes there in the next request.
        condition: the line of the condition that decides between them, where that can be told.
    """

    rewrites: tuple[Rewrite, ...]
    losses: tuple[int, ...]
    writer: Writer
    line: int
    now: int
    condition: int | None

    @property
    def worst(self) -> Rewrite:
        return self.rewrites[0]


class _Turn(NamedTuple):
    lost: int
    now: int
    rewrite: Rewrite


def faults(survey: Survey, rewrites: Iterable[Rewrite], tokenizer: Tokenizer) -> list[Fault]:
    """``rewrites`` by the place of the template that causes them, in its order."""
    grouped: dict[tuple[Part, Writer, int, bool], list[_Turn]] = {}
    for rewrite in rewrites:
        writer = survey.writer(rewrite.conversation)
        line, now = _lines(writer, rewrite)
        lost = tokens_between(tokenizer, rewrite.before, rewrite.char, rewrite.end)
        late = rewrite.conversation is LATE_SYSTEM and rewrite.part is Part.PROMPT
        grouped.setdefault((rewrite.part, writer, line, late), []).append(_Turn(lost, now, rewrite))
    found = []
    for (_, writer, line, _), turns in grouped.items():
        turns.sort(key=lambda turn: -turn.lost)
        now = turns[0].now
        told, losses = tuple(turn.rewrite for turn in turns), tuple(turn.lost for turn in turns)
        found.append(Fault(told, losses, writer, line, now, writer.template.condition_of(line, now)))
    return sorted(found, key=lambda fault: (fault.writer.source.file, fault.line, fault.worst.part.value))


def rewrite_finding(fault: Fault, survey: Survey, kind: LossKind, *, kept: bool) -> Finding:
    """AC702 for one place.

    Args:
        kept: agentcache loses nothing by it.
    """
    worst, lost = fault.worst, fault.losses[0]
    message = rewritten_message(fault.writer, worst)
    mends = survey.mended(worst)
    severity: Severity = "info"
    if worst.part is Part.REPLY:
        what = _reply_words(worst)
    else:
        what = _prompt_words(worst, message)
        severity = "info" if lost < _SMALL or worst.conversation is LATE_SYSTEM else "warning"
    prompt = worst.before[worst.char : worst.end]
    return _finding(
        "AC702",
        severity,
        fault.writer,
        fault.line,
        before=_excerpt(worst.before, worst.char),
        after=_excerpt(worst.after, worst.char),
        lost=lost if prompt else 0,
        kind=kind,
        wasted=bool(mends),
        message=f"{what} ({_titles(fault, worst.options)})",
        help=_help(fault, mends, kept=kept),
    )


def clock_finding(
    tick: Ticking, writer: Writer, tokenizer: Tokenizer, mends: Sequence[Options], kind: LossKind
) -> Finding:
    """AC701."""
    lost = tokens_between(tokenizer, tick.before, tick.char, len(tick.before))
    advice = "say the time at the end of the newest message instead, or render with one fixed time for a session"
    if mends:
        advice = f"set {told(mends[0])} in chat_template_kwargs: the text is then the same at any time; or {advice}"
    return _finding(
        "AC701",
        tick.severity,
        writer,
        tick.line,
        before=_excerpt(tick.before, tick.char),
        after=_excerpt(tick.after, tick.char),
        lost=lost,
        kind=kind,
        wasted=True,
        message=(
            f"the template prints the time: every {tick.unit} the prompt is a new one from its "
            f"{_ordinal(tokens_between(tokenizer, tick.before, 0, tick.char))} token on ({tick.conversation.title})"
        ),
        help=advice,
    )


def spread_finding(spread: Spread, writer: Writer, line: int) -> Finding:
    """AC703."""
    where = "" if spread.conversation is None else f" ({spread.conversation.title})"
    return _finding(
        "AC703",
        "info" if spread.lost < _SMALL else "warning",
        writer,
        line,
        before=spread.before,
        after=spread.after,
        lost=spread.lost,
        kind="upper_bound",
        wasted=False,
        message=f"{spread.what}{where}",
        help=(
            "keep the ids that were drawn and append to them (agentcache's sessions do), or end the generation prompt with a "
            "control token, across which nothing merges"
        ),
    )


def told(options: Options) -> str:
    """``enable_thinking=false``."""
    return ", ".join(f"{name}={_json(value)}" for name, value in options.items())


def _json(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else f"{value!r}"


def _finding(
    code: str,
    severity: Severity,
    writer: Writer,
    line: int,
    *,
    before: str,
    after: str,
    lost: int,
    kind: LossKind,
    wasted: bool,
    message: str,
    help: str,
) -> Finding:
    rule = find_rule(code)
    assert rule is not None
    source = writer.source
    return Finding(
        code=code,
        name=rule.name,
        severity=severity,
        verdict="waste" if wasted else "unavoidable",
        location=Location(file=source.file, record=line, path=source.path),
        before=before,
        after=after,
        tokens_lost=lost,
        tokens_lost_kind=kind,
        message=message,
        help=help,
    )


def _lines(writer: Writer, rewrite: Rewrite) -> tuple[int, int]:
    """The template lines that wrote the earlier text and that write the later one, where they part."""
    conversation, options = rewrite.conversation, rewrite.options
    replied = rewrite.char >= rewrite.opened  # inside the reply, or right behind the opening
    earlier = writer.trace(conversation, rewrite.earlier + replied, options, opened=not replied)
    return earlier.line_at(rewrite.char), writer.trace(conversation, rewrite.later, options).line_at(rewrite.char)


def _prompt_words(rewrite: Rewrite, message: int | None) -> str:
    if message is None:
        return "the history is written another way in the next request"
    said = rewrite.conversation.messages[message]
    role = said["role"]
    return f"{_changed(f'messages[{message}] ({role})', said, rewrite)} {_cause(rewrite)}"


def _changed(name: str, said: Message, rewrite: Rewrite) -> str:
    """What became of a message, or of what stands before it."""
    before, after = rewrite.before[rewrite.char :], rewrite.after[rewrite.char :]
    thought = _thought(said)
    if thought and thought in before and thought not in after:
        return f"{name} loses its reasoning"
    comes_later = rewrite.end - rewrite.char >= _START and before[:_START] in after
    goes = after[:_START] in rewrite.before[rewrite.char : rewrite.end]
    if comes_later:
        return f"what stands before {name} moves behind it" if goes else f"new text is put in before {name}"
    return f"{name} loses some of its text" if goes else f"{name} is written another way"


def _cause(rewrite: Rewrite) -> str:
    new = [message["role"] for message in rewrite.conversation.messages[rewrite.earlier : rewrite.later]]
    last = {"user": "a user speaks again", "tool": "a tool's result follows", "system": "another system text follows"}
    return f"as soon as {last.get(new[-1], 'more')}"


def _reply_words(rewrite: Rewrite) -> str:
    thought = _thought(rewrite.reply)
    if thought and thought not in rewrite.after:
        return "a reply's reasoning is not in the next request, so the reply is computed again"
    if rewrite.char < rewrite.opened:
        return "a reply is not begun in the next request as the generation prompt begins it, so it is computed again"
    return "a reply is written another way in the next request, so it is computed again from there on"


def _thought(message: Message) -> str:
    told = next((message[key] for key in REASONING_KEYS if message.get(key)), "")
    content = message.get("content") or ""
    return told or (content.partition("</think>")[0].removeprefix("<think>").strip() if "</think>" in content else "")


def _titles(fault: Fault, options: Options) -> str:
    """``plain chat; reasoning replayed, with tools; 5 more; all with enable_thinking=false``: titles have commas in them."""
    titles = list(dict.fromkeys(rewrite.conversation.title for rewrite in fault.rewrites))
    parts = titles[:3] + ([f"{len(titles) - 3} more"] if len(titles) > 3 else [])
    if options:
        alike = all(rewrite.options == options for rewrite in fault.rewrites)
        several = ("all " if alike else "the first ") if len(titles) > 1 else ""
        parts.append(f"{several}with {told(options)}")
    return "; ".join(parts)


def _help(fault: Fault, mends: Sequence[Mapping[str, Any]], *, kept: bool) -> str:
    lines = f"line {fault.line} wrote it, line {fault.now} writes there now"
    if fault.condition not in (None, fault.line):
        lines += f"; line {fault.condition} decides"
    here = "agentcache keeps the replies that it generated as they were drawn and loses nothing here"
    if mends:
        advice = f"set {told(mends[0])} in chat_template_kwargs, with which nothing is written twice"
        return f"{advice}; {here} anyway ({lines})" if kept else f"{advice} ({lines})"
    if kept:
        return f"{here}; other caches compute it again ({lines})"
    return f"no option mends it; a template that writes each message the same way whatever follows does ({lines})"


def _excerpt(text: str, char: int) -> str:
    """``text`` from a little before ``char`` on."""
    start = max(0, char - _SHOWN // 3)
    end = min(len(text), char + _SHOWN)
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _ordinal(number: int) -> str:
    number += 1
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def unique(rewrites: Iterable[Rewrite]) -> Iterator[Rewrite]:
    """Without those that two courses of one conversation both show."""
    seen = set()
    for rewrite in rewrites:
        key = (rewrite.part, rewrite.conversation.title, rewrite.earlier, rewrite.char, rewrite.before)
        if key not in seen:
            seen.add(key)
            yield rewrite
