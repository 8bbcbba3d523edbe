"""What a request asks for besides what it says: model, salt, adapter, and the options of the template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentcache.lint.parting import Parting
from agentcache.lint.prompt import adapter_of
from agentcache.lint.records import Body
from agentcache.lint.structure.conversations import goes_on

_ADAPTED = re.compile(r"(?P<base>[^:]+):(?P<adapter>[^:]+)")
_TAG = re.compile(
    r"\d+(?:\.\d+)?(?:x\d+)?[bmk](?:$|[-_.])|e\d+b|latest$|free$|thinking$|nitro$|floor$|online$|extended$|beta$|v?\d+(?:\.\d+)*$"
    r"|(?:iq|q)\d|fp\d+|bf16|f16|cloud$|main$|instruct|chat$",
    re.IGNORECASE,
)
"""What registries and routers write behind a colon that is no adapter's name."""
REPLY_OPTIONS = ("tool_choice", "response_format")
"""What a reply is held to; some templates print it."""


class Named(NamedTuple):
    """A model, and the adapter on it."""

    model: str | None
    adapter: str | None


def named(body: Body) -> Named:
    """``base:adapter`` in the field ``model`` counts as both."""
    model = body.get("model")
    model = model if isinstance(model, str) and model else None
    adapter = adapter_of(body)
    match = _ADAPTED.fullmatch(model) if model is not None and adapter is None else None
    if match is None or _TAG.match(match["adapter"]):
        return Named(model, adapter)
    return Named(match["base"], match["adapter"])


def changed_fields(parting: Parting) -> frozenset[str]:
    """Which of ``model``, ``adapter`` and ``cache_salt`` a conversation goes on with another value of.

    A request that names no model takes the server's, which may be the same.
    """
    if not parting.settings_changed or not parting.later.messages or not goes_on(parting):
        return frozenset()
    mine, theirs = named(parting.earlier.record.body), named(parting.later.record.body)
    changed = {"cache_salt"} & set(parting.settings_changed)
    if mine.model and theirs.model and mine.model != theirs.model:
        changed.add("model")
    elif mine.adapter != theirs.adapter and (mine.model is not None) == (theirs.model is not None):
        changed.add("adapter")
    return frozenset(changed)


def with_fields_of(body: Body, earlier: Body, names: Sequence[str]) -> Body:
    """A copy of ``body`` in which the fields ``names`` are as in ``earlier``."""
    kept = {key: value for key, value in body.items() if key not in names}
    return kept | {name: earlier[name] for name in names if name in earlier}


def options_of(body: Body) -> Mapping[str, Any]:
    options = body.get("chat_template_kwargs")
    return options if isinstance(options, Mapping) else {}


def changed_options(earlier: Body, later: Body) -> list[str]:
    """Names of the template's variables that differ."""
    mine, theirs = options_of(earlier), options_of(later)
    return [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]


def with_options_of(body: Body, earlier: Body, names: Sequence[str]) -> Body:
    """A copy of ``body`` in which the template's variables ``names`` are as in ``earlier``."""
    options = with_fields_of(options_of(body), options_of(earlier), names)
    rest = {key: value for key, value in body.items() if key != "chat_template_kwargs"}
    return {**rest, "chat_template_kwargs": options} if options else rest
