"""Checks one template: every property of the table, and a finding for each that does not hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.template import ChatTemplate
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import AgentCacheError, ChatTemplateError
from agentcache.lint.finding import Finding, LossKind
from agentcache.lint.records import Unreadable
from agentcache.lint.rules import ac903_unreadable
from agentcache.lint.templates import tokens
from agentcache.lint.templates.around import is_kept_around
from agentcache.lint.templates.clocks import Ticking, ticking
from agentcache.lint.templates.conversations import PLAIN, SYSTEM, TOOLS, Conversation
from agentcache.lint.templates.faults import clock_finding, faults, rewrite_finding, spread_finding, told, unique
from agentcache.lint.templates.report import Outcome, Row, TemplateReport
from agentcache.lint.templates.sources import Subject
from agentcache.lint.templates.survey import Survey
from agentcache.lint.templates.turns import Course, Part, Rewrite
from agentcache.lint.templates.writer import NOW, Options, TemplateSource, Writer

_REASON = 60
"""Characters of a template's refusal that are shown."""
_SIGNS = ("add_generation_prompt", "bos_token", "eos_token", "<|", "[INST]", "raise_exception")
_LINE = re.compile(r"\bline (\d+)")
_OTHERS = re.compile("unknown tag|No (?:filter|test) named")
_MESSAGELESS = "got a template that reads no messages"


def check_template(subject: Subject) -> TemplateReport:
    """Run every conversation through the template.

    Raises:
        AgentCacheError: it does not compile, or it is no chat template.
    """
    try:
        plain = Writer(subject.plain, subject.named_tokens)
        with_tools = plain if subject.with_tools is None else Writer(subject.with_tools, subject.named_tokens)
    except ChatTemplateError as error:
        raise AgentCacheError(f"{subject.plain.file}: {error}") from None
    if "messages" not in plain.template.variables:
        raise AgentCacheError(f"{subject.plain.file}: {_MESSAGELESS}, expected a chat template")
    survey = Survey(plain, with_tools, subject.named_tokens)
    refusals = [course.refused for course in survey.prompt_courses()]
    if None not in refusals:
        raise AgentCacheError(f"{subject.plain.file}: got a template that refuses every conversation: {refusals[0]}")
    return _Check(subject, survey, (plain, with_tools)).report()


def template_findings(
    name: str, source: str, tokenizer: Tokenizer, note: Callable[[str], None] | None = None
) -> list[Finding]:
    """What is wrong with a chat template that stands in a file among others.

    Args:
        name: of the file.
        tokenizer: what tokens are counted with; the template's own, or another for near figures.
        note: hears of a file that is no chat template (a page, a prompt that messages are written into); ``None`` for files
            that nobody named: of those nothing is said, nor where a template needs values that its own program gives it.

    Returns:
        One AC903 for a template that is broken, or that refuses every conversation.
    """
    taken = is_chat_template(source)
    if not taken:
        broken = _broken(source)
        if broken is None and note is not None:
            note(
                f"{name}: no chat template (it writes no conversation with control tokens), so there is nothing to check"
            )
        return [_unreadable(name, broken)] if broken is not None else []
    subject = Subject(name, TemplateSource(name, source), tokenizer, "", named_tokens=tokenizer.named_tokens)
    try:
        return list(check_template(subject).findings)
    except AgentCacheError as error:
        reason = str(error).removeprefix(f"{name}: ")
        if _MESSAGELESS in reason:
            if note is not None:
                note(f"{name}: {reason}: nothing to check")
            return []
        if note is None and "is undefined" in reason:
            return []
        return [_unreadable(name, reason)]


def _broken(source: str) -> str | None:
    """Why no program could use the template; tags, filters and tests of its own program are none of our business."""
    try:
        ChatTemplate(source)
    except ChatTemplateError as error:
        return None if _OTHERS.search(str(error)) else str(error)
    return None


def _unreadable(name: str, reason: str) -> Finding:
    line = _LINE.search(reason)
    said = reason.removeprefix(f"the chat template, line {line[1]}: ") if line else reason
    return ac903_unreadable.report(Unreadable(name, int(line[1]) if line else 1, said))


