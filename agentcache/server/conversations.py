"""From messages to a prompt: the one place where a whole history becomes token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from agentcache.chat.messages import Message, normalize_messages, normalize_tools
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.splice import ChatInput
from agentcache.server.bodies import ChatPrompt
from agentcache.server.context import Context
from agentcache.sessions.known import KnownTranscripts
from agentcache.sessions.naming import name_conversation
from agentcache.sessions.transcript import Prompt, continue_text, fresh_prompt, headed, render, splice

_TRIED = 3
"""Known beginnings that are tried; of those that say the same, nearly always the first one fits."""


def converse(context: Context, chat: ChatPrompt, root: bytes) -> Prompt:
    """The prompt of a whole history in the namespace ``root``: what was generated in it has the ids it was drawn with.

    Raises:
        ChatTemplateError: messages that are malformed, or that the model's template refuses.
        RequestError: more text than can fit the context, told before it is tokenised.
    """
    messages = normalize_messages(chat.messages)
    context.text_bounds.check_messages(messages)
    asked = ChatInput(
        messages,
        normalize_tools(chat.tools),
        chat.chat_template_kwargs,
        chat.add_generation_prompt is not False,
        root,
    )
    return recall(context.desk.known, root, asked, messages, context.engine.renderer)


def begun(context: Context, prompt: Prompt, beginning: str) -> Prompt:
    """``prompt`` with the beginning of its reply given; control tokens that it spells are text.

    ::

        prompt   [ messages, generation prompt ][ beginning ] -> the reply goes on
    """
    tokenizer = context.engine.tokenizer
    spelled = "\n" + beginning
    return replace(
        prompt,
        transcript=prompt.transcript.with_text(tokenizer.encode(beginning, parse_special=False), beginning),
        encoded=None,
        spells_controls=prompt.spells_controls or bool(tokenizer.last_control_before(spelled, len(spelled))),
        header=prompt.header + len(beginning),
    )


def recall(
    known: KnownTranscripts, root: bytes, chat: ChatInput, messages: Sequence[Message], renderer: ChatRenderer
) -> Prompt:  # fmt: skip
    """The prompt of ``chat``, beginning with the longest transcript that is known of it.

    ::

        1. by what was said: the longest beginning that ends with a reply generated here, rendered around such replies
        2. by its text, for templates that cannot be rendered around replies
        3. as it is rendered and tokenised

    Args:
        messages: those of ``chat``, in the one shape.
    """
    names = name_conversation(root, chat.tools, messages)
    spliced: Prompt | None = None
    for transcript in islice(known.find(names, messages), _TRIED):
        prompt = splice(transcript, chat, renderer)
        if prompt is None:
            continue
        if len(prompt.transcript.replies) == len(transcript.replies):
            return prompt
        spliced = prompt if spliced is None or prompt.kept.tokens > spliced.kept.tokens else spliced
    rendered = render(renderer, chat)
    found = None if rendered.spells_controls else known.find_text(root, rendered.text)
    if found is not None and (spliced is None or len(found) > spliced.kept.tokens):
        # The same text may be of other messages: where its replies lie among these is not known.
        return headed(continue_text(replace(found, replies=()), rendered), renderer, chat)
    return headed(fresh_prompt(rendered), renderer, chat) if spliced is None else spliced
