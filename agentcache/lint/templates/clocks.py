"""Whether a template's text depends on when it is rendered."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from agentcache.chat.text import common_length
from agentcache.errors import ChatTemplateError
from agentcache.lint.finding import Severity
from agentcache.lint.templates.conversations import Conversation
from agentcache.lint.templates.writer import NOW, Options, Writer

CLOCK = "strftime_now"

_STEPS: tuple[tuple[str, datetime.datetime, Severity], ...] = (
    ("second", NOW.replace(second=31), "error"),
    ("minute", NOW.replace(minute=21), "error"),
    ("hour", NOW.replace(hour=11), "warning"),
    ("day", NOW.replace(day=5), "warning"),
    ("month", NOW.replace(month=4), "info"),
    ("year", NOW.replace(year=2027), "info"),
)
"""Each changes one field of the time, the finest first."""


@dataclass(frozen=True)
class Ticking:
    """A prompt that changes with the time.

    Attributes:
        unit: the finest unit that shows.
        char: the first character that changes.
        line: of the template; where it asks for the time, if that can be told.
    """

    conversation: Conversation
    count: int
    unit: str
    severity: Severity
    before: str
    after: str
    char: int
    line: int


def ticking(writer: Writer, conversation: Conversation, options: Options) -> Ticking | None:
    """How the last request of ``conversation`` changes with the time; ``None`` when it does not or is refused."""
    count = conversation.turns()[-1]
    try:
        before = writer.prompt(conversation, count, options)
        for unit, moment, severity in _STEPS:
            writer.clock.now = moment
            after = writer.prompt(conversation, count, options)
            if after != before:
                writer.clock.now = NOW
                char = common_length(before, after)
                line = _line(writer, conversation, options, char)
                return Ticking(conversation, count, unit, severity, before, after, char, line)
    except ChatTemplateError:
        return None
    finally:
        writer.clock.now = NOW
    return None


def _line(writer: Writer, conversation: Conversation, options: Options, char: int) -> int:
    """The line that prints the time if it asks for it too, else the first one that asks."""
    printed = writer.trace(conversation, conversation.turns()[-1], options).line_at(char)
    asking = writer.template.lines_that_call(CLOCK)
    return printed if printed in asking or not asking else asking[0]
