"""Explains one parting of a request after another, each time making the request as it should have been there.

::

    request ──► parts at a clock ──► without it ──► parts at the tools ──► in their order ──► parts nowhere
                [ one Explained   ]                 [ another            ]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from agentcache.errors import RequestError
from agentcache.lint.families import Families, sketch_of
from agentcache.lint.leaves import replace_at, string_at
from agentcache.lint.parting import Parting, part
from agentcache.lint.prefix_index import Reuse
from agentcache.lint.prompt import SHARED_ROLES, Prompt, PromptMaker
from agentcache.lint.records import Body
from agentcache.lint.rules import RULES
from agentcache.lint.rules.base import BodyEdit, Cause, NoEdit, TextEdit
from agentcache.lint.sessions import Session, SessionBook
from agentcache.lint.tallies import Explained

_MOST_DEFECTS = 32
"""Defects of one request that are told apart; each costs a rendering."""
_MOST_SLOTS = 8
"""Slots of one string that are told apart in one request."""
_FAMILY = 2
"""Sessions of other requests that begin alike with which a new one is compared."""


class Mender:
    """
    Args:
        maker: renders requests.
        sessions: those that are known.
        match: what a prompt finds among the requests as they are and as they should have been.
    """

    def __init__(self, maker: PromptMaker, sessions: SessionBook, match: Callable[[Prompt], Reuse]) -> None:
        self._maker = maker
        self._sessions = sessions
        self._match = match
        self._families = Families()
        self._explainers = sorted((rule for rule in RULES if rule.explain), key=lambda rule: rule.precedence)

    def keep(self, mended: Prompt, session: Session) -> None:
        """``session`` begins with this request, which was made as it should be."""
        self._families.add(sketch(mended), session.number)

    def mend(self, prompt: Prompt, session: Session) -> list[Explained]:
        """Explain one parting after another, each time making the request as it should have been there."""
        found: list[Explained] = []
        unmended = None if session.last is None else part(session.last, prompt, session.number)
        while len(found) < _MOST_DEFECTS:
            mended = found[-1].mended if found else prompt
            explained = self._explain_next(mended, session, found, unmended)
            if explained is None:
                break
            found.append(explained)
            if isinstance(explained.cause.edit, NoEdit):
                break  # nothing in the request would bring the rest back
        return found

    def _explain_next(
        self, prompt: Prompt, session: Session, found: list[Explained], unmended: Parting | None
    ) -> Explained | None:
        """
        Args:
            unmended: where the request parts from its session's last one as that was sent.
        """
        known = {explained.account: explained.at for explained in found}
        for other, parting in self._partings(prompt, session):
            # What the last request said as well can only be what was found in that one already.
            again = other is session and _goes_on(session.last, parting, unmended)
            for rule in self._explainers:
                cause = rule.explain(parting) if rule.explain is not None else None
                if cause is None:
                    continue
                if parting.token <= known.get((rule.code, cause.place), -1):
                    break  # its edit did not help, and no other rule is to have another name for it
                if again and (rule.code, cause.place) not in session.accounts:
                    continue
                edits = [explained.cause for explained in found]
                cause = _whole_string(cause, edits, parting)
                mended = self._apply(prompt, cause)
                if mended is None:
                    continue
                token = _token_before(parting, found[0].prompt) if edits else parting.token
                earlier = parting.earlier.record.reference
                char = _char_before(cause, edits)
                return Explained(rule, cause, earlier, other.number, char, token, parting.token, prompt, mended)
        return None

    def _partings(self, prompt: Prompt, session: Session) -> Iterator[tuple[Session, Parting]]:
        """Where it parts from the session's last request (and reply), from the request that shares most with it, and, when
        it begins a session, from those that begin most like it."""
        best = self._match(prompt)
        for earlier, replay in ((session.answered, True), (session.mended, False)):
            if earlier is None or (parting := part(earlier, prompt, session.number, replay=replay)) is None:
                continue
            # What a session was blamed for may come again, and is then found where it stood before.
            if session.blamed is not None or parting.settings_changed or not _goes_further(best, parting, session.last):
                yield session, parting
        numbers = [best.owner]
        if session.last is None:
            numbers += self._families.find(sketch(prompt), session.number)[:_FAMILY]
        for number in dict.fromkeys(numbers):
            other = self._sessions.get(number)
            if other is None or other is session or other.mended is None:
                continue
            if parting := part(other.mended, prompt, None):
                yield other, parting

    def _apply(self, prompt: Prompt, cause: Cause) -> Prompt | None:
        """``prompt`` with the edit made in its record, rendered again; ``None`` when that changes nothing."""
        edit = cause.edit
        if isinstance(edit, NoEdit):
            return prompt
        body = edit.body if isinstance(edit, BodyEdit) else _edited(prompt, edit)
        if body is None:
            return None
        try:
            mended = self._maker.make(replace(prompt.record, body=body, prompt_ids=None))
        except RequestError:
            return None
        same = mended.text == prompt.text and mended.tokens.packed() == prompt.tokens.packed()
        if same and mended.tokens.root == prompt.tokens.root:
            return None
        return replace(mended, first_new=prompt.first_new)


def _whole_string(cause: Cause, causes: Sequence[Cause], parting: Parting) -> Cause:
    """After many edits of one string the rest of what differs in it is mended at once, so that no text is mended for ever."""
    edit, before, after = cause.edit, parting.before, parting.after
    if not isinstance(edit, TextEdit) or before is None or after is None or parting.leaf is None:
        return cause
    keys = parting.leaf.keys
    same = sum(isinstance(each.edit, TextEdit) and each.edit.leaf.keys == keys for each in causes)
    if same < _MOST_SLOTS or edit.leaf.keys != keys:
        return cause
    return replace(cause, edit=TextEdit(edit.leaf, 0, len(after), before))


def _goes_further(best: Reuse, parting: Parting, last: Prompt | None) -> bool:
    """Whether more of the later request is found elsewhere than in its session's last one, beyond the string in which they
    part: then it goes back to an earlier request, and what was said since is another branch."""
    if best.tokens <= parting.token:
        return False
    alignment = parting.alignment
    if alignment.appends_only and alignment.at == len(parting.earlier.digests) < len(parting.later.digests):
        return False  # all that was said last comes again: it goes on from there
    leaf = parting.later_leaf
    end = parting.char if leaf is None else leaf.end
    if parting.later.start_of(best.tokens) <= end:
        return False
    unmended = None if last is None else part(last, parting.later, parting.session)
    return unmended is not None and best.tokens > unmended.token


def _goes_on(last: Prompt | None, parting: Parting, unmended: Parting | None) -> bool:
    """Whether the request says here what its session's last one said, which only without its defects said something else."""
    if last is None or parting.settings_changed or parting.replay:
        return False
    if unmended is None:
        return True
    # The request may have been mended before this place: its distance from the end is what stays.
    return len(parting.later.text) - parting.char > len(unmended.later.text) - unmended.char


