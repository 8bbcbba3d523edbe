"""AC204: the same text with other white space."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import Cause, Rule
from agentcache.lint.texts.writing import Rewritten, blanks_differ, find_rewritten, same_but_for_blanks


def explain(parting: Parting) -> Cause | None:
    """The two requests part in white space, in a text that is otherwise the same."""
    found = find_rewritten(parting, same_but_for_blanks, blanks_differ)
    if found is None:
        return None
    return found.cause(
        f"the same but for {_what(found)}",
        "strip and join texts in one place only, and replay messages byte for byte as they were sent or received",
        "unsafe",
    )


def _what(found: Rewritten) -> str:
    if found.before.replace("\r\n", "\n") == found.after.replace("\r\n", "\n"):
        return "its line ends (CR LF and LF)"
    if found.before.lstrip() == found.after.lstrip():
        return "white space at its beginning"
    if found.before.rstrip() == found.after.rstrip():
        return "white space at its end"
    return "white space"


RULE = Rule(
    code="AC204",
    name="white-space",
    what="A system text, a tool's text or a replayed message is the same as before but for blanks or line ends.",
    why=(
        "A trailing blank that is stripped on the way to the database, or CR LF from one editor and LF from another, is "
        "invisible to people and another token to the cache. Everything behind it is computed again."
    ),
    bad='{"role": "assistant", "content": "Done."} for a reply that was received as "Done.\\n"',
    good='{"role": "assistant", "content": "Done.\\n"}: stored and replayed as it was received',
    fix_safety="Unsafe: the text is written as in the earlier request. White space can carry meaning, in code above all.",
    precedence=18,
    explain=explain,
)