def refuse_unless_chat(source: str, tokenizer: Tokenizer) -> None:
    """Requests cannot be rendered with what takes no messages: each would be the same text.

    Args:
        tokenizer: the one that the template is meant for.

    Raises:
        AgentCacheError: the template does not compile, or reads no messages.
    """
    template = ChatTemplate(source)
    if "messages" not in template.variables:
        known = " (the tokenizer has one of its own: leave --template out)" if tokenizer.chat_template else ""
        raise AgentCacheError(f"--template: {_MESSAGELESS}, expected a chat template{known}")


def is_chat_template(source: str) -> bool:
    """Whether a template writes whole conversations: it goes through messages, and opens a reply or writes control tokens."""
    return "messages" in source and any(sign in source for sign in _SIGNS)


class _Check:
    """One template being checked."""

    def __init__(self, subject: Subject, survey: Survey, writers: Sequence[Writer]) -> None:
        self._subject = subject
        self._survey = survey
        self._writers = tuple(dict.fromkeys(writers))
        self._tokenizer = subject.tokenizer
        self._foreign = not subject.own and tokens.is_foreign(subject.tokenizer, writers[0])
        self._kind: LossKind = "estimate" if self._foreign else "upper_bound"
        self._findings: list[Finding] = []
        self._renderers: dict[Writer, ChatRenderer] = {}

    def report(self) -> TemplateReport:
        rows = (
            *self._history_rows(),
            *self._reply_rows(),
            self._clock_row(),
            self._round_trip_row(),
            self._typed_row(),
        )
        return TemplateReport(
            self._subject.name, self._subject.tokenizer_name, self._foreign, rows, tuple(self._findings)
        )

    # -- is earlier text left as it is?

    def _history_rows(self) -> Iterator[Row]:
        survey = self._survey
        courses = survey.prompt_courses()
        left_out = survey.left_out()
        found = [*courses, *([left_out] if left_out is not None else [])]
        self._tell(rewrite for course in found for rewrite in course.of(Part.PROMPT))
        for course in courses:
            yield self._history_row(course, course.conversation.title)
        if not survey.reasoned:
            yield Row("reasoning replayed", Outcome.NONE, note="the template has no place for it")
        elif left_out is not None:
            yield self._history_row(left_out, "reasoning left out by the program")
        if breaking := list(dict.fromkeys(told(r.options) for r in survey.optional_rewrites())):
            note = f"but not with {'; '.join(breaking)}"
            yield Row("with other options", Outcome.YES, note=note)

    def _history_row(self, course: Course, question: str) -> Row:
        note = told(course.options)
        if course.refused is not None:
            return Row(question, Outcome.REFUSED, note=course.refused[:_REASON])
        if as_text := self._as_text(course.conversation):
            note = f"{note}; {as_text}" if note else as_text
        return self._row(question, course.of(Part.PROMPT), note)

    def _as_text(self, conversation: Conversation) -> str:
        """What of a conversation the template knows nothing of, so that it is written as plain text."""
        shapes = self._survey.writer(conversation).shapes
        if conversation.tools and not shapes.knows_tools:
            return f"tools are written into the {'system text' if shapes.knows_system else 'first message'}"
        if any("tool_calls" in message for message in conversation.messages) and shapes.call_shape is None:
            return "calls are written as text"
        return ""

    def _row(self, question: str, rewrites: Sequence[Rewrite], note: str) -> Row:
        if not rewrites:
            return Row(question, Outcome.YES, note=note)
        losses = [(self._lost(rewrite), rewrite) for rewrite in rewrites]
        lost, worst = max(losses, key=lambda pair: pair[0])
        of = tokens.tokens_between(self._tokenizer, worst.before, 0, worst.end)
        return Row(question, Outcome.NO, lost, of, note, kept_here=all(map(self._is_kept, rewrites)))

    def _is_kept(self, rewrite: Rewrite) -> bool:
        """Whether agentcache loses nothing by it; where that cannot be told, it does."""
        if self._subject.named_tokens != self._tokenizer.named_tokens:
            return False
        writer = self._survey.writer(rewrite.conversation)
        if writer not in self._renderers:
            self._renderers[writer] = ChatRenderer(self._tokenizer, writer.source.text, clock=lambda: NOW)
        return is_kept_around(self._renderers[writer], rewrite)

    def _lost(self, rewrite: Rewrite) -> int:
        return tokens.tokens_between(self._tokenizer, rewrite.before, rewrite.char, rewrite.end)

    # -- is a reply found again as it was generated?

    def _reply_rows(self) -> Iterator[Row]:
        survey = self._survey
        for question, courses in (
            ("replies as they were generated", survey.reply_courses()),
            ("the same, thinking switched off", survey.unthinking_courses()),
        ):
            taken = [course for course in courses if course.refused is None]
            rewrites = [rewrite for course in taken for rewrite in course.of(Part.REPLY)]
            self._tell(rewrites)
            if taken:
                yield self._row(question, rewrites, told(taken[0].options))

    def _tell(self, rewrites: Iterator[Rewrite] | Sequence[Rewrite]) -> None:
        for fault in faults(self._survey, unique(rewrites), self._tokenizer):
            kept = all(map(self._is_kept, fault.rewrites))
            self._findings.append(rewrite_finding(fault, self._survey, self._kind, kept=kept))

    # -- does it depend on the time?

    def _clock_row(self) -> Row:
        ticks: dict[tuple[Writer, int], Ticking] = {}
        for conversation in (SYSTEM, PLAIN, TOOLS):
            writer = self._survey.writer(conversation)
            if tick := ticking(writer, conversation, {}):
                ticks.setdefault((writer, tick.line), tick)
        for (writer, _), tick in ticks.items():
            mends = self._still(writer, tick)
            self._findings.append(clock_finding(tick, writer, self._tokenizer, mends, self._kind))
        if not ticks:
            return Row("the same at any time", Outcome.YES)
        worst = next(iter(ticks.values()))
        lost = tokens.tokens_between(self._tokenizer, worst.before, worst.char, len(worst.before))
        of = tokens.tokens_between(self._tokenizer, worst.before, 0, len(worst.before))
        return Row("the same at any time", Outcome.NO, lost, of, f"changes every {worst.unit}")

    def _still(self, writer: Writer, tick: Ticking) -> list[Options]:
        """Options under which the text does not depend on the time; those that are called a date first."""
        found = []
        for option in self._survey.options:
            course = self._survey.course(tick.conversation, option)
            if course.refused is None and ticking(writer, tick.conversation, option) is None:
                found.append(option)
        return sorted(found, key=lambda option: not any("date" in name or "time" in name for name in option))

    # -- do ids survive?

    def _round_trip_row(self) -> Row:
        question = "token ids survive a round trip"
        if self._foreign:
            return Row(question, Outcome.NONE, note="needs the template's own tokenizer (--tokenizer)")
        courses = [course for course in self._survey.prompt_courses() if course.refused is None]
        spread = next(filter(None, (tokens.merged_at_border(self._tokenizer, course) for course in courses)), None)
        if spread is None:
            said = {word for course in courses for word in course.conversation.words(len(course.conversation.messages))}
            spread = tokens.unstable(self._tokenizer, sorted(said))
        if spread is not None:
            writer, line = self._writers[0], 1
            if spread.conversation is not None:
                writer = self._survey.writer(spread.conversation)
                line = writer.trace(spread.conversation, spread.earlier, spread.options).line_at(spread.char)
            self._findings.append(spread_finding(spread, writer, line))
            return Row(question, Outcome.NO, spread.lost, note=spread.what)
        altered = tokens.rewritten_text(self._tokenizer)
        note = (
            "" if altered is None else "the tokenizer changes some text (its Unicode form or blanks), with the same ids"
        )
        return Row(question, Outcome.YES, note=note)

    def _typed_row(self) -> Row:
        question = "typed control tokens stay text"
        taken = [c for c in (PLAIN, TOOLS) if self._survey.course(c, {}).refused is None]
        found = None
        if taken and not self._foreign:
            found = tokens.typed_markers(self._tokenizer, self._survey.writer(taken[0]), taken[0], {})
        if found is None:
            return Row(question, Outcome.NONE, note="none of this tokenizer's are in the template")
        if not found:
            return Row(question, Outcome.YES)
        shown = ", ".join(found[:3]) + (" …" if len(found) > 3 else "")
        return Row(question, Outcome.YES, note=f"in agentcache; elsewhere {shown} become markers")
