"""What stands around a place in a text: facts about the machine, retrieved documents, a label, a version."""

from __future__ import annotations

import re
from typing import NamedTuple

_REACH = 4000
"""Characters before a place in which the block that it lies in may begin."""
_ENVIRONMENT_TAG = (
    r"env|environment|environment_\w+|system_info\w*|git_?status|working_?tree|workspace\w*|machine|runtime_info"
)
_ENVIRONMENT_LINE = re.compile(
    r"""^ [\W_]* (?: (?:current|primary|additional)\s+ )? (?:
        (?:working|project|root)[ _](?:directory|directories|dir|folder|root) | cwd | pwd | platform | os | os[ _]version
      | operating[ _]system | kernel | arch(?:itecture)? | host(?:name)? | machine | user[ _]?name | home(?:[ _]dir(?:ectory)?)?
      | (?:default[ _])?shell | git[ _](?:status|branch|commit|head|repo\w*|user) | (?:current[ _]|main[ _]|default[ _])?branch
      | head[ _]commit | is[ _](?:directory[ _])?(?:a[ _])?git[ _]?repo\w* | recent[ _]commits | last[ _]commits?
      | (?:un)?staged | untracked(?:[ _]files)? | modified[ _]files | python(?:[ _]version)? | node(?:[ _]version)?
      | (?:virtual[ _])?env(?:ironment)? | venv | workspace(?:[ _]\w+)? | project[ _](?:root|layout|structure)
      | (?:open|visible|recent)[ _](?:files?|tabs?|editors?) | active[ _](?:file|editor|tab|terminals?) | cursor[ _]position
      | free[ _](?:disk|memory|space)\w* | disk[ _]\w+ | ram | cpus? | load | gpus? | time[ _]?zone | locale
      | ip(?:[ _]address)? | directory[ _](?:structure|listing|tree) | file[ _]tree
      ) \b [^\n:=]{0,30} [:=]""",
    re.IGNORECASE | re.VERBOSE,
)
_STATUS_LINE = re.compile(
    r"""^ \s* (?: [MADRCU?!]{1,2}\s+\S | [-*+│├└|] | [0-9a-f]{7,40}\s | \(clean\) | nothing[ ]to[ ]commit | On[ ]branch[ ]
      | Your[ ]branch[ ] | Changes[ ] | / | [\w.-]+/ | [\w./-]+\.\w+\s*$ )""",
    re.VERBOSE,
)
"""Lines that go on a listing: of a status, of commits, of files."""
_RETRIEVED_TAG = (
    r"documents?|docs?|context|retrieved\w*|search_?results?|sources?|passages?|chunks?|knowledge\w*|snippets?|excerpts?"
    r"|references?|articles?|relevant_\w+"
)
_RETRIEVED_LINE = re.compile(
    r"""^ [\W_]* (?: (?:relevant|retrieved|additional|background|supporting)\s+ )?
      (?: context | documents? | docs | sources? | references? | (?:web[ ]|search[ ])+results? | passages? | chunks?
        | knowledge(?:[ ]base)? | excerpts? | snippets? | articles? | memories | information )
      \b [^\n:]{0,40} :? [\W_]* $""",
    re.IGNORECASE | re.VERBOSE,
)
_DOCUMENT_LINE = re.compile(
    r"^\W*(?:\[(?:doc\w*\s*)?\d+\]|(?:document|source|passage|result|chunk|excerpt)\s*(?:no\.?\s*)?#?\d+\b)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"""^ [\W_]* (?: (?:your|the|current|user'?s?|customer)\s+ )?
      (?: task | goal | objective | question | query | request | problem | issue | ticket | assignment | subtask | topic
        | user | customer | account | client | profile | persona | preferences | memor(?:y|ies) | about[ ]the[ ](?:user|customer)
        | name | company | tenant | organi[sz]ation | patient | case | order )
      \b [^\n]{0,40} $""",
    re.IGNORECASE | re.VERBOSE,
)
_VERSION = re.compile(
    r"v\d+(?:\.\d+)*\Z | v?\d+(?:\.\d+){2,} (?:[-+.]?[a-z]{1,6}\.?\d*)?\Z", re.IGNORECASE | re.VERBOSE
)
_VERSION_LABEL = re.compile(r"\b(?:version|release|revision|rev|build)\b\W*v?$", re.IGNORECASE)


class Block(NamedTuple):
    """Characters ``[start, end)`` of a text."""

    start: int
    end: int


def environment_block(text: str, at: int, line_end: str = "\n") -> Block | None:
    """The facts about machine and working tree that character ``at`` lies in: from the start of its line, to their end."""
    start = _line_start(text, at, line_end)
    tagged = _open_tag(text, at, _ENVIRONMENT_TAG)
    if tagged is not None:
        return Block(start, max(at, tagged))
    line = text[start : _line_stop(text, at, line_end)]
    if not _ENVIRONMENT_LINE.match(line) and not (_STATUS_LINE.match(line) and _listed_under(text, start, line_end)):
        return None
    end = _line_stop(text, at, line_end)
    while end < len(text):
        stop = _line_stop(text, end + len(line_end), line_end)
        line = text[end + len(line_end) : stop]
        if not line.strip():  # another paragraph of the same
            stop = _line_stop(text, stop + len(line_end), line_end)
            line = text[end + 2 * len(line_end) : stop]
            if not _ENVIRONMENT_LINE.match(line):
                break
        elif not _ENVIRONMENT_LINE.match(line) and not _STATUS_LINE.match(line):
            break
        end = stop
    return Block(start, end)


def is_a_block(text: str, block: Block) -> bool:
    """Several facts or a tag around them: one line may be an instruction that looks like a fact."""
    lines = text[block.start : block.end].splitlines()
    if sum(1 for line in lines if _ENVIRONMENT_LINE.match(line)) > 1:
        return True
    return re.search(rf"<(?:{_ENVIRONMENT_TAG})\b[^<>]*>\s*\Z", text[: block.start] + (lines or [""])[0]) is not None


def retrieved_block(text: str, at: int, line_end: str = "\n") -> Block | None:
    """The retrieved text that character ``at`` lies in, to the closing tag or, where none is, to the end of ``text``.

    Documents of one search stand in one tag, or one behind another in tags of their own; all of them are the block.
    """
    tagged = _open_tag(text, at, _RETRIEVED_TAG, outermost=True)
    if tagged is not None:
        return Block(at, max(at, _last_of_row(text, tagged, _RETRIEVED_TAG)))
    start = _line_start(text, at, line_end)
    first = max(0, start - _REACH)
    for line in reversed([*text[first:start].split(line_end), text[start:at]][-40:]):
        if _RETRIEVED_LINE.match(line) and line.strip():
            return Block(at, len(text))
        if line.lstrip().startswith(("# ", "## ")):
            return None
    return Block(at, len(text)) if starts_document(text[start : start + 40]) else None


def starts_document(line: str) -> bool:
    """``[1] …``, ``Document 2: …``"""
    return _DOCUMENT_LINE.match(line) is not None


def has_label(text: str, at: int, line_end: str = "\n") -> bool:
    """Whether what stands before says that a task or somebody's data follow: ``Task:``, ``## User profile``."""
    start = _line_start(text, at, line_end)
    line = text[start:at]
    if line.strip(" \t-*#>"):
        return _LABEL.match(line) is not None
    above = text[: max(0, start - len(line_end))].rstrip()
    return _LABEL.match(above[_line_start(above, len(above), line_end) :]) is not None if above else False


def is_version(text: str, start: int, end: int) -> bool:
    """Whether characters ``[start, end)`` are a version: of the program, which a deployment changes and a request does not."""
    value = text[start:end].strip(" \t.,;:()[]\"'`")
    return _VERSION.match(value) is not None or _VERSION_LABEL.search(text[max(0, start - 30) : start]) is not None


def _listed_under(text: str, start: int, line_end: str) -> bool:
    """A line above, with nothing but a listing between, says what is listed."""
    lines = text[max(0, start - _REACH) : start].split(line_end)[:-1]
    for line in reversed(lines):
        if _ENVIRONMENT_LINE.match(line):
            return True
        if not _STATUS_LINE.match(line):
            return False
    return False


def _open_tag(text: str, at: int, names: str, *, outermost: bool = False) -> int | None:
    """Where the innermost (or outermost) tag of ``names`` that is open at ``at`` ends; ``None`` when none is open."""
    first = max(0, at - _REACH)
    opened = list(re.compile(rf"<({names})\b[^<>]*>", re.IGNORECASE).finditer(text, first, at))
    for match in opened if outermost else reversed(opened):
        closing = _closing(match[1]).search(text, match.end())
        if closing is not None and closing.start() >= at:
            return closing.start()
    return None


def _last_of_row(text: str, end: int, names: str) -> int:
    """Where the last of the tags of ``names`` ends that follow one another from the closing tag at ``end`` on."""
    following = re.compile(rf"</[^<>]*>\s*<({names})\b[^<>]*>", re.IGNORECASE)
    while (opened := following.match(text, end)) and (closing := _closing(opened[1]).search(text, opened.end())):
        end = closing.start()
    return end


def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{re.escape(name)}\s*>", re.IGNORECASE)


def _line_start(text: str, at: int, line_end: str) -> int:
    place = text.rfind(line_end, 0, at)
    return 0 if place < 0 else place + len(line_end)


def _line_stop(text: str, at: int, line_end: str) -> int:
    place = text.find(line_end, at)
    return len(text) if place < 0 else place
