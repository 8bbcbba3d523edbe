"""AC203: the same items in another order."""

from __future__ import annotations

import json

from agentcache.chat.text import common_length
from agentcache.lint.finding import Fix
from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.texts.forms import mask_slots
from agentcache.lint.texts.orders import find_reordered
from agentcache.lint.texts.schemas import find_reordered_list
from agentcache.lint.texts.spans import Span
from agentcache.lint.texts.spots import Words, find_spot, shown

_HELP = "sort what comes out of a set (or of any collection without an order) before it is written into {path}"
_BEFORE = 200
"""Characters before the line of a list by which it is known again."""


def explain(parting: Parting) -> Cause | None:
    """The two requests part in a list that holds the same items in both."""
    spot = find_spot(parting)
    if spot is not None:
        found = find_reordered(spot.before, spot.after, spot.offset, spot.line_end)
        span = None if found is None else Span(*found)
        if span is not None and spot.comes_again(span):
            message = f"the same items come in another order in {spot.owner}"
            line = spot.after[: span.start].rpartition(spot.line_end)[0]
            place = "items", mask_slots(line[-_BEFORE:])
            return spot.cause(span, Words("error", message, _HELP.format(path=spot.path)), place=place)
    return None if parting.same_tools else _explain_schema(parting)


def _explain_schema(parting: Parting) -> Cause | None:
    found = find_reordered_list(parting)
    if found is None:
        return None
    before, after = json.dumps(found.before, ensure_ascii=False), json.dumps(found.after, ensure_ascii=False)
    char = common_length(before, after)
    others = found.count - 1
    more = "" if others < 1 else f", and so {'does' if others == 1 else 'do'} {others} other{'s' if others > 1 else ''}"
    return Cause(
        place=("schema", found.tool),
        edit=BodyEdit(found.body, found.keys),
        char=None,
        severity="error",
        before=shown(before, char, len(before)),
        after=shown(after, char, len(after)),
        message=f"a list in the schema of the tool {found.tool!r} holds the same items in another order{more}",
        help=_HELP.format(path=parting.later.path(found.keys)),
        fix=Fix(applicability="unsafe"),
    )


RULE = Rule(
    code="AC203",
    name="set-order",
    what="A list in the system text, in a tool's description or in its schema holds the same items in another order.",
    why=(
        "Sets have no order: Python's strings come out of them in another one in each process, other languages shuffle on "
        "purpose. The model reads the same list, but the cache sees another text from its first item on."
    ),
    bad='{"role": "system", "content": "Languages: " + ", ".join({"German", "English", "French"}) + " …"}',
    good='{"role": "system", "content": "Languages: " + ", ".join(sorted({"German", "English", "French"})) + " …"}',
    fix_safety=(
        "Unsafe: the list of a schema is written in the order of the earlier request. That says the same, but models look at "
        "order. Sorting where the list is made is the real repair. Texts are shown, never changed."
    ),
    precedence=20,
    explain=explain,
)
