"""Whether two requests are turns of one conversation, or requests of one program."""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from agentcache.chat.messages import Message
from agentcache.chat.text import common_length
from agentcache.errors import ChatTemplateError
from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.records import Body
from agentcache.lint.texts.forms import mask_slots

HEAD_ROLES = frozenset({"system", "developer"})


def comparable(parting: Parting) -> bool:
    """Two chats that are cached under one name."""
    return bool(parting.earlier.messages and parting.later.messages) and not parting.settings_changed


def goes_on(parting: Parting) -> bool:
    """The later request repeats the earlier one with a reply, and adds to it.

    ::

        earlier:  [ system ][ user ]                 the reply is not in the file
        later:    [ system ][ user ][ reply ][ user ]

        earlier:  [ system ][ user ][ reply ][ user ]
        later:    [ system ][ user'][ reply ][ user ][ reply ][ user ]    something may differ on the way

    Forks, retries and other conversations of the same beginning do not: they are not longer behind what differs, or no
    reply is the same.
    """
    if parting.session is None:
        return False
    alignment = parting.alignment
    mine, theirs = parting.earlier.messages, parting.later.messages
    if alignment.at == len(mine):
        return len(theirs) > len(mine) and has_reply(theirs[: alignment.at + 1])
    replied = has_reply(theirs[: alignment.at]) or alignment.meets or answers_behind(parting)
    return replied and grows(parting)


def grows(parting: Parting) -> bool:
    """Behind what differs, the later history is the longer one."""
    alignment = parting.alignment
    left = len(parting.earlier.messages) - alignment.at - alignment.gone
    return len(parting.later.messages) - alignment.at - alignment.new > left


def answers_behind(parting: Parting) -> bool:
    """The earlier history comes again to its end, and a reply follows: the one that it got."""
    alignment = parting.alignment
    ends = alignment.at + alignment.gone + alignment.again == len(parting.earlier.messages)
    following = parting.later.messages[alignment.at + alignment.new + alignment.again :][:1]
    return ends and alignment.again > 0 and has_reply(following)


def has_reply(messages: Sequence[Message]) -> bool:
    return any(message["role"] == "assistant" for message in messages)


def agent_of(prompt: Prompt) -> int:
    """Equal for requests with the same system text but for times, ids and numbers; 0 without one."""
    text = _system_of(prompt)
    return 0 if text is None else xxh3_64_intdigest(mask_slots(text).encode("utf-8", "surrogatepass"))


def same_agent(parting: Parting) -> bool:
    """Both have the same system text but for what is filled in, or neither has one."""
    mine, theirs = _system_of(parting.earlier), _system_of(parting.later)
    if mine == theirs or mine is None or theirs is None:
        return mine == theirs
    words, others = set(mine.split()), set(theirs.split())
    return 4 * len(words & others) >= 3 * max(len(words), len(others))


def _system_of(prompt: Prompt) -> str | None:
    head = prompt.messages[:1]
    return head[0]["content"] if head and head[0]["role"] in HEAD_ROLES else None


def renders_further(parting: Parting, body: Body) -> bool:
    """Whether ``body`` in place of the later request's is like the earlier one beyond the parting."""
    try:
        text = parting.later.maker.render_text(body)
    except ChatTemplateError:
        return False
    return common_length(text, parting.earlier.text) > parting.char


def renders(parting: Parting, body: Body) -> bool:
    """Whether the template takes ``body``."""
    try:
        parting.later.maker.render_text(body)
    except ChatTemplateError:
        return False
    return True
