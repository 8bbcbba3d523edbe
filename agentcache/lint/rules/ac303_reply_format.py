"""AC303: tool_choice or response_format differs within a conversation, and the template prints it."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.records import Body
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import agent_of, comparable, goes_on, renders_further
from agentcache.lint.structure.settings import REPLY_OPTIONS, options_of, with_fields_of, with_options_of
from agentcache.lint.structure.words import as_json, cut, listed


def explain(parting: Parting) -> Cause | None:
    """What the reply is held to is another than before, and with it the text of the prompt."""
    if not comparable(parting) or not goes_on(parting):
        return None
    earlier, later = parting.earlier.record.body, parting.later.record.body
    names = [name for name in REPLY_OPTIONS if _value(earlier, name) != _value(later, name)]
    if not names:
        return None
    body = with_options_of(with_fields_of(later, earlier, names), earlier, names)
    if not renders_further(parting, body):
        return None
    in_options = next((name for name in names if name in options_of(later)), None)
    direct = next((name for name in names if name in later), None)
    keys = ("chat_template_kwargs", in_options) if in_options else (direct,) if direct else ()
    return Cause(
        place=("reply format", agent_of(parting.later), tuple(names)),
        edit=BodyEdit(body, keys),
        char=None,
        severity="warning",
        before=cut(as_json({name: _value(earlier, name) for name in names})),
        after=cut(as_json({name: _value(later, name) for name in names})),
        message=f"{listed(names)} changes within the conversation, and the chat template writes it into the prompt",
        help="keep it the same for a conversation, or ask for another form of the reply in the newest message",
    )


def _value(body: Body, name: str) -> object:
    return options_of(body).get(name, body.get(name))


RULE = Rule(
    code="AC303",
    name="reply-format-changed",
    what="tool_choice or response_format differs within a conversation, and the chat template prints it.",
    why=(
        "Most templates leave both out of the prompt; the reply is then held to them by a grammar, and changing them costs "
        "nothing. Where a template prints them before the conversation, a turn with another format computes all of it again."
    ),
    bad=(
        'turn 1: {"chat_template_kwargs": {"response_format": null}, …}\n'
        'turn 2: {"chat_template_kwargs": {"response_format": {"type": "json_object"}}, …}'
    ),
    good='turn 1: {"response_format": {"type": "text"}, …}\nturn 2: {"response_format": {"type": "json_object"}, …}',
    fix_safety="Shown, never applied: the format decides what comes back.",
    precedence=20,
    explain=explain,
)