def _edited(prompt: Prompt, edit: TextEdit) -> Body | None:
    """The body with the text of a rendered string replaced; ``None`` where the template changed the string."""
    start, end = prompt.string_offset(edit.leaf, edit.start), prompt.string_offset(edit.leaf, edit.end)
    if start is None or end is None:
        return None
    body = prompt.record.body
    old = string_at(body, edit.leaf.keys)
    changed: Body = replace_at(body, edit.leaf.keys, old[:start] + edit.content + old[end:])
    return changed


def _token_before(parting: Parting, prompt: Prompt) -> int | None:
    """The token at which they part, in the request as it is; ``None`` where it cannot be told.

    ::

        as it is   … defect … |same to the end     edits before a place leave its distance from the end as it is
        mended     … …        |same to the end
    """
    mended = parting.later.text
    char = len(prompt.text) - (len(mended) - parting.char)
    if char < 0 or prompt.text[char:] != mended[parting.char :]:
        return None
    return prompt.token_at(char)


def _char_before(cause: Cause, causes: Sequence[Cause]) -> int | None:
    """The cause's character, in the string as it was before the edits of ``causes``."""
    char = cause.char
    if char is None or not isinstance(cause.edit, TextEdit):
        return char
    for earlier in reversed(causes):
        edit = earlier.edit
        if (
            isinstance(edit, TextEdit)
            and edit.leaf.keys == cause.edit.leaf.keys
            and char >= edit.start + len(edit.content)
        ):
            char -= len(edit.content) - (edit.end - edit.start)
    return char


def sketch(prompt: Prompt) -> frozenset[int]:
    """Of the system text, the tools and the first thing that is said."""
    strings = [string for string in prompt.strings if string.role in SHARED_ROLES]
    first = next((string for string in prompt.strings if string.role not in SHARED_ROLES), None)
    return sketch_of("\n".join(string.value for string in (*strings, *((first,) if first else ()))))
