"""AC602: a conversation goes on under another cache salt."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.records import Body
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import agent_of
from agentcache.lint.structure.settings import changed_fields, with_fields_of


def explain(parting: Parting) -> Cause | None:
    """The later request of a conversation has another ``cache_salt`` than the earlier one."""
    if "cache_salt" not in changed_fields(parting):
        return None
    earlier, later = parting.earlier.record.body, parting.later.record.body
    return Cause(
        place=("cache_salt", agent_of(parting.later)),
        edit=BodyEdit(with_fields_of(later, earlier, ("cache_salt",)), ("cache_salt",)),
        char=None,
        severity="error",
        before=_words(earlier),
        after=_words(later, "another salt"),
        message="the conversation goes on under another cache_salt, so nothing of it can be found",
        help=(
            "derive the salt from what may share a cache (a tenant, a user), once, and send it with every request of the "
            "conversation; a salt that is drawn for each request switches the cache off"
        ),
    )


def _words(body: Body, salted: str = "a salt") -> str:
    """Never the salt itself: it may be a secret."""
    return salted if body.get("cache_salt") else "no salt"


RULE = Rule(
    code="AC602",
    name="cache-salt-changed",
    what="A later request of a conversation has another cache_salt, or loses or gets one.",
    why=(
        "The salt is part of every cached page's name: requests with different salts share nothing, which is what it is for. "
        "Within one conversation that means that each change computes everything again."
    ),
    bad='turn 1: {"cache_salt": "9f2c…", …}\nturn 2: {"cache_salt": "41d0…", …}',
    good='turn 1: {"cache_salt": "tenant-17", …}\nturn 2: {"cache_salt": "tenant-17", …}',
    fix_safety="Shown, never applied: the salt decides who may share a cache. The salts themselves are never printed.",
    precedence=10,
    explain=explain,
)
