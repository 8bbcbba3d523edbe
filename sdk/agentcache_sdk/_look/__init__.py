"""The client's own look at what it is about to send.

``ClientLook`` remembers what a client sent (``memory``), finds where a new request parts from an earlier one and comes
back to the same text behind that (``history``), and says why (``causes``, ``texts``, ``tools``, ``volatile_text``).
``agentcache lint`` is the thorough one: it has the tokenizer and the template.
"""

from agentcache_sdk._look.look import ClientLook, Glance
from agentcache_sdk._look.watch import Watch

__all__ = ["ClientLook", "Glance", "Watch"]
