"""AC702: a chat template that writes earlier messages another way when more of them follow."""

from __future__ import annotations

from agentcache.chat.messages import Message
from agentcache.chat.renderer import MessageSpans
from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, NoEdit, Rule

_SHOWN = 48


def explain(parting: Parting) -> Cause | None:
    """Nothing but new messages was sent, and the text of the old ones is not the same.

    ::

        earlier:  [ system ][ user ][ call, thought ][ result ][ opening )
        later:    [ system ][ user ][ call ][ result ][ answer ][ user ][ opening )
                                          ^ char                 lost: from here to the opening
    """
    earlier, later = parting.earlier, parting.later
    if not _only_appended(parting):
        return None
    end = earlier.history_end
    if parting.char >= end:
        return None  # only the generation prompt, which the reply takes the place of
    lost = earlier.token_at(end) - parting.token
    if end == len(earlier.text):
        lost = len(earlier.tokens) - parting.token
    if lost < earlier.maker.page_size:
        return None
    index = _message_at(earlier, parting.char)
    message = earlier.messages[index]
    what, place = _what(message, parting), earlier.path(("messages", index))
    return Cause(
        place=("rewritten", message["role"], what),
        edit=NoEdit(("messages", index), lost),
        char=None,
        severity="warning",
        before=_excerpt(earlier.text, parting.char),
        after=_excerpt(later.text, parting.char),
        message=f"the chat template {what} of {place} ({message['role']}), now that more messages follow it",
        help=_HELP,
        verdict="unavoidable",
    )


def _only_appended(parting: Parting) -> bool:
    """One conversation, the same tools and settings, and all earlier messages before the new ones."""
    earlier, later = parting.earlier, parting.later
    if parting.session is None or parting.settings_changed or parting.options_changed or not parting.same_tools:
        return False
    if not earlier.messages or not parting.alignment.appends_only:
        return False
    grown = parting.alignment.at == len(earlier.messages) < len(later.messages)
    return grown and all(earlier.record.body.get(name) == later.record.body.get(name) for name in _PRINTED)


_HELP = (
    "agentcache lint template names the line of the template, tries the options that could keep earlier text as it is, and says "
    "whether a session of agentcache, which keeps generated replies as they were drawn, loses anything"
)
_PRINTED = ("tool_choice", "response_format")
"""Fields that some templates print."""


def _message_at(prompt: Prompt, char: int) -> int:
    body = prompt.record.body

    def first(count: int) -> str:
        return prompt.maker.render_text({**body, "messages": body["messages"][:count], "add_generation_prompt": False})

    found = MessageSpans(prompt.text, len(prompt.messages), first).message_at(char)
    return len(prompt.messages) - 1 if found is None else found


def _what(message: Message, parting: Parting) -> str:
    thought = message.get("reasoning_content")
    if (
        thought
        and thought in parting.earlier.text[parting.char :]
        and thought not in parting.later.text[parting.char :]
    ):
        return "leaves out the reasoning"
    return "rewrites the text"


def _excerpt(text: str, char: int) -> str:
    start, end = max(0, char - _SHOWN // 2), char + _SHOWN
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


RULE = Rule(
    code="AC702",
    name="not-append-only",
    what="A chat template writes earlier messages another way when new ones follow: it leaves reasoning out, moves a block.",
    why=(
        "The program sent the same messages and added to them, yet the prompt's text changes in the middle. What stands behind "
        "that place was computed and is computed again. Templates of reasoning models do it when a user speaks again; others "
        "keep the tools in front of the last question, or treat the last message in its own way. agentcache keeps generated "
        "replies as they are, so it loses less than a cache that only compares texts."
    ),
    bad="{% if loop.index0 > ns.last_user_index %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}",
    good="<think>{{ message.reasoning_content }}</think>{{ message.content }}",
    fix_safety=(
        "Shown, never applied: the template belongs to the model. Some have an option that keeps earlier text "
        "(preserve_thinking, clear_thinking=false); agentcache lint template tries them."
    ),
    precedence=95,
    explain=explain,
)
