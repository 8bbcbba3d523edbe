"""Tries every conversation, with every option where that matters, and keeps what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from agentcache.errors import ChatTemplateError
from agentcache.lint.templates.conversations import (
    LATE_SYSTEM,
    REASONED,
    REASONING_KEYS,
    ROUNDS,
    SYSTEM,
    UNREASONED,
    Conversation,
)
from agentcache.lint.templates.options import Thinking, candidates
from agentcache.lint.templates.turns import Course, Part, Rewrite, follow
from agentcache.lint.templates.writer import Options, Writer


class Survey:
    """How a template writes the fixed conversations.

    Args:
        plain: the template.
        with_tools: the one for conversations with tools, where that is another.
        named_tokens: what every rendering gets (``bos_token`` …).
    """

    def __init__(self, plain: Writer, with_tools: Writer, named_tokens: Mapping[str, str]) -> None:
        self._plain = plain
        self._with_tools = with_tools
        self._courses: dict[tuple[str, str, str], Course] = {}
        writers = dict.fromkeys((plain, with_tools))
        self.options = [
            dict(o) for o in _unique(o for writer in writers for o in candidates(writer, list(named_tokens)))
        ]
        self.thinking = Thinking(plain, self.options)

    def writer(self, conversation: Conversation) -> Writer:
        return self._with_tools if conversation.tools else self._plain

    @cached_property
    def reasoned(self) -> tuple[Conversation, ...]:
        """The conversations with reasoning, in the way this template takes it; none where it knows nothing of reasoning."""
        for key in REASONING_KEYS:
            carried = tuple(conversation.with_reasoning_as(key) for conversation in REASONED)
            if any(self._shows_thoughts(conversation) for conversation in carried):
                return carried
        inline = tuple(conversation.with_reasoning_as(None) for conversation in REASONED)
        return inline if self._drops_thoughts(inline[0]) else ()

    def course(self, conversation: Conversation, options: Options) -> Course:
        """What came of ``conversation``, without its system text where the template takes none; worked out once."""
        key = (conversation.title, conversation.carrier, json.dumps(options, sort_keys=True))
        if key not in self._courses:
            course = follow(self.writer(conversation), conversation, options)
            if course.refused is not None and conversation not in (SYSTEM, LATE_SYSTEM):
                bare = conversation.without_system()
                without = follow(self.writer(bare), bare, options)
                course = course if without.refused is not None else without
            self._courses[key] = course
        return self._courses[key]

    def prompt_courses(self) -> list[Course]:
        """What is asked of histories: each conversation, those with reasoning where the model reasons."""
        courses = [self.course(conversation, {}) for conversation in UNREASONED]
        if self.reasoned:
            courses += [self.course(conversation, self.thinking.on) for conversation in self.reasoned]
        return courses

    def left_out(self) -> Course | None:
        """The rounds of tools of a model that thinks and whose thoughts are not replayed; ``None`` where that is nothing new."""
        return self.course(ROUNDS, self.thinking.on) if self.reasoned and self.thinking.on else None

    def reply_courses(self) -> list[Course]:
        """What is asked of replies: with their reasoning where the model reasons."""
        if not self.reasoned:
            return [self.course(conversation, {}) for conversation in UNREASONED]
        return [self.course(conversation, self.thinking.on) for conversation in self.reasoned]

    def unthinking_courses(self) -> list[Course]:
        """Replies of a model that is told not to think."""
        if not self.reasoned:
            return []
        return [self.course(c, off) for off in self.thinking.off for c in UNREASONED]

    def optional_rewrites(self) -> list[Rewrite]:
        """What is rewritten only under an option that is not the default."""
        usual = {(r.part, r.conversation.title) for course in self._usual() for r in course.rewrites}
        found = []
        for option in self.options:
            if self.thinking.switches.intersection(option):
                continue
            for course in self._usual():
                tried = self.course(course.conversation, {**course.options, **option})
                found += [
                    rewrite
                    for rewrite in tried.rewrites
                    if (rewrite.part, course.conversation.title) not in usual
                    and (rewrite.part is Part.PROMPT or self._speaks_as_asked(tried))
                ]
        return found

    def mended(self, rewrite: Rewrite) -> list[dict[str, Any]]:
        """Options under which nothing like ``rewrite`` happens in its conversation, and nothing that was said is left out."""
        found = []
        for option in self.options:
            if set(option) & set(rewrite.options):
                continue
            course = self.course(rewrite.conversation, {**rewrite.options, **option})
            if course.refused or course.of(Part.PROMPT) or course.of(rewrite.part):
                continue
            said = [word for word in rewrite.conversation.words(rewrite.earlier + 1) if word in rewrite.before]
            if all(word in course.prompts[-1] for word in said):
                found.append(option)
        return found

    def _usual(self) -> list[Course]:
        left_out = self.left_out()
        return [*self.prompt_courses(), *([left_out] if left_out else [])]

    def _speaks_as_asked(self, course: Course) -> bool:
        """Whether the replies are such as the model would give under these options."""
        if not self.reasoned:
            return True
        return self.thinking.as_when_on(course.options) == course.conversation.reasons

    def _shows_thoughts(self, conversation: Conversation) -> bool:
        thought = self._first_thought(conversation)
        return any(thought in text for text in self._histories(conversation))

    def _drops_thoughts(self, conversation: Conversation) -> bool:
        thought = self._first_thought(conversation)
        return any(thought not in text for text in self._histories(conversation))

    def _histories(self, conversation: Conversation) -> list[str]:
        """The conversation after its first reply, and wherever it goes on from there."""
        first = next(i for i, message in enumerate(conversation.messages) if message["role"] == "assistant")
        texts = []
        for options in _unique([{}, self.thinking.on]):
            for count in range(first + 1, len(conversation.messages) + 1):
                try:
                    texts.append(self.writer(conversation).prompt(conversation, count, options, opened=False))
                except ChatTemplateError:
                    continue
        return texts

    @staticmethod
    def _first_thought(conversation: Conversation) -> str:
        first = next(message for message in conversation.messages if message["role"] == "assistant")
        told = next((first[key] for key in REASONING_KEYS if key in first), None)
        return str(told or first["content"].partition("</think>")[0].removeprefix("<think>").strip())


def _unique(options: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    seen = {json.dumps(option, sort_keys=True): option for option in options}
    return list(seen.values())
