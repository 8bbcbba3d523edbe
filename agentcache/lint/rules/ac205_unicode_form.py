"""AC205: the same text in another Unicode form."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import Cause, Rule
from agentcache.lint.texts.writing import find_rewritten, letters_differ, same_but_for_form


def explain(parting: Parting) -> Cause | None:
    """The two requests part in a letter that is composed in one and decomposed in the other."""
    found = find_rewritten(parting, same_but_for_form, letters_differ)
    if found is None:
        return None
    return found.cause(
        "the same text in another Unicode form",
        'bring text to one form where it enters the program, for instance with unicodedata.normalize("NFC", text)',
        "safe",
    )


RULE = Rule(
    code="AC205",
    name="unicode-form",
    what="A text is canonically equivalent to that of the earlier request, but letters with accents are spelled in another way.",
    why=(
        "é can be one character (NFC) or an e and an accent (NFD, as macOS file names and some keyboards give it). They look "
        "alike and mean the same, but they are other tokens, and everything behind the first one is computed again."
    ),
    bad='"Antworte auf Französisch" with o and U+0308 in one request, with U+00F6 in the next',
    good='"Antworte auf Französisch" in NFC in every request',
    fix_safety="Safe: both are the same text by the Unicode standard; it is written as in the earlier request.",
    precedence=18,
    explain=explain,
)
