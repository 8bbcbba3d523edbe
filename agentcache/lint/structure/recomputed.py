"""How many tokens are computed again though the same messages were computed before, at another place."""

from __future__ import annotations

from agentcache.chat.text import common_length
from agentcache.errors import ChatTemplateError
from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt


def tokens_between(parting: Parting, first: int, end: int) -> int:
    """Tokens of the later request's messages ``[first, end)``, of which the last token of a prompt is never cached.

    ::

        later:  [ as before )[ first … end )[ new )
                                 counted
    """
    prompt = parting.later
    start, stop = (_start_of(prompt, index) for index in (first, end))
    last = min(prompt.token_at(stop) if stop < len(prompt.text) else len(prompt.tokens), len(prompt.tokens) - 1)
    return max(0, last - max(parting.token, prompt.token_at(start)))


def _start_of(prompt: Prompt, index: int) -> int:
    """Character of the text at which message ``index`` begins: how far the messages before it are rendered as they are here."""
    body = prompt.record.body
    messages = body["messages"][:index]
    if not messages:
        return 0
    if index >= len(body["messages"]):
        return prompt.history_end
    try:
        text = prompt.maker.render_text({**body, "messages": messages, "add_generation_prompt": False})
    except ChatTemplateError:  # a history must not end there
        leaves = [leaf for leaf in prompt.leaves if leaf.message is not None and leaf.message >= index]
        return min((leaf.start for leaf in leaves), default=prompt.history_end)
    return common_length(text, prompt.text)
