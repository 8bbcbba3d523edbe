"""AC701: a chat template that prints the time.  Found by the template check; see ``agentcache.lint.templates``."""

from __future__ import annotations

from agentcache.lint.rules.base import Rule

RULE = Rule(
    code="AC701",
    name="template-clock",
    what="A chat template prints the date or the time at which the prompt is rendered.",
    why=(
        "The time usually stands in the first lines, so everything behind it, which is nearly everything, is computed again each "
        "time it changes: at midnight for a date, all the time for a time of day. A session that is still open then starts from "
        "nothing. No two requests of one run show it; the check renders the template under several clocks. It reads templates "
        "(.jinja files, and agentcache lint template MODEL)."
    ),
    bad="Today Date: {{ strftime_now('%d %b %Y') }}",
    good="{%- if date_string is defined %}Today Date: {{ date_string }}{%- endif %}",
    fix_safety=(
        "Shown, never applied. Where the template takes the date from a variable, it can be set for a session "
        "(chat_template_kwargs); the check tries that and says so."
    ),
    precedence=95,
)
