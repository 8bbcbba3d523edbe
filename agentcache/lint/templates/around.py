"""Whether agentcache loses what a template rewrites: it renders a conversation around the replies that it generated.

::

    request 1    [ piece 0, opening ]
    request 2    [ piece 0 ......... ] reply [ piece 1, opening ]
    request 3    [ piece 0 ......... ] reply [ piece 1 ......... ] reply [ piece 2, opening ]

What the template would make of a reply does not matter then, nor how it begins one in a history; only what it writes between
replies has to be repeated.
"""

from __future__ import annotations

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.splice import ChatInput
from agentcache.errors import ChatTemplateError
from agentcache.lint.templates.turns import Rewrite


def is_kept_around(renderer: ChatRenderer, rewrite: Rewrite) -> bool:
    """Whether a server that generated the replies itself repeats all of the earlier request in the later one."""
    after = _pieces(renderer, rewrite, rewrite.later)
    if after is None:
        return False
    for number, asked in enumerate(_replies(rewrite, rewrite.later)):
        if asked > rewrite.earlier:
            break
        then = _pieces(renderer, rewrite, asked)
        if then is None:
            return False
        opening = renderer.opening(_input(rewrite, asked))
        if not after[number].startswith(then[-1].removesuffix(opening)):
            return False
    return True


def _pieces(renderer: ChatRenderer, rewrite: Rewrite, count: int) -> tuple[str, ...] | None:
    """What the request of ``count`` messages has around its replies."""
    try:
        around = renderer.render_around(_input(rewrite, count), _replies(rewrite, count))
    except ChatTemplateError:
        return None
    return None if around is None else around.pieces


def _input(rewrite: Rewrite, count: int) -> ChatInput:
    conversation = rewrite.conversation
    return ChatInput(conversation.messages[:count], list(conversation.tools) or None, rewrite.options)


def _replies(rewrite: Rewrite, count: int) -> dict[int, list[str]]:
    """The replies among the first ``count`` messages, with the ids of their calls."""
    said = enumerate(rewrite.conversation.messages[:count])
    return {
        index: [call["id"] for call in message.get("tool_calls", ())]
        for index, message in said
        if message["role"] == "assistant"
    }
