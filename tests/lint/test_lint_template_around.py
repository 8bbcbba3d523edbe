"""Where the check says that agentcache loses nothing, a session of the server goes on with every id that it had."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from template_shapes import PLAIN, SHAPES

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.splice import ChatInput
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.templates.around import is_kept_around
from agentcache.lint.templates.survey import Survey
from agentcache.lint.templates.turns import Part
from agentcache.lint.templates.writer import NOW, TemplateSource, Writer
from agentcache.sessions.transcript import Reply, continue_chat, render_fresh

MOVES = PLAIN.replace(
    "{{ message.content }}", "{{ message.content }}{% if tools and loop.last %} Use the tools!{% endif %}"
)
FOLDER = os.environ.get("AGENTCACHE_TEMPLATES")
OWN = {**SHAPES, "moves": MOVES}
TEMPLATES = {file.stem: file.read_text("utf-8") for file in sorted(Path(FOLDER).glob("*.jinja"))} if FOLDER else OWN


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer.from_folder(tokenizer_folder)


def chat(rewrite, count):
    conversation = rewrite.conversation
    return ChatInput(conversation.messages[:count], list(conversation.tools) or None, rewrite.options)


def goes_on(renderer, rewrite) -> bool:
    """Play the conversation with replies of other words, and see whether the later request begins with all that was known."""
    turns = [count for count in rewrite.conversation.turns() if count <= rewrite.later]
    prompt = render_fresh(renderer, chat(rewrite, turns[0]))
    for asked, following in pairwise(turns):
        said = ReplyMessage(content="as it was drawn")
        ids = renderer.tokenizer.encode("<think>other words</think>as it was drawn")
        reply = Reply("<think>other words</think>as it was drawn", ids, None, said)
        known = prompt.transcript.with_reply(asked, prompt.header, reply, renderer.tokenizer)
        prompt = continue_chat(known, chat(rewrite, following), renderer)
        kept = prompt.broken_at is None and prompt.transcript.ids[: len(known)] == known.ids
        if not kept or len(prompt.transcript.replies) < len(known.replies):
            return False
    return True


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_is_said_to_be_kept_is_kept_by_a_session(name, tokenizer):
    names = tokenizer.named_tokens
    writer = Writer(TemplateSource(name, TEMPLATES[name]), names)
    survey = Survey(writer, writer, names)
    renderer = ChatRenderer(tokenizer, TEMPLATES[name], clock=lambda: NOW)
    courses = [*survey.prompt_courses(), *survey.reply_courses(), *survey.unthinking_courses()]
    for rewrite in (rewrite for course in courses for rewrite in course.rewrites):
        if is_kept_around(renderer, rewrite):
            assert goes_on(renderer, rewrite), (rewrite.part, rewrite.conversation.title, rewrite.earlier)


def test_a_template_that_writes_other_peoples_messages_anew_is_not_kept(tokenizer):
    writer = Writer(TemplateSource("moves", MOVES), {})
    survey = Survey(writer, writer, {})
    renderer = ChatRenderer(tokenizer, MOVES)
    rewrites = [rewrite for course in survey.prompt_courses() for rewrite in course.of(Part.PROMPT)]
    assert rewrites and not any(is_kept_around(renderer, rewrite) or goes_on(renderer, rewrite) for rewrite in rewrites)
