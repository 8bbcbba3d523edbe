"""OpenAI's Responses API: conversations as items, kept by the server and continued by ``previous_response_id``.

::

    body ── items, tools ──► ChatBody ──► Job ──► engine ──► pieces ──► output items ──► events, or one object
               ▲                                                              │
               └───────────── previous_response_id ◄── ResponseStore ◄────────┘
"""
