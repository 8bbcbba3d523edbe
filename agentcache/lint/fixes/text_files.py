"""Mends sources and other text files by the edits that findings carry, as often as there are new ones."""

from __future__ import annotations

import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from pathlib import Path

from agentcache.lint.finding import Edit, Finding
from agentcache.lint.fixes.outcome import FixOptions
from agentcache.lint.fixes.sources import Verifier, verify_comment, verify_python, verify_template_comment
from agentcache.lint.report import Report

_VERIFIERS: Mapping[tuple[str, bool], Verifier] = {
    (".py", False): verify_python,
    (".py", True): verify_comment,
    (".jinja", True): verify_template_comment,
    (".jinja2", True): verify_template_comment,
    (".j2", True): verify_template_comment,
}
"""By the file's ending, and whether a comment goes."""
_ROUNDS = 10
_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class MendedText:
    """What became of one file.

    Attributes:
        fixed: findings whose edits were made.
        refused: others, and why not.
        content: of the mended file; ``None`` when nothing is changed.
        report: of the mended file.
    """

    fixed: list[Finding] = field(default_factory=list)
    refused: list[tuple[Finding, str]] = field(default_factory=list)
    content: bytes | None = None
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's text with all that must be put back around it.

    Attributes:
        text: without the mark at its beginning; line ends as they are.
    """

    text: str
    encoding: str
    mark: bytes

    @classmethod
    def of(cls, content: bytes, name: str) -> TextFile:
        """
        Raises:
            ValueError: it is not text in the encoding that it declares.
        """
        mark = _BOM if content.startswith(_BOM) else b""
        encoding = "utf-8"
        if name.endswith(".py"):
            try:
                encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
            except SyntaxError as error:
                raise ValueError(str(error)) from None
        if encoding == "utf-8-sig":
            encoding = "utf-8"
        return cls(content[len(mark) :].decode(encoding), encoding, mark)

    def encode(self, text: str) -> bytes:
        """
        Raises:
            ValueError: the encoding has not all of its characters.
        """
        return self.mark + text.encode(self.encoding)


def mend_text(name: str, path: Path, findings: Sequence[Finding], options: FixOptions, copy: Path) -> MendedText:
    """Make the edits of ``findings``, lint what comes of it, and go on with what is found then.

    Args:
        findings: of this file, with edits that may be made.
        copy: where the mended file is put to be linted.

    Raises:
        OSError: the file cannot be read, or the copy not written.
    """
    mended = MendedText()
    original = path.read_bytes()
    try:
        file = TextFile.of(original, name)
    except ValueError as error:
        mended.refused = [(finding, f"the file cannot be decoded: {error}") for finding in findings]
        return mended
    text, waiting = file.text, list(findings)
    for _ in range(_ROUNDS):
        mended.refused = []
        chosen, text = _made(name, text, waiting, mended)
        if not chosen:
            break
        copy.write_bytes(file.encode(text))
        mended.report = options.relint({name: copy}, lambda _: None)
        mended.fixed += chosen
        waiting = applicable(mended.report.findings, name, unsafe=options.unsafe)
    else:
        return MendedText(refused=[(finding, "fixing it makes ever new findings") for finding in findings])
    told = {id(finding) for finding, _ in mended.refused}
    mended.refused += [(finding, "its edits overlap") for finding in waiting if id(finding) not in told]
    if not mended.fixed or mended.report is None:
        return mended
    had = Counter(finding.code for finding in options.report.findings if finding.location.file == name)
    if again := _not_gone(had, mended):
        return MendedText(refused=[(finding, again) for finding in findings])
    mended.content = file.encode(text)
    return mended


def applicable(findings: Sequence[Finding], name: str, *, unsafe: bool) -> list[Finding]:
    """Those of a file whose edits may be made."""
    allowed = ("safe", "unsafe") if unsafe else ("safe",)
    return [f for f in findings if f.location.file == name and f.fix.edits and f.fix.applicability in allowed]


def _made(name: str, text: str, findings: Sequence[Finding], mended: MendedText) -> tuple[list[Finding], str]:
    """As many of the findings' edits as do not overlap and prove good, and the text with them."""
    chosen: list[Finding] = []
    edits: list[Edit] = []
    result = text
    kinds = [_is_comment(finding) for finding in findings]
    for finding in sorted(findings, key=lambda finding: finding.fix.edits[0].start):
        together = sorted((*edits, *finding.fix.edits), key=lambda edit: (edit.start, edit.end))
        apart = any(left.end > right.start or left.start == right.start for left, right in pairwise(together))
        if apart or _is_comment(finding) is not kinds[0]:
            continue  # the next round has it
        reason, changed = _tried(name, text, together, _VERIFIERS.get((Path(name).suffix, kinds[0])))
        if reason is None:
            chosen, edits, result = [*chosen, finding], together, changed
        else:
            mended.refused.append((finding, reason))
    return chosen, result


def _is_comment(finding: Finding) -> bool:
    """What goes is a comment that suppresses nothing."""
    return finding.code == "AC901"


def _tried(name: str, text: str, edits: Sequence[Edit], verify: Verifier | None) -> tuple[str | None, str]:
    """Why the edits cannot be made, if they cannot, and the text with them."""
    if edits[-1].end > len(text):
        return "the file was changed while it was being linted", text
    changed = with_edits(text, edits)
    if changed == text:
        return "it would change nothing", text
    if verify is None:
        return f"fixes of {Path(name).suffix or 'such'} files cannot be proved", text
    return verify(text, changed, edits), changed


def with_edits(text: str, edits: Sequence[Edit]) -> str:
    """
    Args:
        edits: in order, without overlaps.
    """
    pieces, at = [], 0
    for edit in edits:
        pieces += [text[at : edit.start], edit.content]
        at = edit.end
    return "".join((*pieces, text[at:]))


def _not_gone(had: Mapping[str, int], mended: MendedText) -> str | None:
    """A code of which there are no fewer findings than before, though some were mended."""
    assert mended.report is not None
    left = Counter(finding.code for finding in mended.report.findings)
    if left["AC903"]:
        return "the mended file could not be read"
    stays = sorted(
        code for code in {finding.code for finding in mended.fixed} if left[code] >= max(had.get(code, 0), 1)
    )
    return f"{stays[0]} would still be found" if stays else None
