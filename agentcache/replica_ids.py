"""Ids that say which replica made them, so that who routes requests needs no table of them.

::

    sess_0123abcd            made by a server that stands alone
    sess_0123abcd-r7f3k2     made by the replica r7f3k2

An id is only a hint: a session of a replica that is gone goes on elsewhere under the same id.
"""

from __future__ import annotations

import re

NAME = re.compile(r"[a-z0-9]{1,32}")
"""Of a replica."""
_TAGGED = re.compile(r"[A-Za-z0-9_]{1,128}-([a-z0-9]{1,32})")


def tagged(name: str, replica: str | None) -> str:
    """The id ``name`` as ``replica`` gives it out; as it is, for a server without such a name."""
    return name if replica is None else f"{name}-{replica}"


def replica_of(name: str) -> str | None:
    """The replica that made an id; ``None`` where it does not say."""
    match = _TAGGED.fullmatch(name)
    return None if match is None else match[1]
