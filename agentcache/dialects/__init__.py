"""Requests of other protocols in the words of chat completions: what servers and linters both have to say alike.

::

    Anthropic messages ──► anthropic/ ──┐
                                        ├──► messages, tools, template variables of a chat completion
    OpenAI responses ────► responses/ ──┘     + which characters of the body each string was made of

What cannot be translated is refused with the place, what was got and what was expected.  Parts that are no text are refused
as well, unless the caller has something to put in their place (``foreign``).
"""
